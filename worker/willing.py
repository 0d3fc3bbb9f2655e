"""How many tasks a session takes, as far as its volunteer wants: none while it pauses. Pure."""

from __future__ import annotations

from worker.leaving import Leaving

LEAVING, PAUSING = "the volunteer leaves", "the volunteer pauses"
"""What the coordinator is told of tasks that are handed back."""


class Willing:
    """The volunteer's wishes as they stand.

    Attributes:
        paused: why no tasks are taken for now, in words; empty while they are.
        leaving: the way out.
    """

    def __init__(self, credit: int, most: int | None) -> None:
        """`credit`: tasks held at once; `most`: evaluated in all, None for no bound."""
        self.paused = ""
        self.leaving = Leaving()
        self._credit = credit
        self._most = most

    @property
    def resting(self) -> bool:
        """Whether no tasks are taken, however few were."""
        return bool(self.paused) or self.leaving.finishing

    def room(self, done: int) -> int:
        """Tasks that may be held at once, after so many that are evaluated."""
        if self.resting:
            return 0
        return self._credit if self._most is None else max(0, min(self._credit, self._most - done))

    def declines(self, done: int, held: int) -> str:
        """Why a task that comes is handed back, with so many evaluated and so many held; empty
        where it is taken."""
        if self.paused:
            return PAUSING
        has_most = self._most is not None and done + held >= self._most
        return LEAVING if self.leaving.finishing or has_most else ""
