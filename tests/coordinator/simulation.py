"""The simulator's parts as tests of the pool use them: a world to look into, results to hand in."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from coordinator.pool import Pool
from coordinator.pool.events import Arrived, Command, Event, SendTask, SessionId
from protocol.spec import RunSpec
from scripts.simulation.counting import counted
from scripts.simulation.environments import Formula as Environment
from scripts.simulation.environments import spec
from scripts.simulation.shell import Timing
from scripts.simulation.worker import Traits, Worker
from scripts.simulation.world import World
from tests.coordinator.record import Record

__all__ = ["Environment", "Record", "Simulation", "Worker", "counted", "result", "spec"]


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
    returns, lengths = returns.copy(), lengths.copy()
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


class Simulation(World):
    """A world whose workers come and go when a test says so, at once, and whose record is kept."""

    def __init__(
        self,
        run: RunSpec,
        environment: Environment | None = None,
        update_seconds: float = 0.01,
        now: float = 1000.0,
        pool: Pool | None = None,
    ) -> None:
        super().__init__(run, environment, Timing(update=update_seconds), pool=pool, now=now)
        self.record = Record()
        self.shell.observers.append(self.record)

    @property
    def now(self) -> float:
        return self.agenda.now

    @now.setter
    def now(self, now: float) -> None:
        self.agenda.now = now

    @property
    def pool(self) -> Pool:
        return self.shell.pool

    def send(self, event: Event) -> list[Command]:
        """Tell the pool now, and do what it says."""
        return self.shell.handle(event)

    def run(self, until: Callable[[], bool], seconds: float) -> bool:
        """Go on until the condition holds; False where so many seconds were not enough."""
        return self.agenda.run(until, seconds)

    def run_for(self, seconds: float) -> None:
        """Go on for so many seconds."""
        self.agenda.run(lambda: False, seconds)

    def join(self, name: str, session: str = "s", **traits: object) -> Worker:
        """A worker joins now."""
        return self.enter(SessionId(name, session), Traits(**traits))  # type: ignore[arg-type]
