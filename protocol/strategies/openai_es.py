"""OpenAI-ES (Salimans et al. 2017, "Evolution Strategies as a Scalable Alternative")."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar

import numpy as np

from protocol.ranking import centred_ranks
from protocol.strategies.base import Cohort, Weighting, multiplier


@dataclass(frozen=True)
class OpenAIES:
    """Centred ranks of all members together weigh the noise; fitness itself never does."""

    kind: ClassVar[str] = "openai-es"
    accepts_stale: ClassVar[bool] = True
    needs_gaussian: ClassVar[bool] = False
    needs_acceptance: ClassVar[bool] = False

    discount: int = 1
    """A cohort of age a weighs 1 / (1 + a)^discount of a fresh one."""

    def weigh(self, cohorts: Sequence[Cohort], sigma: float, unit: float) -> Weighting:
        """See `Strategy.weigh`.

        A direction's weight is the rank of its +sigma member, less that of its mirrored one. The
        scale makes the sum the mean over members, weighted by multiplier, of rank * noise / sigma,
        with ranks in [-0.5, 0.5].
        """
        multipliers = tuple(multiplier(cohort.age, self.discount) for cohort in cohorts)
        present = [cohort.present for cohort in cohorts]
        weights = tuple(np.zeros(mask.size, dtype=np.int64) for mask in present)
        counts = [int(mask.sum()) for mask in present]
        plus = [cohort.returns_plus[mask] for cohort, mask in zip(cohorts, present, strict=True)]
        minus = [
            cohort.returns_minus[mask]
            for cohort, mask in zip(cohorts, present, strict=True)
            if cohort.returns_minus is not None
        ]
        directions, each = sum(counts), 2 if minus else 1
        members = each * directions
        if members < 2:
            return Weighting(weights, multipliers, 0.0, members)
        ranks = centred_ranks(np.concatenate(plus + minus))
        weight = ranks[:directions] - ranks[directions:] if minus else ranks
        parts = np.split(weight, list(accumulate(counts))[:-1])
        for row, mask, part in zip(weights, present, parts, strict=True):
            row[mask] = part
        shares = each * sum(count * share for count, share in zip(counts, multipliers, strict=True))
        scale = unit / (2.0 * (members - 1) * shares * sigma)
        return Weighting(weights, multipliers, scale, members)
