"""A batch: the fixed directions whose returns make one update, and what is known of each."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from coordinator.pool.events import Contribution
from coordinator.pool.ranges import Ranges


class Fate(IntEnum):
    """What became of a direction so far."""

    OPEN = 0
    ACCEPTED = 1
    DROPPED = 2


class Batch:
    """Directions `[index * size, (index + 1) * size)`: each counts at most once."""

    def __init__(self, index: int, size: int) -> None:
        self.index = index
        self.size = size
        self.first = index * size
        self.end = self.first + size
        self.unleased = Ranges(self.first, self.end)
        self.contributions: list[Contribution] = []
        self.dropped: list[int] = []
        self.accepted = 0
        self.tasks: set[int] = set()
        """leases of this batch that are out"""
        self.attempts: dict[int, int] = {}
        """first direction of a range -> leases of it that ran out"""
        self.failures: dict[int, frozenset[str]] = {}
        """direction -> workers on which its episode failed"""
        self.ahead = 0
        """directions leased before their version was there"""
        self._fates = np.zeros(size, dtype=np.uint8)

    @property
    def missing(self) -> int:
        """Directions whose fate is open."""
        return self.size - self.accepted - len(self.dropped)

    def open_count(self, first: int, end: int) -> int:
        """How many of `[first, end)` are open."""
        part = self._fates[first - self.first : end - self.first]
        return int(np.count_nonzero(part == Fate.OPEN))

    def accept(self, contribution: Contribution) -> None:
        """Take returns of open directions; rows of NaN stay open."""
        first = contribution.first
        self.unleased.remove(first, first + len(contribution.returns))
        valid = ~np.isnan(contribution.returns[:, 0])
        part = self._fates[first - self.first : first - self.first + len(valid)]
        part[valid] = Fate.ACCEPTED
        self.accepted += int(valid.sum())
        self.contributions.append(contribution)

    def fail(self, direction: int, worker: str, workers_alive: int) -> bool:
        """An episode of this direction failed on `worker`: does that confirm it, so it is dropped?

        The second failure confirms, on another worker where there is one.
        """
        seen = self.failures.get(direction)
        if seen is not None and (worker not in seen or workers_alive == 1):
            self._fates[direction - self.first] = Fate.DROPPED
            self.dropped.append(direction)
            self.unleased.remove(direction, direction + 1)
            return True
        self.failures[direction] = (seen or frozenset()) | {worker}
        return False

    def release(self, first: int, end: int, avoid: frozenset[str]) -> None:
        """Make the open directions of `[first, end)` available again."""
        self.unleased.remove(first, end)
        run_start: int | None = None
        for direction in range(first, end + 1):
            is_open = direction < end and self._fates[direction - self.first] == Fate.OPEN
            if is_open and run_start is None:
                run_start = direction
            elif not is_open and run_start is not None:
                self.unleased.add(run_start, direction, avoid)
                run_start = None
