"""SNES (Wierstra et al. 2014, "Natural evolution strategies", section 5.2 and table 1)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from protocol import exact
from protocol.strategies.base import (
    Adapted,
    Cohort,
    Gradient,
    Returns,
    Situation,
    Strategy,
    Sums,
    Vector,
    Weighting,
    bounded,
    strategy,
)
from protocol.strategies.positions import by_position
from protocol.strategies.shapings import Shaped, finite, quantised


@strategy
@dataclass(frozen=True)
class SNES(Strategy):
    """Follows the natural gradient of a normal distribution with one deviation per parameter.

    With noise z and utilities u of members: mean += learning_rate * sigma * sum u z,
    sigma *= exp(sigma_rate / 2 * sum u (z**2 - 1)).

    Attributes:
        sigma_rate: learning rate of sigma; 0 is the paper's (3 + log d) / (5 sqrt d).
    """

    kind: ClassVar[str] = "snes"
    needs_gaussian: ClassVar[bool] = True
    own_step: ClassVar[bool] = True
    shapes: ClassVar[bool] = False
    defaults: ClassVar[Mapping[str, Mapping[str, object]]] = {
        "strategy": {"noise": "gaussian"},
        "optimizer": {"kind": "sgd", "learning_rate": 1.0, "momentum": 0.0},
    }

    sigma_rate: float = 0.0

    def __post_init__(self) -> None:
        """Raise ShoalError for a hyperparameter that is out of range."""
        self._require("sigma_rate", 0.0 <= self.sigma_rate <= 1.0, "0 <= sigma_rate <= 1")

    def weigh(self, cohorts: Sequence[Cohort], situation: Situation) -> Weighting:
        """See `Strategy.weigh`."""
        returns = Returns.of(cohorts)
        values = finite(returns.all)
        shaped = Shaped(np.zeros(values.size, dtype=np.int64), 1.0)
        if values.size and values.min() < values.max():
            shaped = quantised(by_position(values, utilities(values.size)))
        return Weighting(
            weights=returns.placed(returns.differences(shaped.integers)),
            multipliers=(1,) * len(cohorts),
            scale=situation.unit / shaped.divisor,
            members=returns.members,
            squares=returns.placed(returns.sums(shaped.integers)),
        )

    def begin(self, size: int, sigma: float) -> Adapted:
        """See `Strategy.begin`."""
        return Adapted(sigma, np.full(size, sigma))

    def follow(self, sums: Sums, before: Adapted) -> tuple[Gradient, Adapted]:
        """See `Strategy.follow`."""
        assert before.sigmas is not None and sums.squares is not None
        size = sums.total.size
        rate = self.sigma_rate or (3.0 + float(exact.log(size))) / (5.0 * math.sqrt(size))
        ascent = sums.total.astype(np.float64) * sums.scale * before.sigmas
        growth = sums.squares.astype(np.float64) * (sums.scale * sums.unit) * (rate / 2.0)
        return Gradient.of(ascent), Adapted(
            before.sigma, bounded(before.sigmas * exact.exp(growth))
        )


def utilities(count: int) -> Vector:
    """Those of the best member, the second, ...: max(0, log(n/2 + 1) - log k), whose sum becomes 1,
    less 1/n."""
    above = np.maximum(0.0, exact.log(count / 2 + 1) - exact.log(np.arange(1, count + 1)))
    return above / math.fsum(above) - 1.0 / count
