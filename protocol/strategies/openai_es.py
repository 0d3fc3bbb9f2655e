"""OpenAI-ES (Salimans et al. 2017, "Evolution Strategies as a Scalable Alternative")."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from protocol.strategies.base import (
    Cohort,
    Returns,
    Situation,
    Strategy,
    Weighting,
    multiplier,
    strategy,
)
from protocol.strategies.shapings import shape


@strategy
@dataclass(frozen=True)
class OpenAIES(Strategy):
    """Utilities of all members together, by default their centred ranks, weigh the noise."""

    kind: ClassVar[str] = "openai-es"
    accepts_stale: ClassVar[bool] = True

    def weigh(self, cohorts: Sequence[Cohort], situation: Situation) -> Weighting:
        """See `Strategy.weigh`.

        A direction's weight is the utility of its +sigma member minus that of its mirrored one. The
        scale makes the sum the mean over members, weighted by multiplier, of utility * noise /
        sigma.
        """
        returns = Returns.of(cohorts)
        multipliers = tuple(multiplier(cohort.age, self.discount) for cohort in cohorts)
        shaped = shape(self.shaping, returns.all)
        weights = returns.placed(returns.differences(shaped.integers))
        if returns.members < 2:
            return Weighting(weights, multipliers, 0.0, returns.members)
        pairs = sum(n * share for n, share in zip(returns.counts, multipliers, strict=True))
        shares = pairs * (1 if returns.minus is None else 2)
        scale = situation.unit / (shaped.divisor * shares * situation.sigma)
        return Weighting(weights, multipliers, scale, returns.members)
