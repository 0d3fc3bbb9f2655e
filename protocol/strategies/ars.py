"""ARS (Mania, Guy and Recht 2018, "Simple random search of static linear policies")."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from protocol.strategies.base import (
    Cohort,
    Returns,
    Situation,
    Strategy,
    Weighting,
    multiplier,
    strategy,
)
from protocol.strategies.shapings import clipped, finite, moments, quantised


@strategy
@dataclass(frozen=True)
class ARS(Strategy):
    """The best directions weigh the difference of their returns, in deviations of these returns.

    The step is that of algorithm 2, V1-t, with SGD; V2-t where the observation normaliser is on.
    The noise is not divided by sigma: the learning rate is in units of the parameters.

    Attributes:
        elites: share of the directions that count, by the better of their two returns; what ties
            with the last of them counts as well. 1 is V1 and V2, less V1-t and V2-t.
    """

    kind: ClassVar[str] = "ars"
    accepts_stale: ClassVar[bool] = True
    needs_mirrors: ClassVar[bool] = True
    shapes: ClassVar[bool] = False
    defaults: ClassVar[Mapping[str, Mapping[str, object]]] = {
        "strategy": {"noise": "gaussian", "sigma": 0.03},
        "optimizer": {"kind": "sgd", "learning_rate": 0.02, "momentum": 0.0},
    }

    elites: float = 1.0

    def __post_init__(self) -> None:
        """Raise ShoalError for a hyperparameter that is out of range."""
        self._require("elites", 0.0 < self.elites <= 1.0, "0 < elites <= 1")

    def weigh(self, cohorts: Sequence[Cohort], situation: Situation) -> Weighting:
        """See `Strategy.weigh`."""
        returns = Returns.of(cohorts)
        multipliers = tuple(multiplier(cohort.age, self.discount) for cohort in cohorts)
        finite(returns.all)
        weights = np.zeros(returns.plus.size, dtype=np.int64)
        scale = 0.0
        if returns.plus.size and returns.minus is not None:
            better = np.maximum(returns.plus, returns.minus)
            count = max(1, round(self.elites * better.size))
            chosen = better >= np.sort(better)[-count]
            used = clipped(np.concatenate([returns.plus[chosen], returns.minus[chosen]]))
            _, deviation = moments(used)
            plus, minus = np.split(used, 2)
            differences = quantised(plus - minus)
            if differences.integers.any():
                weights[chosen] = differences.integers
                shares = int(np.repeat(multipliers, returns.counts)[chosen].sum())
                scale = situation.unit / (differences.divisor * shares * deviation)
        return Weighting(returns.placed(weights), multipliers, scale, returns.members)
