"""How stale updates are: what the next one will be made of, and whether the last ones were too
much so."""

from __future__ import annotations

import math
from collections import deque

from coordinator.pool.batches import Batches
from coordinator.pool.course import Course
from coordinator.pool.events import Happened
from coordinator.pool.leases import Leases
from protocol.spec import RunSpec

CHEAP_SHARE = 0.25
"""Share of an update's members that may be of earlier versions at hardly any cost."""
LOOKS_BACK = 5
"""Updates that are looked at together."""
SAID_EVERY = 60.0
"""Seconds between two lines about it."""


class Staleness:
    """Counts members that were evaluated at an earlier version than that of their update."""

    def __init__(self, spec: RunSpec, course: Course, leases: Leases, batches: Batches) -> None:
        self._spec = spec
        self._course = course
        self._leases = leases
        self._batches = batches
        self._last: deque[tuple[int, int]] = deque(maxlen=LOOKS_BACK)
        self._said = -math.inf

    @property
    def members(self) -> int:
        """Stale members of the next update, if all that is out for it comes back: those of its
        batch that were begun early, those that came late to an earlier one, and those still out."""
        index = self._course.open_index
        out = self._leases.directions_out(index - self._spec.pool.max_staleness, index)
        return self._batches.stale(index) + 2 * out

    def closes(self, stale: int, members: int, now: float) -> Happened | None:
        """An update is made of so many members, so many of them stale; a line where the pool is too
        fast for its batch."""
        self._last.append((stale, members))
        share = sum(s for s, _ in self._last) / max(1, sum(m for _, m in self._last))
        if len(self._last) < LOOKS_BACK or share <= CHEAP_SHARE or now - self._said < SAID_EVERY:
            return None
        self._said = now
        spec = self._spec
        return Happened(
            f"{share:.0%} of the members of the last {LOOKS_BACK} updates were stale, and more "
            f"than {CHEAP_SHARE:.0%} costs learning: the pool is too fast for its batch; give the "
            f"run a larger strategy.population (now {spec.strategy.population:,}), or a lower "
            f"pool.stale_share ({spec.pool.stale_share:g}) or optimizer.momentum "
            f"({spec.optimizer.momentum:g})"
        )
