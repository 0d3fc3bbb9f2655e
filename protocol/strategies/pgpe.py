"""PGPE (Sehnke et al. 2010, "Parameter-exploring policy gradients"), with symmetric sampling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from protocol.strategies.base import (
    Adapted,
    Cohort,
    Gradient,
    Returns,
    Situation,
    Strategy,
    Sums,
    Weighting,
    bounded,
    strategy,
)
from protocol.strategies.shapings import shape


@strategy
@dataclass(frozen=True)
class PGPE(Strategy):
    """Follows the gradients of mean and deviation of the distribution that members are drawn from.

    With noise z, directions i and utilities u, the mean of which is the baseline:
    gradient = 1/n sum (u+ - u-)/2 * sigma z, sigma += sigma_rate / n * sum (u+ + u-)/2 * sigma
    (z**2 - 1), cut to a share of sigma (Ha 2017, and Toklu et al. 2020, who step with ClipUp).

    Attributes:
        sigma_rate: learning rate of sigma.
        sigma_change: how much of itself a sigma changes in an update at most.
    """

    kind: ClassVar[str] = "pgpe"
    needs_gaussian: ClassVar[bool] = True
    needs_mirrors: ClassVar[bool] = True
    defaults: ClassVar[Mapping[str, Mapping[str, object]]] = {
        "strategy": {"noise": "gaussian"},
        "optimizer": {"kind": "clipup"},
    }

    sigma_rate: float = 0.1
    sigma_change: float = 0.2

    def __post_init__(self) -> None:
        """Raise ShoalError for a hyperparameter that is out of range."""
        self._require("sigma_rate", 0.0 < self.sigma_rate <= 1.0, "0 < sigma_rate <= 1")
        self._require("sigma_change", 0.0 < self.sigma_change < 1.0, "0 < sigma_change < 1")

    def weigh(self, cohorts: Sequence[Cohort], situation: Situation) -> Weighting:
        """See `Strategy.weigh`."""
        returns = Returns.of(cohorts)
        shaped = shape(self.shaping, returns.all)
        return Weighting(
            weights=returns.placed(returns.differences(shaped.integers)),
            multipliers=(1,) * len(cohorts),
            scale=situation.unit / (shaped.divisor * max(1, returns.members)),
            members=returns.members,
            squares=returns.placed(returns.sums(shaped.integers)),
        )

    def begin(self, size: int, sigma: float) -> Adapted:
        """See `Strategy.begin`."""
        return Adapted(sigma, np.full(size, sigma))

    def follow(self, sums: Sums, before: Adapted) -> tuple[Gradient, Adapted]:
        """See `Strategy.follow`."""
        assert before.sigmas is not None and sums.squares is not None
        sigmas = before.sigmas
        ascent = sums.total.astype(np.float64) * sums.scale * sigmas
        growth = sums.squares.astype(np.float64) * (sums.scale * sums.unit) * sigmas
        grown = sigmas + growth * self.sigma_rate
        low, high = sigmas * (1.0 - self.sigma_change), sigmas * (1.0 + self.sigma_change)
        grown = bounded(np.minimum(np.maximum(grown, low), high))
        return Gradient.of(ascent), Adapted(before.sigma, grown)
