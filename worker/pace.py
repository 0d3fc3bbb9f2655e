"""How long the tasks at hand take, and when the next update comes, by the pace so far. Pure."""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from statistics import median

MEMORY = 60.0
"""Seconds of work after which what was before counts half."""
UPDATES = 8
"""Updates whose distances in time are remembered."""
AT_ONCE = 0.5
"""Seconds after an update within which a task may be on its way."""
OVERDUE = 3.0
"""Distances after which an update did not come that something else than the pace decides."""


class Tempo:
    """How fast this machine evaluates while it has something to do."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._episodes = 0.0
        self._since = 0.0
        """seconds of work since anything was finished"""

    def worked(self, seconds: float) -> None:
        """Something has been evaluated for so long."""
        self._seconds += seconds
        self._since += seconds

    def finished(self, episodes: int) -> None:
        """So many episodes are done."""
        self._episodes += episodes
        self._since = 0.0
        if self._seconds > MEMORY:
            self._seconds, self._episodes = self._seconds / 2.0, self._episodes / 2.0

    def left(self, episodes: int) -> float | None:
        """Seconds until so many more are done; None while nothing is known."""
        known = self._seconds - self._since
        if not self._episodes or known <= 0.0:
            return None
        return max(0.0, episodes * known / self._episodes - self._since)


class Rhythm:
    """When updates came."""

    def __init__(self) -> None:
        self._came: deque[float] = deque(maxlen=UPDATES + 1)

    def update(self, now: float) -> None:
        """The next one is here."""
        self._came.append(now)

    def next_in(self, now: float) -> float | None:
        """Seconds until the next one, 0 where it is due; None while no pace is known, or none is
        kept."""
        if len(self._came) < 3:
            return None
        apart = median(after - before for before, after in pairwise(self._came))
        waited = now - self._came[-1]
        if not AT_ONCE <= waited <= OVERDUE * apart:
            return None
        return max(0.0, apart - waited)
