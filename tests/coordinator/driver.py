"""A pool whose clock is in a test's hand, and what it has said so far."""

from __future__ import annotations

import dataclasses

from coordinator.pool import Pool
from coordinator.pool.events import (
    Arrived,
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
)
from protocol.messages import Part, ResultName
from protocol.spec import RunSpec
from tests.coordinator.simulation import Environment, result

A, B, C = (SessionId(worker, "s") for worker in "abc")


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
    cut = dataclasses.replace(task, first=first, count=count)
    arrived = result(cut, environment, session, failed)
    if count == task.count:
        return arrived
    before = first - task.first
    return dataclasses.replace(arrived, part=Part(before, task.count - before - count))
