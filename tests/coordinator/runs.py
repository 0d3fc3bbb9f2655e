"""A real server in this process, a real broker, and a spec that needs no environment."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from coordinator import host, update
from coordinator.broker import open_broker
from coordinator.host import Run
from coordinator.pool.events import CloseBatch, Contribution, SessionId
from coordinator.progress import Outcome
from coordinator.server import Server
from protocol import replay
from protocol import spec as run_spec
from protocol.address import parse_address
from protocol.identity import Identity
from protocol.messages import Task, result_arrays
from protocol.spec import RunSpec
from protocol.state import State
from tests.coordinator.scripted import DEADLINE, DIMS, ScriptedWorker, evaluate

BASE: dict[str, Any] = {
    "name": "test",
    "seed": 5,
    "environment": {
        "id": "Formula-v0",
        "observation": {"kind": "box", "shape": [DIMS]},
        "action": {"kind": "discrete", "n": 2},
    },
    "policy": {"kind": "linear", "initialisation": "zero"},
    "strategy": {"population": 32, "sigma": 0.1},
    "optimizer": {"kind": "normalised", "learning_rate": 0.3, "momentum": 0.0},
    "centre": {"episodes": 4, "screening": 2},
    "stop": {"updates": 5},
}


def spec_of(**changes: Any) -> RunSpec:
    """BASE with these values laid over it, table by table."""
    return run_spec.parse(run_spec.merge(BASE, changes))


class Led:
    """A run while it is led, new or resumed."""

    def __init__(self, run: Run, url: str, epoch: int | None = None) -> None:
        self.identity = run.identity
        self.run_id = run.id
        self.directory = run.directory
        self.lines: list[str] = []
        self.metrics: list[Mapping[str, Any]] = []
        self.ready = asyncio.Event()
        self.url = url
        self.course = host.load(run, self.lines.append)
        self.leader = host.enter(run, self.course, epoch or self.course.epoch + 1)
        self.server = Server(
            run.spec,
            self.leader,
            self.directory,
            self.course.log,
            self.course.recovered,
            parse_address(url),
            priority=run.priority,
            on_event=self.lines.append,
            on_ready=self.ready.set,
            on_metrics=self.metrics.append,
        )
        self.running: asyncio.Task[Outcome] = asyncio.create_task(self.server.run())

    def worker(self, **options: Any) -> ScriptedWorker:
        """A worker of this run, to be entered."""
        return ScriptedWorker(self.url, self.run_id, **options)

    async def end(self) -> None:
        """Stop leading as a crash would, if it is led still."""
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)
        self.course.log.close()
        self.directory.close()

    async def outcome(self) -> Outcome:
        """How the run ends, in good time."""
        async with asyncio.timeout(DEADLINE):
            return await asyncio.shield(self.running)


@contextlib.asynccontextmanager
async def broker(directory: Path, kind: str = "embedded") -> AsyncIterator[str]:
    """The URL of a broker; that in this process starts and stops in a millisecond."""
    async with open_broker(kind, log_directory=directory) as running:
        yield running.url


@contextlib.asynccontextmanager
async def led(
    spec: RunSpec,
    directory: Path,
    url: str | None = None,
    identity: Identity | None = None,
    priority: float = 1.0,
) -> AsyncIterator[Led]:
    """Lead a new run, over a broker of its own where no `url` is given."""
    async with contextlib.AsyncExitStack() as stack:
        if url is None:
            url = await stack.enter_async_context(broker(directory / "broker"))
        new = replace(begun(spec, directory / "run", identity), priority=priority)
        run = Led(new, url)
        try:
            yield run
        finally:
            await run.end()


@contextlib.asynccontextmanager
async def resumed(directory: Path, url: str, epoch: int | None = None) -> AsyncIterator[Led]:
    """Go on with the run that `led` led there."""
    run = Led(host.resume(directory / "run"), url, epoch)
    try:
        yield run
    finally:
        await run.end()


def begun(spec: RunSpec, directory: Path, identity: Identity | None = None) -> Run:
    """A new run, ready to be led."""
    if identity is None:
        return host.prepare(spec, directory)
    key = directory.parent / "identity.key"
    directory.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        identity.save(key)
    return host.prepare(spec, directory, key)


async def play(spec: RunSpec, directory: Path, workers: int = 1, **options: Any) -> Outcome:
    """A whole run with so many workers."""
    async with led(spec, directory) as run, contextlib.AsyncExitStack() as stack:
        for _ in range(workers):
            await stack.enter_async_context(run.worker(**options))
        return await run.outcome()


def contribution(spec: RunSpec, state: State, first: int, count: int) -> Contribution:
    """What an honest worker returns for these directions at this state."""
    task = Task(1, "members", state.version, b"d" * 16, first, count, 1, b"t" * 16)
    result = evaluate(spec, state, task)
    returns, lengths = result_arrays(result, spec.members_per_direction)
    somebody = SessionId("a" * 16, "b" * 6)
    return Contribution(somebody, state.version, first, returns, lengths, result.observed)


def states_of(spec: RunSpec, updates: int) -> list[State]:
    """Versions 0 .. `updates` of a synchronous run, by definition: no wire, no pool, no server."""
    states = [replay.initial_state(spec)]
    rules = replay.arithmetic(spec)
    for version in range(updates):
        batch = contribution(spec, states[-1], version * spec.directions, spec.directions)
        closed = CloseBatch(version, (batch,), ())
        states.append(update.make(spec, rules, states[-1], 1, closed).after)
    return states
