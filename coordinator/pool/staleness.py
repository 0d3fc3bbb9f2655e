"""Whether the pool is too fast for its batch: whether too much of its updates is stale."""

from __future__ import annotations

import math
from collections import deque

from coordinator.pool.events import Happened
from protocol.spec import RunSpec

CHEAP_SHARE = 0.25
"""Share of an update's members that may be of earlier versions at hardly any cost; a host that lets
the run spec's `stale_share` be larger accepts as much."""
LOOKS_BACK = 5
"""Updates that are looked at together."""
SAID_EVERY = 60.0
"""Seconds between two lines about it."""


class Staleness:
    """Looks at the last updates, and says when more of their members were stale than is cheap."""

    def __init__(self, spec: RunSpec) -> None:
        self.amend(spec)
        self._last: deque[tuple[int, int]] = deque(maxlen=LOOKS_BACK)
        self._said = -math.inf

    def amend(self, spec: RunSpec) -> None:
        """These settings hold now."""
        self._spec = spec
        self._accepted = max(CHEAP_SHARE, spec.pool.stale_share)

    def closes(self, stale: int, members: int, now: float) -> Happened | None:
        """An update is made of so many members, so many of them stale; a line where the pool is too
        fast for its batch."""
        self._last.append((stale, members))
        share = sum(s for s, _ in self._last) / max(1, sum(m for _, m in self._last))
        if len(self._last) < LOOKS_BACK or share <= self._accepted:
            return None
        if now - self._said < SAID_EVERY:
            return None
        self._said = now
        spec = self._spec
        return Happened(
            f"{share:.0%} of the members of the last {LOOKS_BACK} updates were stale, and more "
            f"than {self._accepted:.0%} costs learning: the pool is too fast for its batch; give "
            f"the run a larger strategy.population (now {spec.strategy.population:,}) or a lower "
            f"pool.stale_share ({spec.pool.stale_share:g}), both with `shoal set`, or in a fork a "
            f"lower optimizer.momentum ({spec.optimizer.momentum:g})"
        )
