"""Hill climbing with elites: a step onto the mean of the best members, kept always or if better."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from protocol.errors import ShoalError
from protocol.strategies.base import Cohort, Situation, Weighting, strategy
from protocol.strategies.climbing import STEP, Climbing, above_worst, best, step_onto


@strategy
@dataclass(frozen=True)
class HillClimbing(Climbing):
    """The elites are the best members, less those that are no better than the worst.

    Attributes:
        elites: share of the members up to 1; above it their number.
        elite_weights: "returns": the mean of the elites is weighted by how far each return is above
            the worst of all; "equal": the plain mean.
        keep: "better": a step is kept where the centre's episodes say that it is better; "always".
    """

    kind: ClassVar[str] = "hill-climbing"
    defaults: ClassVar = STEP

    elites: float = 0.4
    elite_weights: str = "returns"
    keep: str = "better"

    def __post_init__(self) -> None:
        """Raise ShoalError for a hyperparameter that is out of range."""
        super().__post_init__()
        number = self.elites > 1.0 and self.elites == int(self.elites)
        self._require("elites", 0.0 < self.elites <= 1.0 or number, "a share, or a whole number")
        self._require("elite_weights", self.elite_weights in ("equal", "returns"), "one of these")
        self._require("keep", self.keep in ("better", "always"), '"better" or "always"')
        if self.keep == "always" and self.judges_sigma:
            raise ShoalError(
                f"strategy {self.kind}: sigma_better = {self.sigma_better}, sigma_worse = "
                f'{self.sigma_worse} with keep = "always", which judges no step: leave both out, '
                'or set keep to "better"'
            )

    @property
    def needs_acceptance(self) -> bool:
        """See `Strategy.needs_acceptance`."""
        return self.keep == "better"

    def weigh(self, cohorts: Sequence[Cohort], situation: Situation) -> Weighting:
        """See `Strategy.weigh`."""
        there = sum(int(cohort.present.sum()) for cohort in cohorts)
        members = there * (2 if cohorts and cohorts[0].returns_minus is not None else 1)
        returns, chosen = best(cohorts, self._number(members))
        shares = np.ones(chosen.size, dtype=np.int64)
        if self.elite_weights == "returns" and chosen.size:
            shares = above_worst(returns.all, chosen)
        return step_onto(returns, chosen, shares, situation)

    def _number(self, members: int) -> int:
        """How many elites so many members have."""
        if self.elites > 1.0:
            return int(self.elites)
        return max(1, int(self.elites * members + 0.5))
