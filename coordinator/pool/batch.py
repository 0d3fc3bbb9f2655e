"""A batch: the fixed directions whose returns make one update, and what has come of them."""

from __future__ import annotations

from coordinator.pool.events import Contribution
from coordinator.pool.work import Work


class Batch:
    """Directions `[first, first + count)`: each counts at most once."""

    def __init__(self, index: int, first: int, count: int) -> None:
        self.index = index
        self.work = Work(first, first + count)
        self.contributions: list[Contribution] = []
        self.members = 0
        """members in them that count"""
        self.steps = 0
        """environment steps of those"""
        self.stale = 0
        """those of them that were evaluated before the batch was the open one"""
        self.dropped: list[int] = []

    @property
    def begun(self) -> int:
        """Directions that are not free: leased or settled."""
        return self.work.size - self.work.unleased.total

    @property
    def settled(self) -> int:
        """Directions accepted or dropped."""
        return self.work.size - self.work.missing

    def drop(self, direction: int) -> None:
        """Give an open direction up: its episode always fails."""
        self.work.drop(direction)
        self.dropped.append(direction)
