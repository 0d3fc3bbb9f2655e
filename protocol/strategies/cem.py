"""The cross-entropy method (Szita and Lorincz 2006, "Learning Tetris using the noisy
cross-entropy method")."""

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
from protocol.strategies.positions import by_position
from protocol.strategies.shapings import PEAK, finite


@strategy
@dataclass(frozen=True)
class CEM(Strategy):
    """Mean and deviation of each parameter become those of the best members.

    Attributes:
        elites: share of the members that are the best; those that tie for the last places share
            them.
        extra_noise: deviation that is added to the elites' own at first, as a share of the run's
            sigma; its square falls in a line.
        extra_noise_updates: after so many updates it is 0.
    """

    kind: ClassVar[str] = "cem"
    needs_gaussian: ClassVar[bool] = True
    own_step: ClassVar[bool] = True
    shapes: ClassVar[bool] = False
    defaults: ClassVar[Mapping[str, Mapping[str, object]]] = {
        "strategy": {"noise": "gaussian"},
        "optimizer": {"kind": "sgd", "learning_rate": 1.0, "momentum": 0.0},
    }

    elites: float = 0.2
    extra_noise: float = 0.25
    extra_noise_updates: int = 100

    def __post_init__(self) -> None:
        """Raise ShoalError for a hyperparameter that is out of range."""
        self._require("elites", 0.0 < self.elites <= 1.0, "0 < elites <= 1")
        self._require("extra_noise", self.extra_noise >= 0.0, "extra_noise >= 0")
        self._require(
            "extra_noise_updates", self.extra_noise_updates >= 1, "extra_noise_updates >= 1"
        )

    def weigh(self, cohorts: Sequence[Cohort], situation: Situation) -> Weighting:
        """See `Strategy.weigh`; the scalar is the variance that is added."""
        returns = Returns.of(cohorts)
        values = finite(returns.all)
        integers = np.zeros(values.size, dtype=np.int64)
        if values.size and values.min() < values.max():
            count = min(values.size, max(2, round(self.elites * values.size)))
            best = (np.arange(values.size) < count).astype(np.float64)
            integers = np.rint(by_position(values, best) * PEAK).astype(np.int64)
        left = max(0.0, 1.0 - situation.version / self.extra_noise_updates)
        added = (self.extra_noise * situation.sigma) ** 2 * left
        return Weighting(
            weights=returns.placed(returns.differences(integers)),
            multipliers=(1,) * len(cohorts),
            scale=situation.unit / max(1, int(integers.sum())),
            members=returns.members,
            squares=returns.placed(returns.sums(integers)),
            scalars=(added,),
        )

    def begin(self, size: int, sigma: float) -> Adapted:
        """See `Strategy.begin`."""
        return Adapted(sigma, np.full(size, sigma))

    def follow(self, sums: Sums, before: Adapted) -> tuple[Gradient, Adapted]:
        """See `Strategy.follow`. Raises ValueError for terms that no update of it has."""
        assert before.sigmas is not None and sums.squares is not None
        if sums.mass <= 0 or len(sums.scalars) != 1 or sums.scalars[0] < 0.0:
            raise ValueError(f"elites of weight {sums.mass}, added variances {sums.scalars}")
        mean = sums.total.astype(np.float64) * sums.scale
        square = 1.0 + sums.squares.astype(np.float64) * (sums.unit * sums.unit / sums.mass)
        variance = np.maximum(square - mean * mean, 0.0) * before.sigmas * before.sigmas
        sigmas = bounded(np.sqrt(variance + sums.scalars[0]))
        return Gradient.of(mean * before.sigmas), Adapted(before.sigma, sigmas)
