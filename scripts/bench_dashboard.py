"""What the dashboard costs the coordinator at a thousand workers, and how far a page is behind.

    python scripts/bench_dashboard.py --connected 1000 --results 300 --tasks 200

One process holds the connections of light workers (see `bench_broker.py`) to one `shoal host
--dashboard`, and in turns opens pages (their streams, compressed as browsers take them) and closes
them. Told are, from the processor time of the coordinator's process: its share of a core without a
page, and what one page, and many, add to that, the median of the turns; then how long after an
update's line of metrics was written a page was told of it, and what bytes a page takes a second.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import statistics
import sys
import tempfile
import time
import zlib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.bench_broker import DIRECTIONS, SETTLE_SECONDS, allow_files, run_file
from scripts.crowd.light import LENGTH, Crowd
from tests.chaos.processes import cpu_seconds, host

LOOK_SECONDS = 0.005
"""Between two looks at the file of metrics."""


class Listener:
    """A page without a screen: takes what is told, and notes when it heard of each update."""

    def __init__(self, url: str) -> None:
        self._url = urlsplit(url)
        self.heard: dict[int, float] = {}
        self.bytes = 0
        self.workers = 0
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Listener:
        self._task = asyncio.create_task(self._listen())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _listen(self) -> None:
        reader, writer = await asyncio.open_connection(self._url.hostname, self._url.port)
        writer.write(b"GET /stream HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\n\r\n")
        try:
            assert b" 200 " in await reader.readline()
            while await reader.readline() != b"\r\n":
                pass
            unzip, text = zlib.decompressobj(wbits=31), b""
            while size := int(await reader.readline(), 16):
                text += unzip.decompress(await reader.readexactly(size))
                await reader.readline()
                self.bytes += size
                *events, text = text.split(b"\n\n")
                for event in events:
                    self._take(event)
        finally:
            writer.close()

    def _take(self, event: bytes) -> None:
        moment = time.monotonic()
        if event.startswith(b"data: "):
            told = json.loads(event[6:])
            self.workers = max(self.workers, len(told["workers"]))
            for update in told.get("updates", {}).get("items", []):
                self.heard.setdefault(update["version"], moment)


async def watch_metrics(file: Path, written: dict[int, float]) -> None:
    """Note when the line of each update was there."""
    with file.open("rb") as lines:
        lines.seek(0, 2)
        rest = b""
        while True:
            rest += lines.read()
            moment = time.monotonic()
            *whole, rest = rest.split(b"\n")
            for line in whole:
                if b'"update"' in line:
                    written[json.loads(line)["version"]] = moment
            await asyncio.sleep(LOOK_SECONDS)


async def measured(
    url: str, page: str, run_dir: Path, pid: int, given: argparse.Namespace
) -> dict[str, Any]:
    """The figures of so many turns."""
    crowd = Crowd(
        url.split("/")[3].partition("#")[0],
        2 * DIRECTIONS * LENGTH * given.tasks / given.connected,
        max(0.0, given.results / given.tasks - 1.0),
    )
    workers = await crowd.join(url.partition("#")[0].rpartition("/")[0], given.connected)
    await asyncio.sleep(given.settle)
    written: dict[int, float] = {}
    watching = asyncio.create_task(watch_metrics(run_dir / "metrics.jsonl", written))
    shares: dict[int, list[float]] = {0: [], 1: [], given.pages: []}
    lags: list[float] = []
    rates: list[float] = []
    shown = 0
    crowd.heard.forget()
    began = time.monotonic()
    for _ in range(given.turns):
        for pages in shares:
            listeners = [Listener(page) for _ in range(pages)]
            for listener in listeners:
                await listener.__aenter__()
            await asyncio.sleep(1.5)  # who comes gets the whole picture first
            before, bytes_before = cpu_seconds(pid), [each.bytes for each in listeners]
            turn_began = time.monotonic()
            await asyncio.sleep(given.seconds)
            seconds = time.monotonic() - turn_began
            shares[pages].append((cpu_seconds(pid) - before) / seconds)
            for listener, past in zip(listeners, bytes_before, strict=True):
                shown = max(shown, listener.workers)
                rates.append((listener.bytes - past) / seconds)
                lags += [
                    moment - written[version]
                    for version, moment in listener.heard.items()
                    if turn_began < written.get(version, 0.0)
                ]
                await listener.__aexit__()
    watching.cancel()
    results = crowd.heard.results / (time.monotonic() - began)
    for worker in workers:
        worker.leave()
    added = {
        pages: [share - idle for share, idle in zip(found, shares[0], strict=True)]
        for pages, found in shares.items()
    }
    return {
        "workers_shown": shown,
        "results_per_second": round(results, 1),
        "cpu_without_pages": round(statistics.median(shares[0]), 3),
        "cpu_added_by_1_page": round(statistics.median(added[1]), 3),
        f"cpu_added_by_{given.pages}_pages": round(statistics.median(added[given.pages]), 3),
        "updates_heard_of": len(lags),
        "lag_seconds_p50": round(float(np.median(lags or [np.nan])), 3),
        "lag_seconds_max": round(max(lags, default=float("nan")), 3),
        "bytes_per_second_and_page": round(statistics.median(rates or [0.0])),
    }


def main() -> None:
    """Print the figures, one a line or as one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--broker", choices=("embedded", "mosquitto"), default="mosquitto")
    parser.add_argument("--connected", type=int, default=1000)
    parser.add_argument("--results", type=float, default=300.0, help="a second")
    parser.add_argument("--tasks", type=float, default=200.0, help="a second")
    parser.add_argument("--updates", type=float, default=1.0, help="a second, about")
    parser.add_argument("--pages", type=int, default=8, help="many of them")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=8.0, help="of a turn")
    parser.add_argument("--settle", type=float, default=SETTLE_SECONDS)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    allow_files(given.connected + 100)
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as folder:
        run_dir, file = Path(folder) / "run", Path(folder) / "run.toml"
        file.write_text(run_file(given.connected, given.tasks, given.updates), encoding="utf-8")
        asked = (str(file), "--dashboard", "0")
        with host(*asked, run_dir=run_dir, broker=given.broker) as (leader, url):
            page = leader.await_line("dashboard at ").split()[-1]
            figures = asyncio.run(measured(url, page, run_dir, leader.process.pid, given))
            leader.signal(signal.SIGINT)
            leader.await_end()
    if given.json:
        print(json.dumps(figures))
    else:
        print("\n".join(f"{name:27} {value}" for name, value in figures.items()))


if __name__ == "__main__":
    main()
