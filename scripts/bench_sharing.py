"""What runs get of workers that serve them all, beside the shares that their volunteers gave.

    PYTHONPATH=. python scripts/bench_sharing.py [--seconds 60] [--shares 2,1,1] [--workers 4]

Each run is a `shoal host` of its own, of an environment whose episodes are all as long, each worker
a `shoal join` with one evaluation process that was told the broker alone, all on this machine. What
runs had before every worker knew all of them does not count. For each run, a line of JSON:

- `wanted`: its share of the sum of the shares;
- `core_seconds`: its part of the time in which the workers evaluated, as they book it;
- `evaluations`: its part of the episodes that they evaluated;
- `error`: how far the worse of both is from what is wanted, as a part of that.

The last line has the largest error, how much of the time the workers evaluated, and the same for
each worker alone.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.processes import join_url, running, worker
from tests.protocol.mosquitto import Mosquitto
from worker import control_client
from worker.control import Request

TARGET = 0.05
"""How far from its share, as a part of it, a run may be."""
PATIENCE = 90.0
"""Seconds for all workers to have evaluated something of all runs."""
LOOK_SECONDS = 0.2


@dataclass(frozen=True)
class Had:
    """What a run had of a worker so far."""

    core_seconds: float = 0.0
    episodes: int = 0

    def __add__(self, other: Had) -> Had:
        return Had(self.core_seconds + other.core_seconds, self.episodes + other.episodes)

    def __sub__(self, other: Had) -> Had:
        return Had(self.core_seconds - other.core_seconds, self.episodes - other.episodes)


def looked(home: Path) -> dict[str, Had]:
    """What the worker with that home says that its runs had."""
    (place,) = control_client.running(home, None, None)
    said, _ = control_client.ask(place, Request("status"))
    assert said.report is not None
    return {run.run: Had(run.core_seconds, run.episodes) for run in said.report.view.runs}


def begun(homes: list[Path], runs: list[str]) -> None:
    """Wait until every worker has evaluated something of every run."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        time.sleep(LOOK_SECONDS)
        had = [looked(home) for home in homes]
        if all(each.get(run, Had()).episodes for each in had for run in runs):
            return
    raise SystemExit(f"no worker serves all runs after {PATIENCE:.0f} s")


def parts(had: list[Had]) -> list[tuple[float, float]]:
    """Of core-seconds and of episodes, what part each had."""
    seconds = sum(one.core_seconds for one in had) or 1.0
    episodes = sum(one.episodes for one in had) or 1
    return [(one.core_seconds / seconds, one.episodes / episodes) for one in had]


def error(had: list[Had], wanted: list[float]) -> list[float]:
    """How far each is from what is wanted, as a part of that."""
    return [
        max(abs(part / share - 1.0) for part in both)
        for both, share in zip(parts(had), wanted, strict=True)
    ]


def main() -> int:
    """Measure and print; the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--shares", default="2,1,1", help="of the runs, from 0.01 to 100")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--environment", default="Pendulum-v1")
    flags = "--preset none --pool quorum --population 256 --seconds 600"
    parser.add_argument("--flags", default=flags, help="of shoal host")
    options = parser.parse_args()
    shares = [float(share) for share in options.shares.split(",")]
    wanted = [share / sum(shares) for share in shares]
    said = ",".join(f"run{number}={share:g}" for number, share in enumerate(shares))
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        broker = Mosquitto(Path(folder))
        broker.start()
        stack.callback(broker.kill)
        hosts = []
        for number in range(len(shares)):
            command = ["shoal", "host", options.environment, "--name", f"run{number}"]
            command += ["--run-dir", f"{folder}/run{number}", "--broker", broker.url]
            hosts.append(stack.enter_context(running(*command, *options.flags.split())))
        runs = [join_url(host).split("#")[0].rpartition("/")[2] for host in hosts]
        homes = [Path(folder, f"home{number}") for number in range(options.workers)]
        for home in homes:
            joined = stack.enter_context(worker(broker.url, home, "--share", said))
            joined.await_line("broker reached")
        begun(homes, runs)
        before, began = [looked(home) for home in homes], time.monotonic()
        time.sleep(options.seconds)
        after, seconds = [looked(home) for home in homes], time.monotonic() - began
    each = [
        [late[run] - early[run] for run in runs] for early, late in zip(before, after, strict=True)
    ]
    together = [sum(had, Had()) for had in zip(*each, strict=True)]
    errors = error(together, wanted)
    for run, share, both, wrong in zip(runs, wanted, parts(together), errors, strict=True):
        line = {"run": run, "wanted": share, "core_seconds": both[0], "evaluations": both[1]}
        print(json.dumps(line | {"error": wrong}))
    busy = sum(had.core_seconds for had in together) / (seconds * options.workers)
    alone = [max(error(had, wanted)) for had in each]
    print(json.dumps({"error": max(errors), "busy": busy, "of_each_worker": alone}))
    return int(max(errors) > TARGET)


if __name__ == "__main__":
    sys.exit(main())
