"""The ratio of two costs that were measured side by side, and how far it can be trusted. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 10_000
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Pair:
    """What the same piece of work cost in either way, measured at the same time."""

    first: float
    second: float


@dataclass(frozen=True)
class Ratio:
    """Of the first cost to the second, with the bounds of its confidence interval."""

    value: float
    low: float
    high: float

    def at_least(self, bound: float) -> bool | None:
        """Whether it is; None where the interval does not decide it."""
        if self.low >= bound:
            return True
        return False if self.high < bound else None


def ratio(rounds: Sequence[Sequence[Pair]], seed: int = 0) -> Ratio:
    """The ratio of the sums of all pairs, with its interval at `CONFIDENCE`.

    By a bootstrap in two stages (Davison and Hinkley 1997, 3.8): rounds are drawn, and pairs
    within each. So what differs between two starts of the very same program, such as where its
    memory lies, is part of the interval as soon as there are several rounds.

    Args:
        rounds: the pairs of each round; none may be empty.
    """
    costs = [np.array([(pair.first, pair.second) for pair in pairs]) for pairs in rounds]
    generator = np.random.default_rng(seed)
    totals = np.zeros((RESAMPLES, 2))
    for drawn in generator.integers(0, len(costs), (len(costs), RESAMPLES)):
        for number, pairs in enumerate(costs):
            here = np.flatnonzero(drawn == number)
            chosen = generator.integers(0, len(pairs), (len(here), len(pairs)))
            totals[here] += pairs[chosen].sum(axis=1)
    first, second = np.concatenate(costs).sum(axis=0)
    tail = (1.0 - CONFIDENCE) / 2.0
    low, high = np.quantile(totals[:, 0] / totals[:, 1], (tail, 1.0 - tail))
    return Ratio(float(first / second), float(low), float(high))
