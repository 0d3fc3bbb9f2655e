"""A pool in virtual time: simulated workers around the real state machine, and what came of it."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from coordinator.pool import Pool
from coordinator.pool.events import (
    Arrived,
    CentreJudged,
    CloseBatch,
    Command,
    EndRun,
    Event,
    Happened,
    Heard,
    Joined,
    KeepResult,
    Kept,
    Left,
    SendAcknowledge,
    SendTask,
    SessionId,
    Tick,
    Updated,
)
from protocol import spec as run_spec
from protocol.spec import RunSpec

CARTPOLE = {
    "id": "CartPole-v1",
    "observation": {"kind": "box", "shape": [4]},
    "action": {"kind": "discrete", "n": 2},
}


def spec(population: int = 32, **sections: dict[str, object]) -> RunSpec:
    """A run spec of that population; sections are laid over it."""
    base = {
        "name": "simulated",
        "environment": CARTPOLE,
        "strategy": {"population": population},
        "centre": {"evaluate_every": 0},
    }
    return run_spec.parse(run_spec.merge(base, sections))


def _mixed(version: int, unit: NDArray[np.int64], salt: int) -> NDArray[np.int64]:
    """Numbers in 0 .. 2**32 - 1 that look random and depend on nothing else."""
    x = (unit.astype(np.uint64) + np.uint64(version * 7919 + salt * 104729)) * np.uint64(0x9E3779B1)
    x ^= x >> np.uint64(15)
    x = x * np.uint64(0x85EBCA77) & np.uint64(0xFFFFFFFF)
    return ((x ^ (x >> np.uint64(13))) & np.uint64(0xFFFFFFFF)).astype(np.int64)


@dataclass
class Environment:
    """Episodes by formula: lengths in `shortest .. longest`, returns about `level(version)`."""

    shortest: int = 50
    longest: int = 150
    level: Callable[[int], float] = float

    def play(
        self, kind: str, version: int, first: int, count: int
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Returns and lengths: (count, 2) for members, (count,) for the centre."""
        units = np.arange(first, first + count)
        salts = (3,) if kind == "centre" else (1, 2)
        raw = np.stack([_mixed(version, units, salt) for salt in salts], axis=1)
        lengths = self.shortest + raw % (self.longest - self.shortest + 1)
        returns = self.level(version) + (raw % 1000) / 1000.0
        return (returns[:, 0], lengths[:, 0]) if kind == "centre" else (returns, lengths)


def result(
    task: SendTask,
    environment: Environment | None = None,
    session: SessionId | None = None,
    failed: dict[int, str] | None = None,
) -> Arrived:
    """The result of a task; `failed` units have NaN returns."""
    returns, lengths = (environment or Environment()).play(
        task.kind, task.version, task.first, task.count
    )
    named = failed or {}
    rows = [unit - task.first for unit in named if 0 <= unit - task.first < task.count]
    returns[rows] = np.nan
    lengths[rows] = 0
    return Arrived(
        session=session or task.session,
        task=task.task,
        kind=task.kind,
        version=task.version,
        first=task.first,
        returns=returns,
        lengths=lengths,
        failed=tuple((row + task.first, named[row + task.first]) for row in rows),
    )


@dataclass(eq=False)
class Worker:
    """One session that evaluates its tasks one after the other."""

    id: SessionId
    speed: float = 10_000.0
    """environment steps per second"""
    credit: int = 2
    latency: float = 0.005
    """seconds, each way"""
    stalls: bool = False
    """takes tasks, says it is alive, never returns one"""
    vanished: bool = False
    """says nothing any more, and nobody is told"""
    free_at: float = 0.0
    spoke_at: float = 0.0


@dataclass
class Record:
    """What the pool did."""

    tasks: list[tuple[float, SendTask]] = field(default_factory=list)
    acknowledged: list[tuple[float, SendAcknowledge]] = field(default_factory=list)
    closed: list[tuple[float, CloseBatch]] = field(default_factory=list)
    judged: list[CentreJudged] = field(default_factory=list)
    happened: list[tuple[float, Happened]] = field(default_factory=list)
    ended: EndRun | None = None

    def counted(self, index: int = -1) -> NDArray[np.int64]:
        """The directions that counted in an update, in the order of its contributions."""
        return counted(self.closed[index][1])


def counted(closed: CloseBatch) -> NDArray[np.int64]:
    """The directions that count in an update."""
    parts = [
        part.first + np.flatnonzero(~np.isnan(part.returns[:, 0])) for part in closed.contributions
    ]
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


class Simulation:
    """Events in virtual time until a condition holds."""

    def __init__(
        self,
        run: RunSpec,
        environment: Environment | None = None,
        tick: float = 0.1,
        update_seconds: float = 0.01,
        keep_seconds: float = 0.1,
        now: float = 1000.0,
        pool: Pool | None = None,
    ) -> None:
        self.now = now
        self.environment = environment or Environment()
        self.pool = pool or Pool(run, 0, now)
        self.workers: dict[SessionId, Worker] = {}
        self.record = Record()
        self.events = 0
        self.update_seconds = update_seconds
        self.keep_seconds = keep_seconds
        self._unkept: list[KeepResult] = []
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._tick = tick
        self.at(now + tick, self._beat)

    def at(self, time: float, action: Callable[[], None]) -> None:
        """Do something at a time."""
        heapq.heappush(self._agenda, (time, next(self._order), action))

    def run(self, until: Callable[[], bool], seconds: float) -> bool:
        """Go on until the condition holds; False where so many seconds were not enough."""
        end = self.now + seconds
        while not until():
            if not self._agenda or self._agenda[0][0] > end:
                self.now = end
                return until()
            self.now, _, action = heapq.heappop(self._agenda)
            action()
        return True

    def run_for(self, seconds: float) -> None:
        """Go on for so many seconds."""
        self.run(lambda: False, seconds)

    def send(self, event: Event) -> list[Command]:
        """Tell the pool now, and do what it says."""
        self.events += 1
        commands = self.pool.handle(event, self.now)
        for command in commands:
            self._obey(command)
        return commands

    def join(self, name: str, session: str = "s", declared: float = 0.0, **kind: object) -> Worker:
        """A worker joins now."""
        worker = Worker(SessionId(name, session), **kind)  # type: ignore[arg-type]
        self.workers[worker.id] = worker
        worker.free_at = worker.spoke_at = self.now
        self.send(Joined(worker.id, worker.credit, declared))
        return worker

    def leave(self, worker: Worker) -> None:
        """A worker says bye now."""
        worker.vanished = True
        self.send(Left(worker.id, "left"))

    def _beat(self) -> None:
        self.send(Tick())
        self.at(self.now + self._tick, self._beat)
        for worker in self.workers.values():
            if not worker.vanished and self.now - worker.spoke_at >= 10.0:
                worker.spoke_at = self.now
                self.send(Heard(worker.id))

    def _obey(self, command: Command) -> None:
        record = self.record
        match command:
            case SendTask():
                record.tasks.append((self.now, command))
                self._work(command)
            case SendAcknowledge():
                record.acknowledged.append((self.now, command))
            case CloseBatch():
                record.closed.append((self.now, command))
                updated = Updated(command.version + 1)
                self.at(self.now + self.update_seconds, lambda: self._updated(updated))
            case KeepResult():
                if not self._unkept:
                    self.at(self.now + self.keep_seconds, self._keep)
                self._unkept.append(command)
            case CentreJudged():
                record.judged.append(command)
            case Happened():
                record.happened.append((self.now, command))
            case EndRun():
                record.ended = command

    def _keep(self) -> None:
        """What was accepted in the last moments is durable, all at once."""
        group, self._unkept = self._unkept, []
        self.send(Kept(tuple((keep.arrived.session, keep.arrived.task) for keep in group)))

    def _updated(self, event: Updated) -> None:
        self.send(event)

    def _work(self, task: SendTask) -> None:
        worker = self.workers.get(task.session)
        if worker is None or worker.stalls or worker.vanished:
            return
        arrived = result(task, self.environment)
        begin = max(self.now + worker.latency, worker.free_at)
        worker.free_at = begin + int(arrived.lengths.sum()) / worker.speed
        self.at(worker.free_at + worker.latency, lambda: self._deliver(worker, arrived))

    def _deliver(self, worker: Worker, arrived: Arrived) -> None:
        if not worker.vanished:
            worker.spoke_at = self.now
            self.send(arrived)
