"""A batch: the fixed directions whose returns make one update, and what has come of them."""

from __future__ import annotations

import math

from coordinator.pool.events import Contribution
from coordinator.pool.work import Work


class Batch:
    """Directions `[index * size, (index + 1) * size)`: each counts at most once."""

    def __init__(self, index: int, size: int) -> None:
        self.index = index
        self.work = Work(index * size, (index + 1) * size)
        self.contributions: list[Contribution] = []
        self.dropped: list[int] = []

    @property
    def settled(self) -> int:
        """Directions accepted or dropped."""
        return self.work.size - self.work.missing

    def room_ahead(self, share: float) -> int:
        """How many more directions may be leased while this batch's own version is not there."""
        return math.floor(share * self.work.size) - (self.work.size - self.work.unleased.total)

    def drop(self, direction: int) -> None:
        """Give an open direction up: its episode always fails."""
        self.work.drop(direction)
        self.dropped.append(direction)

    def has_quorum(self, quorum: float) -> bool:
        """Whether this share of the batch is settled."""
        return self.settled >= math.ceil(quorum * self.work.size - 1e-9)
