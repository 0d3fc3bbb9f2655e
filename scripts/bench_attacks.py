"""What attackers cost the others: honest workers' throughput with and without them, in turns.

    python scripts/bench_attacks.py [--broker mosquitto|embedded] [--workers 50] [--rounds 4]

Honest workers hold real connections to one `shoal host`, and take tasks of about a second all the
time. Attackers, each with the credentials of an ordinary worker that was let in, are there for some
seconds, then gone for as many: a flood of 10,000 messages a second, each under a true MAC;
forged results; messages that are too long; 500 sockets that never say who they are. Told is the
median, over rounds, of the honest tasks a second with attackers over those in the turn before.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import signal
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from protocol import topics
from protocol.envelope import sealed, signed
from protocol.frames import publish_packet
from protocol.identity import SessionKeys, new_nonce, new_session
from protocol.messages import Hello, Message, Result, Status
from protocol.spec import PROTOCOL_VERSION
from scripts.bench_broker import DIRECTIONS, allow_files, processes, run_file
from scripts.crowd.light import LENGTH, Crowd, LightWorker, made_up
from tests.chaos.processes import cpu_seconds, host
from tests.contract.raw import RawClient, connect_packet

PER_SECOND = 10_000
BATCH_SECONDS = 0.02
HALF_OPEN = 500
GIANT = 300_000
"""Bytes: more than a message may have, less than what brokers cut a client off for."""


class Attacker:
    """A worker that was let in, and a second connection under its name that says what it likes."""

    def __init__(self, worker: LightWorker, client: RawClient) -> None:
        self.worker = worker
        self.client = client
        self.said = 0
        """messages that the broker took"""

    @property
    def _key(self) -> bytes:
        assert self.worker.key is not None
        return self.worker.key

    def packet(self, kind: Callable[[str, str, str], str], payload: bytes) -> bytes:
        """The bytes of a message on one of its topics."""
        worker = self.worker
        topic = kind(worker.crowd.run, worker.identity.worker, worker.session)
        return publish_packet(topic.encode(), payload, 0, False, 0)

    def sealed(self, message: Message) -> bytes:
        """Under the session's key."""
        return sealed(self._key, "to coordinator", message)

    async def say(self, packets: list[bytes], per_second: float) -> None:
        """Say these in turn, so many a second, for ever."""
        turns, loop = itertools.cycle(packets), asyncio.get_running_loop()
        began = loop.time()
        while True:
            due = int((loop.time() - began) * per_second) - self.said
            self.client.writer.write(b"".join(itertools.islice(turns, due)))
            await self.client.writer.drain()
            self.said += due
            await asyncio.sleep(BATCH_SECONDS)


async def flood(attacker: Attacker) -> None:
    """As many signs of life as a thousand workers give in minutes."""
    packet = attacker.packet(topics.status, attacker.sealed(Status("busy", 0)))
    await attacker.say([packet], PER_SECOND)


async def forge(attacker: Attacker) -> None:
    """Results of ranges that were never leased, each of which is answered."""
    forged: list[Result] = [
        msgspec.structs.replace(made_up(task, 0, task.count), first=task.first + 10**9)
        for task in list(attacker.worker.tasks)
    ]
    packets = [attacker.packet(topics.results, attacker.sealed(each)) for each in forged]
    await attacker.say(packets, 500.0)


async def giants(attacker: Attacker) -> None:
    """Messages that are too long to be one."""
    await attacker.say([attacker.packet(topics.results, bytes(GIANT))], 20.0)


async def hellos(attacker: Attacker) -> None:
    """Newcomers, each of whom is greeted."""
    worker, packets = attacker.worker, []
    for _ in range(4_000):
        session, keys = new_session(), SessionKeys.generate()
        hello = Hello(
            *(PROTOCOL_VERSION, "0", worker.identity.public_key, keys.public_key, new_nonce()),
            *("bench", "none", 0, 0.0),
        )
        payload = signed(worker.identity, "hello", (worker.crowd.run, session), hello)
        topic = topics.request(worker.crowd.run, worker.identity.worker, session)
        packets.append(publish_packet(topic.encode(), payload, 0, False, 0))
        await asyncio.sleep(0)
    await attacker.say(packets, 1_000.0)


async def half_open(attacker: Attacker) -> None:
    """Sockets that say nothing, or half a CONNECT."""
    parts = urlsplit(attacker.worker.url)
    clients = []
    try:
        for number in range(HALF_OPEN):
            clients.append(await RawClient.open(f"mqtt://{parts.netloc}"))
            if number % 2:
                clients[-1].writer.write(connect_packet("half")[:7])
        await asyncio.Event().wait()
    finally:
        for client in clients:
            client.abort()


ATTACKS = {
    each.__name__.replace("_", "-"): each for each in (flood, forge, hellos, giants, half_open)
}


@contextlib.asynccontextmanager
async def attacked(attack: str, attacker: Attacker) -> AsyncIterator[None]:
    """While somebody attacks."""
    running = asyncio.create_task(ATTACKS[attack](attacker))
    try:
        yield
        if running.done():
            running.result()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def measured(url: str, coordinator: int, given: argparse.Namespace) -> dict[str, object]:
    """By attack: the median of the ratios, and the coordinator's share of a core meanwhile."""
    run = url.split("/")[3].partition("#")[0]
    broker = url.partition("#")[0].rpartition("/")[0]
    honest = Crowd(run, speed=2 * DIRECTIONS * LENGTH, parts=0.0)
    await honest.join(broker, given.workers)
    idle = Crowd(run, speed=1e-6, parts=0.0, credit=1)
    (worker,) = await idle.join(broker, 1)
    await asyncio.sleep(given.turn)
    found: dict[str, object] = {}
    for attack in given.attack or ATTACKS:
        ratios, shares, rates = [], [], []
        for _ in range(given.rounds):
            before = await tasks_per_second(honest, given.turn)
            name = worker.identity.worker
            client = await RawClient.connect(broker, f"attacker-{attack}", user=name)
            spent = cpu_seconds(coordinator)
            attacker = Attacker(worker, client)
            async with attacked(attack, attacker):
                during = await tasks_per_second(honest, given.turn)
            client.abort()
            rates.append(attacker.said / given.turn)
            ratios.append(during / before)
            shares.append((cpu_seconds(coordinator) - spent) / given.turn)
            await asyncio.sleep(1.0)
        found[attack] = {
            "ratio": round(statistics.median(ratios), 3),
            "ratios": [round(ratio, 3) for ratio in ratios],
            "messages_per_second": round(statistics.median(rates)),
            "cpu_coordinator": round(statistics.median(shares), 2),
        }
    return {**found, "sent_again": honest.heard.sent_again, "lost": honest.heard.lost}


async def tasks_per_second(crowd: Crowd, seconds: float) -> float:
    """Tasks that the crowd got, for so long."""
    before = crowd.heard.tasks
    await asyncio.sleep(seconds)
    return (crowd.heard.tasks - before) / seconds


def main() -> None:
    """Print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--broker", choices=("embedded", "mosquitto"), default="mosquitto")
    parser.add_argument("--workers", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--turn", type=float, default=5.0, help="seconds with, and without")
    parser.add_argument("--attack", action="append", choices=sorted(ATTACKS))
    given = parser.parse_args()
    allow_files(given.workers + HALF_OPEN + 100)
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as folder:
        run_dir, file = Path(folder) / "run", Path(folder) / "run.toml"
        file.write_text(run_file(given.workers, given.workers, 0.001), encoding="utf-8")
        with host(str(file), run_dir=run_dir, broker=given.broker) as (leader, url):
            pids = processes(leader.process.pid)
            figures = asyncio.run(measured(url, pids["coordinator"], given))
            leader.signal(signal.SIGINT)
            leader.await_end()
    print(json.dumps({"broker": given.broker, **figures}))


if __name__ == "__main__":
    main()
