"""What newcomers hold together: thousands may come at once, and return nothing. Pure."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Mapping

from coordinator.pool.events import SessionId
from coordinator.pool.roster import Session
from coordinator.pool.work import Lease

SHARE = 16
"""Newcomers hold one part in so many of a batch together at most."""
PAUSE = 1.0
"""Seconds without a task for any of them after even a single unit was overdue: where a batch takes
a moment, each one would hold it up."""


def least_missed(sessions: Mapping[SessionId, Session]) -> SessionId | None:
    """Whose place somebody else may have where there is none left: of those that have returned
    nothing and hold nothing one of the worker with the most such sessions, heard longest ago; None
    where all have."""
    idle = [s for s in sessions.values() if not (s.proven or s.leases or s.stands_by)]
    of_worker = Counter(session.id.worker for session in idle)
    if not idle:
        return None
    return min(idle, key=lambda s: (-of_worker[s.id.worker], s.heard)).id


class Newcomers:
    """The leases of sessions that have returned nothing yet, and how much they may hold together.

    Half as much with each that is overdue, twice as much with each that comes back: where most are
    honest all soon have work, where most return nothing they cost a unit now and then. An overdue
    lease makes room for others, who may be honest.
    """

    def __init__(self, directions: int) -> None:
        """`directions` are those of a batch."""
        self._most = self._allowed = max(1, directions // SHARE)
        self._held: dict[int, int] = {}
        """units, by the number of the task"""
        self._units = 0
        self._overdue: list[tuple[float, int]] = []
        self._pauses_until = -math.inf

    def resize(self, directions: int) -> None:
        """Batches have so many directions now."""
        most = max(1, directions // SHARE)
        if self._allowed == self._most:
            self._allowed = most
        self._most, self._allowed = most, min(self._allowed, most)

    def __len__(self) -> int:
        """Leases that are out and not overdue."""
        return len(self._held)

    def room(self, now: float) -> int:
        """Units that they may still be given."""
        while self._overdue and self._overdue[0][0] <= now:
            overdue, task = heapq.heappop(self._overdue)
            if self._release(task):
                if self._allowed == 1:
                    self._pauses_until = overdue + PAUSE
                self._allowed = max(1, self._allowed // 2)
        if now < self._pauses_until:
            return 0
        return max(0, self._allowed - self._units)

    def hold(self, lease: Lease) -> None:
        """A newcomer is given a task."""
        self._held[lease.task] = lease.count
        self._units += lease.count
        heapq.heappush(self._overdue, (lease.overdue, lease.task))

    def returned(self, lease: Lease) -> None:
        """A newcomer has returned its task, late or not."""
        self._release(lease.task)
        self._pauses_until = -math.inf
        self._allowed = min(2 * self._allowed, self._most)

    def _release(self, task: int) -> bool:
        units = self._held.pop(task, 0)
        self._units -= units
        return units > 0
