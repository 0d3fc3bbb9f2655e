"""How long the episodes of members may last, where a run ties that to how long they lasted."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Cap:
    """The rule of a run: a multiple of the mean length of what counted in the last update.

    As in Salimans et al. 2017, section 2.1: few long episodes don't keep all others waiting.

    Attributes:
        multiple: above 1, so that episodes that are all cut may last longer from then on.
        shortest, longest: steps, between which it stays.
    """

    multiple: float
    shortest: int
    longest: int

    def after(self, before: int, episodes: int, steps: int) -> int:
        """Steps after which episodes of the next version are cut, 0 for never: the same on every
        peer.

        Args:
            before: that of the version before, which goes on where nothing counted.
            episodes, steps: that counted in the update between them.
        """
        if not episodes:
            return before
        return min(max(math.ceil(self.multiple * steps / episodes), self.shortest), self.longest)
