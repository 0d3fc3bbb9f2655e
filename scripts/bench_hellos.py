"""What do thousands of hellos in one moment cost a run? `python -m scripts.bench_hellos`.

A run over a real broker is trained by one scripted worker, without an environment; then everybody
else says hello at once, and with `--credit` takes tasks of which it returns none. Reported: how
long it takes until all are welcome, how late the coordinator's timers and beats were meanwhile, and
how many updates a second were made before and during it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from coordinator import server as server_module
from protocol import topics
from protocol.address import parse_address
from protocol.envelope import signed
from protocol.identity import Identity, SessionKeys, new_nonce, new_session
from protocol.link import Link
from protocol.messages import Hello
from protocol.spec import PROTOCOL_VERSION
from tests.coordinator.runs import Led, led, spec_of
from tests.protocol.mosquitto import Mosquitto

AT_ONCE = 256 * 1024
"""Bytes that wait for the broker, beyond which nobody says anything for a moment."""
QUIET_SECONDS = 3.0
"""For which the run is watched before the hellos come."""


def hello(run: str, credit: int = 0) -> tuple[str, bytes]:
    """A newcomer's topic, and what it says there."""
    identity, session, keys = Identity.generate(), new_session(), SessionKeys.generate()
    message = Hello(
        protocol=PROTOCOL_VERSION,
        client="0",
        worker_key=identity.public_key,
        exchange_key=keys.public_key,
        nonce=new_nonce(),
        name="bench",
        device="none",
        credit=credit,
        speed=0.0,
    )
    payload = signed(identity, "hello", (run, session), message)
    return topics.request(run, identity.worker, session), payload


async def measure(workers: int, directory: Path, url: str, credit: int = 0) -> dict[str, float]:
    """One storm of hellos."""
    spec = spec_of(stop={"updates": 1_000_000, "target": 1e9}, strategy={"population": 256})
    async with led(spec, directory, url) as run, run.worker() as worker:
        await worker.until(lambda: worker.version > 0)
        hellos = [hello(run.run_id, credit) for _ in range(workers)]
        crowd = Link(parse_address(url), client_id="crowd", on_message=lambda *_: None)
        connecting = asyncio.ensure_future(crowd.run())
        while not crowd.connected:
            await asyncio.sleep(0.01)
        quiet = await watched(run, lambda: False, QUIET_SECONDS)
        saying = asyncio.ensure_future(say(crowd, hellos))
        turns, peers = run.server._reception.turns, run.server._peers
        storm = await watched(run, lambda: saying.done() and not turns, 300.0)
        connecting.cancel()
        return {
            "hellos": workers,
            "welcomed": len(peers._here) + len(peers._gone) - 1,
            "seconds": storm["seconds"],
            "tick_late_before": quiet["late"],
            "tick_late": storm["late"],
            "updates_per_second_before": quiet["updates_per_second"],
            "updates_per_second": storm["updates_per_second"],
            "most_waiting": storm["most_waiting"],
        }


async def say(crowd: Link, hellos: list[tuple[str, bytes]]) -> None:
    """Say all that at once, as fast as the broker takes it."""
    for topic, payload in hellos:
        while crowd.unsent > AT_ONCE:
            await asyncio.sleep(0.001)
        crowd.publish(topic, payload)


async def watched(run: Led, done: Callable[[], bool], most_seconds: float) -> dict[str, float]:
    """What the coordinator does until something is done, or for so long."""
    began, before = time.monotonic(), run.server._pool.version
    late, waiting, last = 0.0, 0, began
    while not done() and time.monotonic() - began < most_seconds:
        await asyncio.sleep(server_module.TICK_SECONDS)
        moment = time.monotonic()
        late = max(late, moment - last - server_module.TICK_SECONDS)
        waiting = max(waiting, len(run.server._reception.turns))
        last = moment
    seconds = time.monotonic() - began
    return {
        "seconds": round(seconds, 2),
        "late": round(late, 3),
        "updates_per_second": round((run.server._pool.version - before) / seconds, 1),
        "most_waiting": waiting,
    }


def main() -> None:
    """Print the figures as one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=10_000)
    parser.add_argument("--credit", type=int, default=0, help="tasks that each asks for")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        broker = Mosquitto(Path(directory), "max_queued_messages 100000")
        broker.start()
        try:
            measured = measure(given.workers, Path(directory), broker.url, given.credit)
            print(json.dumps(asyncio.run(measured)))
        finally:
            broker.kill()


if __name__ == "__main__":
    main()
