"""For how many runs a worker has memory. Pure."""

from __future__ import annotations

from worker.permission import DAEMON, LIGHTER, Readings, memory_of_child
from worker.settings import Settings

USUAL = 250 << 20
"""Bytes that an evaluation process takes with its part of a run, while none was weighed."""
LEAST_FREE = 256 << 20
"""Bytes that stay free for others where the volunteer named no limit."""


class Room:
    """Holds what runs take against what they may.

    They may take what the volunteer said, or else half of what was free as the worker began.
    """

    def __init__(self, memory: int | None) -> None:
        """`memory`: bytes that the whole worker may take; None where that was not said."""
        self._memory = memory
        self._budget = memory
        self._free: int | None = None
        self._readings = Readings()

    def read(self, readings: Readings, free: int) -> None:
        """What the machine tells; `free`: bytes."""
        self._readings, self._free = readings, free
        if self._budget is None:
            self._budget = free // 2

    def of_child(self, settings: Settings, runs: int) -> int | None:
        """Bytes that each evaluation process of so many runs may take; None for a fair part of what
        is free."""
        each = settings.memory_limit
        if self._memory is None:
            return each
        most = memory_of_child(self._memory, self._readings, settings.children * max(1, runs))
        return min(each or most, most)

    def has_for_more(self, children: int, runs: int) -> bool:
        """Whether one run more may take part beside so many, each with so many processes."""
        return not runs or runs < self._places(children, runs)

    def is_short(self, children: int, runs: int) -> bool:
        """Whether they take more than they may."""
        if self._memory is not None and self._readings.memory > LIGHTER * self._memory:
            return True
        scarce = self._memory is None and self._free is not None and self._free < LEAST_FREE
        return scarce or (runs > 1 and runs > self._places(children, runs))

    def _places(self, children: int, runs: int) -> int:
        """Runs for which there is memory."""
        if self._budget is None:
            return 1
        each = max(USUAL, self._readings.evaluating // (children * max(1, runs)))
        return max(1, (self._budget - DAEMON) // (children * each))
