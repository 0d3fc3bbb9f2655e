"""Random search: the best member is a candidate, kept where its centre is better."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from protocol.strategies.base import Cohort, Situation, Weighting, strategy
from protocol.strategies.climbing import STEP, Climbing, best, step_onto


@strategy
@dataclass(frozen=True)
class RandomSearch(Climbing):
    """A search around the best parameters so far (Matyas 1965, "Random optimization")."""

    kind: ClassVar[str] = "random-search"
    defaults: ClassVar = STEP

    @property
    def needs_acceptance(self) -> bool:
        """See `Strategy.needs_acceptance`."""
        return True

    def weigh(self, cohorts: Sequence[Cohort], situation: Situation) -> Weighting:
        """See `Strategy.weigh`."""
        returns, chosen = best(cohorts, 1)
        return step_onto(returns, chosen, np.ones(chosen.size, dtype=np.int64), situation)
