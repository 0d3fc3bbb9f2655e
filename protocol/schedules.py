"""How a learning rate or a sigma changes with the version, as a factor of its first value; pure.

Only the coordinator computes them: what it gets travels in each update as a float64, so nothing
here has to round alike on other machines, but for the factor of version 0, which is exact.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

import msgspec

from protocol.section import Section

Updates = Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]


class Schedule(Section, frozen=True, kw_only=True):
    """How the learning rate, in `[strategy.schedule]` sigma, or what
    `environment.alive_bonus_schedule` is of, changes from update to update. A fork begins its
    schedules anew."""

    kind: Literal["constant", "exponential", "linear", "cosine"] = "constant"
    """`exponential`: times `decay` with each update; `linear`: in a line to the floor; `cosine`:
    along half a cosine to the floor (Loshchilov and Hutter 2017, without restarts)."""
    updates: Updates = 0
    """Of `linear` and `cosine`: how many updates it takes to the floor, where the value stays."""
    decay: Annotated[float, msgspec.Meta(gt=0.0, le=1.0)] = 0.99
    """Of `exponential`: what is left of the value after an update."""
    floor: Annotated[float, msgspec.Meta(ge=0.0, le=1.0)] = 0.0
    """Share of the value that it never falls below."""
    warm_up: Updates = 0
    """Over so many updates at first the value rises in a line, and is whole in the last of them."""

    def fault(self, name: str) -> str | None:
        """What is wrong with the schedule of that name, and what to do."""
        if self.kind in ("linear", "cosine") and not self.updates:
            return (
                f'{name}.updates is 0 with {name}.kind = "{self.kind}": give the number of '
                "updates that it takes to the floor"
            )
        return None

    def factor(self, version: int) -> float:
        """What the value is times at this version, in [floor, 1]; less while it warms up."""
        if version < self.warm_up:
            return (version + 1) / self.warm_up
        past = version - max(0, self.warm_up - 1)
        if self.kind == "constant" or past == 0:
            return 1.0
        if self.kind == "exponential":
            return max(self.floor, math.pow(self.decay, past))
        left = 1.0 - min(1.0, past / self.updates)
        if self.kind == "cosine":
            left = 0.5 - 0.5 * math.cos(math.pi * left)
        return self.floor + (1.0 - self.floor) * left
