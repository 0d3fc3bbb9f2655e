"""What hill climbers share: a step onto the mean of the best members, and sigma by success."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from protocol.strategies.base import (
    LARGEST_SIGMA,
    SMALLEST_SIGMA,
    Cohort,
    Returns,
    Situation,
    Strategy,
    Weighting,
)
from protocol.strategies.shapings import PEAK, finite

STEP: dict[str, dict[str, object]] = {
    "strategy": {"noise": "gaussian"},
    "optimizer": {"kind": "sgd", "learning_rate": 1.0, "momentum": 0.0},
}
"""Spec values of a new run of a hill climber, unless told otherwise: with them a step ends right
where the mean of the best members is."""


@dataclass(frozen=True)
class Climbing(Strategy):
    """A step onto a mean of the best members; the optimizer's learning rate is how far it goes.

    Attributes:
        sigma_better: factor of sigma after a candidate that was better than what was accepted.
        sigma_worse: likewise after one that was not.
        sigma_least, sigma_most: bounds of sigma.
    """

    accepts_stale: ClassVar[bool] = False
    shapes: ClassVar[bool] = False
    own_step: ClassVar[bool] = True

    sigma_better: float = 1.0
    sigma_worse: float = 1.0
    sigma_least: float = SMALLEST_SIGMA
    sigma_most: float = LARGEST_SIGMA

    def __post_init__(self) -> None:
        """Raise ShoalError for a hyperparameter that is out of range."""
        for name in ("sigma_better", "sigma_worse"):
            self._require(name, 0.1 <= getattr(self, name) <= 10.0, f"0.1 <= {name} <= 10")
        bounds = SMALLEST_SIGMA <= self.sigma_least <= self.sigma_most <= LARGEST_SIGMA
        rule = f"{SMALLEST_SIGMA:g} <= sigma_least <= sigma_most <= {LARGEST_SIGMA:g}"
        self._require("sigma_least", bounds, rule)

    def judged_sigma(self, sigma: float, better: bool) -> float:
        """See `Strategy.judged_sigma`."""
        moved = sigma * (self.sigma_better if better else self.sigma_worse)
        return min(max(moved, self.sigma_least), self.sigma_most)

    @property
    def judges_sigma(self) -> bool:
        """See `Strategy.judges_sigma`."""
        return self.sigma_better != 1.0 or self.sigma_worse != 1.0


def best(cohorts: Sequence[Cohort], most: int) -> tuple[Returns, NDArray[np.int64]]:
    """All returns, and where in `Returns.all` the best of them are, at most so many.

    Those that are no better than the worst return are not among them; of equal ones those of lower
    directions are first, + before -. Raises ValueError where a return is infinite.
    """
    returns = Returns.of(cohorts)
    values = finite(returns.all)
    if not values.size:
        return returns, np.empty(0, dtype=np.int64)
    directions = np.concatenate(
        [cohort.first_direction + np.flatnonzero(cohort.present) for cohort in cohorts]
    )
    mirrored = np.arange(values.size) >= directions.size
    order = np.lexsort((mirrored, np.resize(directions, values.size), -values))[:most]
    return returns, order[values[order] > values.min()]


def above_worst(values: NDArray[np.float64], chosen: NDArray[np.int64]) -> NDArray[np.int64]:
    """How far the chosen returns are above the worst of all, in integers, the largest `PEAK`; 1
    each where that is too little to be told by a float64."""
    above = values[chosen] / 2.0 - values.min() / 2.0
    if above.max() == 0.0:
        return np.ones(chosen.size, dtype=np.int64)
    return np.rint(above / above.max() * PEAK).astype(np.int64)


def step_onto(
    returns: Returns,
    chosen: NDArray[np.int64],
    shares: NDArray[np.int64],
    situation: Situation,
) -> Weighting:
    """The weighting whose sum, times its scale, leads from the parameters to the mean of the chosen
    members, weighted by these shares, as exactly as float64 has it."""
    utilities = np.zeros(returns.members, dtype=np.int64)
    utilities[chosen] = shares
    # Members are built with a float32 step: so is the way back to their mean.
    total, step = int(shares.sum()), float(np.float32(situation.sigma * situation.unit))
    return Weighting(
        weights=returns.placed(returns.differences(utilities)),
        multipliers=(1,) * len(returns.counts),
        scale=step / total if total else 0.0,
        members=returns.members,
    )
