"""sep-CMA-ES (Ros and Hansen 2008, "A simple modification in CMA-ES achieving linear time and
space complexity")."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from protocol import exact
from protocol.strategies.base import (
    LARGEST_SIGMA,
    SMALLEST_SIGMA,
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
from protocol.strategies.shapings import finite, quantised


class Rates(NamedTuple):
    """Learning rates for `size` parameters, of the paper's table 1 and equation 8."""

    path: float
    damping: float
    covariance_path: float
    covariance: float
    expected: float
    """length of a standard normal vector"""

    @classmethod
    def of(cls, size: int, effective: float) -> Rates:
        """`effective`: of how many equal members the weights are worth, mu_eff."""
        path = (effective + 2.0) / (size + effective + 3.0)
        excess = max(0.0, math.sqrt((effective - 1.0) / (size + 1.0)) - 1.0)
        rank_one = 2.0 / ((size + math.sqrt(2.0)) * (size + math.sqrt(2.0)))
        rank_many = min(1.0, (2.0 * effective - 1.0) / ((size + 2.0) * (size + 2.0) + effective))
        dense = rank_one / effective + (1.0 - 1.0 / effective) * rank_many
        expected = math.sqrt(size) * (1.0 - 1.0 / (4.0 * size) + 1.0 / (21.0 * size * size))
        return cls(
            path=path,
            damping=1.0 + 2.0 * excess + path,
            covariance_path=4.0 / (size + 4.0),
            covariance=min(1.0, dense * (size + 2.0) / 3.0),
            expected=expected,
        )


@strategy
@dataclass(frozen=True)
class SepCMA(Strategy):
    """CMA-ES with a diagonal covariance matrix and cumulative step-size adaptation.

    Mirrored members are selected in pairs (Auger, Brockhoff and Hansen 2011, "Mirrored sampling in
    evolution strategies with weighted recombination"): only the better one of a pair takes part,
    else the mean of the selected steps, by which sigma is judged, would be too short. State.sigma
    is the global step size, and `sigmas` are that times the square roots of the variances.
    """

    kind: ClassVar[str] = "sep-cma"
    needs_gaussian: ClassVar[bool] = True
    own_step: ClassVar[bool] = True
    shapes: ClassVar[bool] = False
    defaults: ClassVar[Mapping[str, Mapping[str, object]]] = {
        "strategy": {"noise": "gaussian"},
        "optimizer": {"kind": "sgd", "learning_rate": 1.0, "momentum": 0.0},
    }

    def weigh(self, cohorts: Sequence[Cohort], situation: Situation) -> Weighting:
        """See `Strategy.weigh`; the scalar is mu_eff."""
        returns = Returns.of(cohorts)
        values = finite(returns.all)
        signs, better = np.ones(returns.plus.size, dtype=np.int64), returns.plus
        if returns.minus is not None:
            signs = np.sign(returns.plus - returns.minus).astype(np.int64)
            better = np.maximum(returns.plus, returns.minus)
        integers = np.zeros(better.size, dtype=np.int64)
        if values.size > 1 and values.min() < values.max():
            integers = quantised(by_position(better, recombination(better.size))).integers
        mass = int(integers.sum())
        effective = mass * mass / int((integers * integers).sum()) if mass else 1.0
        return Weighting(
            weights=returns.placed(signs * integers),
            multipliers=(1,) * len(cohorts),
            scale=situation.unit / max(1, mass),
            members=returns.members,
            squares=returns.placed(integers),
            scalars=(effective,),
        )

    def begin(self, size: int, sigma: float) -> Adapted:
        """See `Strategy.begin`."""
        memory = {
            "covariance_path": np.zeros(size),
            "fading": np.ones(1),
            "path": np.zeros(size),
            "variances": np.ones(size),
        }
        return Adapted(sigma, np.full(size, sigma), memory)

    def follow(self, sums: Sums, before: Adapted) -> tuple[Gradient, Adapted]:
        """See `Strategy.follow`. Raises ValueError for terms that no update of it has."""
        assert before.sigmas is not None and sums.squares is not None
        if sums.mass <= 0 or len(sums.scalars) != 1 or sums.scalars[0] < 1.0:
            raise ValueError(f"members of weight {sums.mass}, effective members {sums.scalars}")
        effective, memory = sums.scalars[0], before.memory
        rates = Rates.of(sums.total.size, effective)
        mean = sums.total.astype(np.float64) * sums.scale
        square = 1.0 + sums.squares.astype(np.float64) * (sums.unit * sums.unit / sums.mass)
        path = memory["path"] * (1.0 - rates.path) + mean * _step(rates.path, effective)
        length = exact.euclidean(path)
        fading = memory["fading"] * ((1.0 - rates.path) * (1.0 - rates.path))
        usual = length / math.sqrt(1.0 - float(fading[0]))
        moves = usual < (1.4 + 2.0 / (path.size + 1.0)) * rates.expected
        variances = memory["variances"]
        along = memory["covariance_path"] * (1.0 - rates.covariance_path)
        if moves:
            along = along + np.sqrt(variances) * mean * _step(rates.covariance_path, effective)
        share = rates.covariance / effective
        variances = _grown(variances, along, square, rates.covariance, share)
        growth = (rates.path / rates.damping) * (length / rates.expected - 1.0)
        sigma = before.sigma * float(exact.exp(np.array([growth]))[0])
        sigma = min(max(sigma, SMALLEST_SIGMA), LARGEST_SIGMA)
        after = {
            "covariance_path": along,
            "fading": fading,
            "path": path,
            "variances": variances,
        }
        sigmas = bounded(np.sqrt(variances) * sigma)
        return Gradient.of(mean * before.sigmas), Adapted(sigma, sigmas, after)


def recombination(count: int) -> Vector:
    """Weights of the best member, the second, ...: log(m + 1) - log k of the m in the better half,
    or of the best where there is but one."""
    half = max(1, count // 2)
    weights = exact.log(half + 1) - exact.log(np.arange(1, half + 1))
    return np.concatenate([weights, np.zeros(count - half)])


def _step(rate: float, effective: float) -> float:
    """What a path takes up of a mean of that many members, so that its length stays normal."""
    return math.sqrt(rate * (2.0 - rate) * effective)


def _grown(variances: Vector, along: Vector, square: Vector, rate: float, share: float) -> Vector:
    """The variances after the rank-one part `share` and the rest of `rate` of the members' own."""
    kept = variances * (1.0 - rate) + along * along * share
    grown = kept + variances * square * (rate - share)
    return np.maximum(grown, SMALLEST_SIGMA * SMALLEST_SIGMA)
