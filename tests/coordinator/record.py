"""All that a pool said, for tests that look at single commands."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from coordinator.pool.events import (
    CentreJudged,
    CloseBatch,
    Command,
    EndRun,
    Event,
    Happened,
    SendAcknowledge,
    SendTask,
)
from scripts.simulation.counting import counted
from scripts.simulation.shell import Name


@dataclass
class Record:
    """What the pool did, and when."""

    tasks: list[tuple[float, SendTask]] = field(default_factory=list)
    acknowledged: list[tuple[float, SendAcknowledge]] = field(default_factory=list)
    closed: list[tuple[float, CloseBatch]] = field(default_factory=list)
    judged: list[CentreJudged] = field(default_factory=list)
    happened: list[tuple[float, Happened]] = field(default_factory=list)
    ended: EndRun | None = None

    def observe(self, now: float, event: Event, commands: list[Command]) -> None:
        """Note what the pool says."""
        for command in commands:
            match command:
                case SendTask():
                    self.tasks.append((now, command))
                case SendAcknowledge():
                    self.acknowledged.append((now, command))
                case CloseBatch():
                    self.closed.append((now, command))
                case CentreJudged():
                    self.judged.append(command)
                case Happened():
                    self.happened.append((now, command))
                case EndRun():
                    self.ended = command

    def died(self, durable: set[Name]) -> None:
        """Nothing of the record is lost with the coordinator."""

    def counted(self, index: int = -1) -> NDArray[np.int64]:
        """The directions that counted in an update, in the order of its contributions."""
        return counted(self.closed[index][1])
