"""Times who joins late: a small network at version 10,000, and one of 10,000,000 parameters that
comes from peers which work meanwhile. Coordinator and workers are processes of their own."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import json
import logging
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from coordinator import host, update
from coordinator.broker import open_broker
from coordinator.log import UpdateRow
from coordinator.pool.events import CloseBatch, Contribution, SessionId
from coordinator.server import Server
from protocol import replay, snapshot, topics
from protocol import spec as run_spec
from protocol.address import parse_address
from protocol.envelope import Wrapping, peek_signed, wrapping_of
from protocol.identity import Identity, fingerprint, new_session, run_id
from protocol.link import Link
from protocol.messages import Bye
from protocol.spec import RunSpec
from protocol.state import State
from worker.daemon import Daemon
from worker.settings import Settings
from worker.view import View

NAME = "joiner"
PAGE = 1000
"""Updates written at once."""
ARCHIVED = 46
"""Version at which the log of the large run begins: who lacks it needs a snapshot."""
MOMENT = 0.01
"""Seconds between two looks at how late the event loop is."""


def spec_of(hidden: list[int], population: int, most_steps: int) -> RunSpec:
    """CartPole with Adam and these hidden layers."""
    return run_spec.parse(
        {
            "name": NAME,
            "seed": 7,
            "environment": {
                "id": "CartPole-v1",
                "observation": {"kind": "box", "shape": [4]},
                "action": {"kind": "discrete", "n": 2},
                "max_steps": most_steps,
            },
            "policy": {"hidden": hidden},
            "strategy": {"population": population},
            "optimizer": {"kind": "adam"},
            "centre": {"episodes": 1, "screening": 1, "evaluate_every": 1000},
        }
    )


# The run that is joined.


def make_run(spec: RunSpec, where: Path, first: State, versions: int) -> None:
    """A run directory whose log leads from `first` so many versions on, as coordinators do."""
    rules = replay.arithmetic(spec)
    run = host.prepare(spec, where)
    course = host.load(run, print)
    leader = host.enter(run, course, 1)
    if first.version:
        frozen = run.directory.snapshots.freeze(first)
        course.log.begin_at(first.version, frozen.digest, "before")
    random = np.random.default_rng(3)
    somebody = SessionId("a" * 16, "b" * 6)
    state, rows, began = first, [], time.perf_counter()
    for _ in range(versions):
        batch = Contribution(
            somebody,
            state.version,
            state.version * spec.directions,
            random.normal(20.0, 5.0, (spec.directions, 2)),
            np.full((spec.directions, 2), 20),
            b"",
        )
        closed = CloseBatch(state.version, (batch,), ())
        made, payload = update.make_signed(spec, rules, leader, state, closed)
        row = UpdateRow(
            state.version, payload, time.time(), made.members, 0, float(state.version), 1
        )
        rows.append(row)
        state = made.after
        if state.version % update.SNAPSHOT_EVERY == 0:
            run.directory.snapshots.freeze(state)
            for old in run.directory.snapshots.versions()[:-3]:
                run.directory.snapshots.remove(old)
        if len(rows) == PAGE or state.version == first.version + versions:
            course.log.extend(rows)
            rows = []
    size = course.log.size(course.log.base, course.log.version)
    course.log.close()
    run.directory.close()
    print(
        f"made {versions:,} updates of {spec.size:,} parameters up to version {state.version:,} "
        f"in {time.perf_counter() - began:.1f} s: {size:,} bytes, a snapshot has "
        f"{snapshot.state_bytes(rules):,}",
        flush=True,
    )


# A process each.


def say(**fields: Any) -> None:
    """A line for the process that watches."""
    try:
        print(json.dumps({"at": time.monotonic(), **fields}), flush=True)
    except BrokenPipeError:
        os._exit(1)  # nobody watches any more


class Lateness:
    """How long the event loop was held, at most; CPU seconds of it are our own doing."""

    def __init__(self) -> None:
        self.worst = 0.0
        self.worst_own = 0.0

    async def watch(self) -> None:
        """Look every moment."""
        while True:
            due, own = time.monotonic() + MOMENT, time.thread_time()
            await asyncio.sleep(MOMENT)
            self.worst = max(self.worst, time.monotonic() - due)
            self.worst_own = max(self.worst_own, time.thread_time() - own)

    def figures(self) -> dict[str, float]:
        """What was worst, in seconds."""
        return {"held": round(self.worst, 3), "held_by_us": round(self.worst_own, 3)}


@contextlib.contextmanager
def watching(lateness: Lateness) -> Iterator[None]:
    """Watch meanwhile."""
    task = asyncio.ensure_future(lateness.watch())
    try:
        yield
    finally:
        task.cancel()


async def coordinate(where: Path, url: str) -> None:
    """Lead the run there until we are told to stop, and tell what we sent."""
    run = host.resume(where)
    course = host.load(run, lambda line: None)
    leader = host.enter(run, course, course.epoch + 1)
    server = Server(
        run.spec, leader, run.directory, course.log, course.recovered, parse_address(url)
    )
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, server.pause, "the end")
    lateness = Lateness()

    async def tell() -> None:
        while True:
            wire = server._link.wire
            say(
                sent=wire.total("sent"),
                chunks=wire.snapshot().get("sent publish snap", 0),
                version=server.progress.version,
                **lateness.figures(),
            )
            await asyncio.sleep(0.25)

    telling = asyncio.ensure_future(tell())
    with watching(lateness):
        await server.run()
    telling.cancel()
    course.log.close()


class Telling:
    """A console that tells the process that watches."""

    def __init__(self) -> None:
        self.daemon: Daemon | None = None
        self.evaluated = False

    def say(self, text: str, warning: bool = False) -> None:
        """A line of the worker's."""
        say(line=text)

    def show(self, view: View, now: float) -> None:
        """The first evaluation is what counts."""
        if view.running and not self.evaluated:
            self.evaluated = True
            assert self.daemon is not None
            say(evaluating=view.version, received=received(self.daemon))

    def close(self) -> None:
        """Nothing to do."""


def received(daemon: Daemon) -> int:
    """Bytes that came over its connections."""
    return sum(member.link.wire.total("received") for member in daemon.members.values())


async def work(url: str) -> None:
    """Take part until we are told to stop."""
    console, lateness = Telling(), Lateness()
    daemon = console.daemon = Daemon(Settings(parse_address(url)), Identity.generate(), console)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, daemon.terminate)

    async def tell() -> None:
        while daemon.session is None or daemon.session.handshake.epoch is None:
            await asyncio.sleep(0.002)
        say(epoch=True, peer=daemon.session.handshake.peer)
        while True:
            holdings = [holding.version for holding in daemon.session.serving.holdings]
            replica = daemon.session.replica
            version = replica.version if replica is not None else 0
            say(holds=holdings, version=version, wire=received(daemon), **lateness.figures())
            await asyncio.sleep(0.25)

    telling = asyncio.ensure_future(tell())
    with watching(lateness):
        await daemon.run()
    telling.cancel()


# Who watches.


class Watched:
    """A process of ours, with all that it told."""

    def __init__(self, *arguments: str) -> None:
        self.told: list[dict[str, Any]] = []
        self._arguments = arguments
        self._news = asyncio.Event()
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Begin to listen to it."""
        self.began = time.monotonic()
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, __file__, *self._arguments, stdout=asyncio.subprocess.PIPE
        )
        self._listening = asyncio.ensure_future(self._listen())

    async def _listen(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            with contextlib.suppress(ValueError):
                self.told.append(json.loads(line))
                self._news.set()
        self._news.set()

    async def tells(self, limit: float, **wanted: Any) -> dict[str, Any]:
        """The first telling with these keys for which the functions say yes."""
        async with asyncio.timeout(limit):
            while True:
                for told in self.told:
                    if all(key in told and true(told[key]) for key, true in wanted.items()):
                        return told
                if self._listening.done():
                    raise SystemExit(f"{self._arguments} ended: {self.told[-3:]}")
                self._news.clear()
                await self._news.wait()

    def last(self, key: str) -> Any:
        """The last that it told of this."""
        return next(told[key] for told in reversed(self.told) if key in told)

    async def stop(self) -> None:
        """Let it leave."""
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
            try:
                await asyncio.wait_for(self._process.wait(), 20.0)
            except TimeoutError:
                self._process.kill()
                await self._process.wait()


class Heartbeats:
    """How long each session was silent at most, and who was lost, as a stranger hears it."""

    def __init__(self, url: str, run: str) -> None:
        self.silence: dict[str, float] = {}
        self.lost: list[str] = []
        self._heard: dict[str, float] = {}
        kinds = ("req", "results", "status")
        self._run = run
        self._link = Link(
            parse_address(url),
            client_id=f"bench-{new_session()}",
            on_message=self._hear,
            subscriptions={f"{topics.PREFIX}/{run}/{kind}/+/+": 0 for kind in kinds},
        )

    def _hear(self, topic: str, payload: bytes) -> None:
        parsed = topics.parse(topic)
        assert parsed is not None
        peer = topics.peer(parsed.worker or "", parsed.session or "")
        if parsed.kind == "status" and wrapping_of(payload) is Wrapping.SIGNED:
            claimed = peek_signed(payload)
            if isinstance(claimed, Bye) and claimed.reason == "lost":
                self.lost.append(peer)
            return
        now = time.monotonic()
        if peer in self._heard:
            self.silence[peer] = max(self.silence.get(peer, 0.0), now - self._heard[peer])
        self._heard[peer] = now

    def begin_anew(self) -> None:
        """What was so far does not count."""
        self.silence.clear()

    async def listen(self) -> None:
        """Until cancelled."""
        await self._link.run()


@contextlib.asynccontextmanager
async def led(directory: Path) -> AsyncIterator[tuple[Watched, str, str]]:
    """A coordinator of the run there, on a broker: its process, the join URL, the run."""
    async with open_broker("auto", log_directory=directory) as broker:
        where = directory / "run"
        coordinator = Watched("coordinate", str(where), broker.url)
        await coordinator.start()
        public_key = Identity.load(where / "run.key").public_key
        run = run_id(NAME, public_key)
        try:
            await coordinator.tells(120.0, sent=lambda sent: sent > 0)
            yield coordinator, f"{broker.url}/{run}#{fingerprint(public_key)}", run
        finally:
            await coordinator.stop()


def joined(joiner: Watched, snapshot_bytes: int) -> dict[str, Any]:
    """How the joiner fared."""
    first = next(told for told in joiner.told if "evaluating" in told)
    epoch = next(told for told in joiner.told if "epoch" in told)
    ready = next(told for told in joiner.told if told.get("line", "").startswith("evaluation is"))
    return {
        "seconds_from_process_start": round(first["at"] - joiner.began, 2),
        "seconds_from_first_epoch": round(first["at"] - epoch["at"], 2),
        "seconds_from_ready_to_evaluate": round(first["at"] - ready["at"], 2),
        "received_bytes": first["received"],
        "received_beyond_snapshot": first["received"] - snapshot_bytes,
        "version": first["evaluating"],
    }


def seconds_of_transfer(joiner: Watched, snapshot_bytes: int) -> float:
    """How long the snapshot was on its way, without its ends."""
    moments = [
        told["at"]
        for told in joiner.told
        if 0.02 * snapshot_bytes < told.get("wire", 0) < 0.98 * snapshot_bytes
    ]
    return round(moments[-1] - moments[0], 1) if moments else 0.0


async def small(options: argparse.Namespace) -> None:
    """A joiner at version 10,000 with 4,675 parameters."""
    spec = spec_of([13, 288], 128, 200)
    assert spec.size == 4675, spec.size
    size = snapshot.state_bytes(replay.arithmetic(spec))
    with tempfile.TemporaryDirectory() as directory:
        first = replay.initial_state(spec)
        make_run(spec, Path(directory) / "run", first, options.version)
        async with led(Path(directory)) as (coordinator, url, _):
            workers = [Watched("work", url) for _ in range(options.workers)]
            for worker in workers:
                await worker.start()
                await worker.tells(60.0, evaluating=lambda _: True)
            if workers:
                await workers[0].tells(60.0, holds=bool)
            for _ in range(options.joiners):
                joiner = Watched("work", url)
                sent = coordinator.last("chunks")
                await joiner.start()
                await joiner.tells(60.0, evaluating=lambda _: True)
                chunks = coordinator.last("chunks") - sent
                print(json.dumps({**joined(joiner, size), "chunk_bytes_of_coordinator": chunks}))
                await joiner.stop()
            for worker in workers:
                await worker.stop()


async def large(options: argparse.Namespace) -> None:
    """A joiner at a network of 10,000,000 parameters with Adam, while others work."""
    width = options.width
    spec = spec_of([width, width], 2, 20)
    rules = replay.arithmetic(spec)
    size = snapshot.state_bytes(rules)
    random = np.random.default_rng(5)
    blank = replay.initial_state(spec)
    first = dataclasses.replace(
        blank,
        version=ARCHIVED,
        slots={
            name: np.abs(random.normal(0.0, 1e-3, slot.shape)) + 1e-6 if slot.size > 1 else slot
            for name, slot in blank.slots.items()
        },
        episodes=1000,
        steps=20_000,
    )
    with tempfile.TemporaryDirectory() as directory:
        make_run(spec, Path(directory) / "run", first, spec.versions_kept + 1)
        async with led(Path(directory)) as (coordinator, url, run):
            heartbeats = Heartbeats(url, run)
            listening = asyncio.ensure_future(heartbeats.listen())
            workers = [Watched("work", url) for _ in range(options.workers)]
            await asyncio.gather(*(worker.start() for worker in workers))
            for worker in workers:
                await worker.tells(300.0, evaluating=lambda _: True)
                print(json.dumps({"worker": joined(worker, size)}), flush=True)
            for worker in workers:
                await worker.tells(600.0, holds=lambda versions: max(versions, default=0) >= 64)
            print(json.dumps({"frozen": [worker.last("holds") for worker in workers]}), flush=True)
            heartbeats.begin_anew()
            before = coordinator.told[-1]
            joiner = Watched("work", url)
            await joiner.start()
            await joiner.tells(600.0, evaluating=lambda _: True)
            await asyncio.sleep(1.0)
            after = coordinator.told[-1]
            figures = {
                **joined(joiner, size),
                "parameters": spec.size,
                "updates_meanwhile": after["version"] - before["version"],
                "seconds_of_transfer": seconds_of_transfer(joiner, size),
                "coordinator_sent": after["sent"] - before["sent"],
                "of_that_chunks": after["chunks"] - before["chunks"],
                "coordinator": {key: after[key] for key in ("held", "held_by_us")},
                "joiner": {key: joiner.last(key) for key in ("held", "held_by_us")},
                "workers": [
                    {key: worker.last(key) for key in ("held", "held_by_us")} for worker in workers
                ],
                "longest_silence": {
                    peer[:6]: round(seconds, 2) for peer, seconds in heartbeats.silence.items()
                },
                "lost": heartbeats.lost,
            }
            print(json.dumps(figures), flush=True)
            listening.cancel()
            for worker in (joiner, *workers):
                await worker.stop()


def main() -> None:
    """The two measurements; `coordinate` and `work` are the processes that they start."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("small")
    command.add_argument("--version", type=int, default=10_000)
    command.add_argument("--workers", type=int, default=1)
    command.add_argument("--joiners", type=int, default=3)
    command = commands.add_parser("large")
    command.add_argument("--width", type=int, default=3158)
    command.add_argument("--workers", type=int, default=2)
    command = commands.add_parser("coordinate")
    command.add_argument("where", type=Path)
    command.add_argument("url")
    command = commands.add_parser("work")
    command.add_argument("url")
    options = parser.parse_args()
    if options.command == "coordinate":
        asyncio.run(coordinate(options.where, options.url))
    elif options.command == "work":
        asyncio.run(work(options.url))
    elif options.command == "small":
        asyncio.run(small(options))
    else:
        asyncio.run(large(options))


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    main()
