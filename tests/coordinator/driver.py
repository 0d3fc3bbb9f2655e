"""A pool whose clock is in a test's hand, and what it has said so far."""

from __future__ import annotations

import dataclasses

import msgspec

from coordinator.pool import Pool
from coordinator.pool.events import (
    Arrived,
    CloseBatch,
    Command,
    Event,
    Heard,
    Joined,
    KeepResult,
    Kept,
    SendAcknowledge,
    SendTask,
    SessionId,
    Tick,
    Updated,
)
from protocol.messages import Part, ResultName
from protocol.spec import RunSpec
from tests.coordinator.simulation import Environment, result, spec

A, B, C = (SessionId(worker, "s") for worker in "abc")
CENTRE = {"evaluate_every": 1, "episodes": 20, "screening": 5}
"""Evaluations of the centre that a test can finish."""


class Driver:
    """A pool, its clock in the test's hand, and what it has said so far."""

    def __init__(self, run: RunSpec, now: float = 100.0, version: int = 0) -> None:
        self.pool = Pool(run, version, now)
        self.now = now
        self.said: list[Command] = []
        self.keeps = True
        """accepted results are durable at once"""

    def send(self, event: Event, after: float = 0.0) -> list[Command]:
        self.now += after
        commands = self.pool.handle(event, self.now)
        if self.keeps and (keep := of(commands, KeepResult)):
            kept = tuple((command.arrived.session, command.arrived.name) for command in keep)
            commands += self.pool.handle(Kept(kept), self.now)
        self.said += commands
        return commands

    def join(self, id: SessionId, credit: int = 1, speed: float = 1000.0) -> list[SendTask]:
        return tasks(self.send(Joined(id, credit, speed)))

    def finish(self, task: SendTask, after: float = 1.0, **how: object) -> list[Command]:
        return self.send(result(task, **how), after)  # type: ignore[arg-type]

    def tick(self, seconds: float, step: float = 0.1) -> list[Command]:
        """Ticks for so long, everybody staying alive."""
        said = []
        for _ in range(round(seconds / step)):
            for id in list(self.pool.sessions):
                said += self.send(Heard(id))
            said += self.send(Tick(), step)
        return said

    def measured(self, id: SessionId, credit: int = 1) -> list[SendTask]:
        """A session joins and returns its first task; the tasks it holds then."""
        (task,) = self.join(id, credit)
        return [t for t in tasks(self.finish(task)) if t.session == id]


def tasks(commands: list[Command]) -> list[SendTask]:
    return [command for command in commands if isinstance(command, SendTask)]


def of(commands: list[Command], kind: type) -> list:
    return [command for command in commands if isinstance(command, kind)]


def answers(commands: list[Command]) -> list[tuple[tuple[ResultName, ...], str]]:
    return [(a.results, a.outcome) for a in of(commands, SendAcknowledge)]


def units(task: SendTask) -> set[int]:
    return set(range(task.first, task.first + task.count))


def piece(
    task: SendTask,
    first: int,
    count: int,
    failed: dict[int, str] | None = None,
    session: SessionId | None = None,
    environment: Environment | None = None,
) -> Arrived:
    """The result of those units of a task; a part, unless they are all."""
    cut = msgspec.structs.replace(task, first=first, count=count)
    arrived = result(cut, environment, session, failed)
    if count == task.count:
        return arrived
    before = first - task.first
    return dataclasses.replace(arrived, part=Part(before, task.count - before - count))


def finish_all(driver: Driver, updates: int = 1 << 30) -> None:
    """Everybody finishes what they hold, updates follow at once: until the run ends, or so many."""
    for _ in range(5000):
        if driver.pool.ended or not updates:
            return
        if driver.pool.updating:
            driver.send(Updated(driver.pool.version + 1))
            updates -= 1
        held = [t for t in tasks(driver.said) if t.task in driver.pool.leases]
        if held:
            driver.finish(held[0], after=0.05)
        else:
            driver.tick(0.1)
    raise AssertionError(f"the run does not end: {driver.pool.quiet_because()}")


def straggling(**pool: object) -> tuple[Driver, SendTask, list[Command]]:
    """A holds a task while B does all else of the batch; what was said when the batch closed."""
    driver = Driver(spec(32, pool={"quorum": 0.5, "max_staleness": 1, "stale_share": 0.0, **pool}))
    driver.measured(A)
    driver.join(B, credit=2)
    (lease,) = driver.pool.sessions[A].leases.values()
    late = next(t for t in tasks(driver.said) if t.task == lease.task)
    for _ in range(2000):
        said = driver.tick(0.1)
        for task in tasks(driver.said):
            if task.session == B and task.task in driver.pool.leases and task.first != late.first:
                said += driver.finish(task, after=0.01)
        if of(said, CloseBatch):
            return driver, late, said
    raise AssertionError("the batch did not close")
