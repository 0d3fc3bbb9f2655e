"""What stands around the pool in virtual time: a log that commits in groups, updates that take
time, and a coordinator that may be slow, or die and come back with what is durable."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from coordinator.pool import Pool
from coordinator.pool.events import (
    CentreJudged,
    CloseBatch,
    Command,
    EndRun,
    Event,
    KeepResult,
    Kept,
    SessionId,
    Tick,
    Updated,
)
from coordinator.pool.leases import first_task
from protocol.messages import ResultName
from protocol.spec import RunSpec
from scripts.simulation.agenda import Agenda
from scripts.simulation.counting import used

Name = tuple[SessionId, ResultName]


@dataclass(frozen=True)
class Timing:
    """How long a coordinator takes for what it does, in seconds."""

    tick: float = 0.1
    """between two looks at the clock"""
    update: float = 0.01
    """from a closed batch to the durable update, where the learner does not say"""
    keep: float = 0.1
    """between an accepted result and the commit of its group"""
    service: float = 0.0
    """for each event from a worker; meanwhile the others wait"""


class Observer(Protocol):
    """Sees all that a pool is told and says."""

    def observe(self, now: float, event: Event, commands: list[Command]) -> None:
        """The pool was told of this event, and this is what it wants done."""
        ...

    def died(self, durable: set[Name]) -> None:
        """The coordinator died; these results are on its disk, and all durable updates."""
        ...


@dataclass
class Disk:
    """What survives the coordinator."""

    version: int = 0
    episodes: int = 0
    results: dict[Name, KeepResult] = field(default_factory=dict)
    judged: set[int] = field(default_factory=set)
    used: deque[list[tuple[int, int]]] = field(default_factory=deque)
    """of the last updates, one for each version that a return may be old"""


class Shell:
    """Tells the pool what happens, one event after the other, and does what it says."""

    def __init__(
        self,
        run: RunSpec,
        agenda: Agenda,
        deliver: Callable[[Command], None],
        timing: Timing,
        learn: Callable[[CloseBatch], float] | None = None,
        pool: Pool | None = None,
    ) -> None:
        """`deliver` takes the commands that are for workers; `learn` makes the update of a closed
        batch and says how many seconds that takes."""
        self.pool: Pool = pool or Pool(run, 0, agenda.now)
        self.alive = True
        self.ended: EndRun | None = None
        self.epoch = 1
        self.events = 0
        self.spent = 0.0
        """seconds of this thread that the pool took"""
        self.slowest = 0.0
        """seconds of the slowest event"""
        self.observers: list[Observer] = []
        self.backlog = 0
        """events that wait for a slow coordinator"""
        self._run = run
        self._agenda = agenda
        self._deliver = deliver
        self._timing = timing
        self._learn = learn or (lambda closed: timing.update)
        self._disk = Disk(used=deque(maxlen=run.pool.max_staleness))
        self._unkept: list[KeepResult] = []
        self._began = agenda.now
        self._elapsed = 0.0
        self._clear = 0.0
        self._while_alive(agenda.now + timing.tick, self._tick)

    def receive(self, event: Event) -> None:
        """An event has come in; a slow coordinator looks at it when it has done with the others."""
        if not self.alive or self.ended is not None:
            return
        if not self._timing.service:
            self.handle(event)
            return
        self._clear = max(self._clear, self._agenda.now) + self._timing.service
        self.backlog += 1
        self._while_alive(self._clear, lambda: self._serve(event))

    def _serve(self, event: Event) -> None:
        self.backlog -= 1
        self.handle(event)

    def handle(self, event: Event) -> list[Command]:
        """Tell the pool now, and do what it says."""
        now = self._agenda.now
        began = time.thread_time()
        commands = self.pool.handle(event, now)
        took = time.thread_time() - began
        self.spent += took
        self.slowest = max(self.slowest, took)
        self.events += 1
        for observer in self.observers:
            observer.observe(now, event, commands)
        for command in commands:
            self._obey(command)
        return commands

    def die(self, downtime: float, back: Callable[[], None]) -> None:
        """Lose all that is not durable; go on so many seconds later, and say so."""
        self.alive = False
        self.epoch += 1
        self.backlog = 0
        self._unkept = []
        self._elapsed += self._agenda.now - self._began
        for observer in self.observers:
            observer.died(set(self._disk.results))
        self._agenda.after(downtime, lambda: self._resume(back))

    def _resume(self, back: Callable[[], None]) -> None:
        disk, every = self._disk, self._run.centre.evaluate_every
        due = range(max(0, disk.version - self._run.versions_kept + 1), disk.version + 1)
        self.alive = True
        self._began = self._clear = self._agenda.now
        self.pool = Pool(
            self._run,
            disk.version,
            self._agenda.now,
            episodes=disk.episodes,
            first_task=first_task(self.epoch),
            unjudged=[v for v in due if every and v % every == 0 and v not in disk.judged],
            elapsed=self._elapsed,
            used=[part for update in disk.used for part in update],
        )
        for keep in list(disk.results.values()):
            self.handle(keep.arrived)
        self._while_alive(self._agenda.now + self._timing.tick, self._tick)
        back()

    def _while_alive(self, time: float, action: Callable[[], None]) -> None:
        """Do something at a time, unless this coordinator has died."""
        epoch = self.epoch
        self._agenda.at(time, lambda: action() if epoch == self.epoch else None)

    def _tick(self) -> None:
        if self.ended is None:
            self.handle(Tick())
            self._while_alive(self._agenda.now + self._timing.tick, self._tick)

    def _obey(self, command: Command) -> None:
        match command:
            case CloseBatch():
                episodes = self.pool.episodes
                seconds = self._learn(command)
                self._while_alive(
                    self._agenda.now + seconds, lambda: self._updated(command, episodes)
                )
            case KeepResult():
                if not self._unkept:
                    self._while_alive(self._agenda.now + self._timing.keep, self._keep)
                self._unkept.append(command)
            case CentreJudged():
                self._disk.judged.add(command.version)
            case EndRun():
                self.ended = command
            case _:
                self._deliver(command)

    def _keep(self) -> None:
        """What was accepted in the last moments is durable, all at once."""
        group, self._unkept = self._unkept, []
        disk = self._disk
        names = []
        for keep in group:
            name = (keep.arrived.session, keep.arrived.name)
            names.append(name)
            if keep.arrived.kind == "centre" or keep.until >= disk.version:
                disk.results[name] = keep
        kept = Kept(tuple(names))  # the pool answers for it even when the run has ended
        if self.ended is None:
            self.receive(kept)
        else:
            self.handle(kept)

    def _updated(self, closed: CloseBatch, episodes: int) -> None:
        disk = self._disk
        disk.version, disk.episodes = closed.version + 1, episodes
        if disk.used.maxlen:
            disk.used.append(list(used(closed)))
        disk.results = {
            name: keep
            for name, keep in disk.results.items()
            if (
                keep.until >= disk.version
                if keep.arrived.kind == "members"
                else keep.arrived.version not in disk.judged
            )
        }
        self.receive(Updated(disk.version))
