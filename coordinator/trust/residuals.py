"""What each worker brought to an update: its part of the weight, and how far its returns lie from
what chance would have given it of the batch; pure.

Which directions a worker evaluates says nothing of what they return. So the ranks of its members
are as good as drawn from those of all: of their means the deviation is known (sampling without
replacement), and a worker whose returns are too good, too bad, all for one mirror, or too far from
or too near to each other, drifts away over its tasks. Statistics condemn nobody: who drifts is
audited.

That returns point the other way leaves no trace here: a direction and its mirror are drawn alike.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from protocol.ranking import centred_ranks

MOST = 4.0
"""Deviations that one batch may say at most."""
SLACK = 0.5
"""Deviations a batch that are no drift (Page's cumulative sums, 1954)."""
ALARM = 12.0
"""Of their sum beyond that: comes by chance once in a million batches or so of a worker."""
FEWEST = 8
"""Directions of an update below which nothing can be said."""


class Residual(NamedTuple):
    """How far a worker's part of a batch lies from what chance gives, in standard deviations."""

    rank: float
    """its mean rank; positive: better than the batch's"""
    difference: float
    """its mean pair difference; positive: +sigma is better more often than it should be"""
    size: float
    """the mean size of its pair differences"""


class Part(NamedTuple):
    """What an update took of a worker."""

    members: int
    weight: float
    """its share of the sum of the sizes of all weights"""
    residual: Residual | None
    """None where it can't be said: all is its own, or there is too little"""


def parts(returns: Sequence[tuple[str, NDArray[np.float64]]]) -> dict[str, Part]:
    """What an update took of workers: `returns` (directions, members per direction), no NaN."""
    kept = [(worker, each) for worker, each in returns if len(each)]
    if sum(each.size for _, each in kept) < 2:
        return {}
    everything = np.concatenate([each for _, each in kept])
    ranks: NDArray[np.float64] = centred_ranks(everything.ravel()).astype(np.float64)
    ranks = ranks.reshape(everything.shape)
    levels = ranks.mean(axis=1)
    differences = ranks[:, 0] - ranks[:, 1] if everything.shape[1] == 2 else ranks[:, 0]
    sizes = np.abs(differences)
    numbers: dict[str, int] = {}
    owners = np.repeat(
        [numbers.setdefault(worker, len(numbers)) for worker, _ in kept],
        [len(each) for _, each in kept],
    )
    drawn = np.bincount(owners).tolist()
    weight = float(sizes.sum())
    spreads = [_spread(each, owners) for each in (levels, differences, sizes)]
    count, members = len(levels), everything.shape[1]
    found: dict[str, Part] = {}
    for worker, number in numbers.items():
        mine, residual = drawn[number], None
        if FEWEST <= count > mine:
            residual = Residual(*(each.deviation(number, mine, count) for each in spreads))
        share = spreads[-1].sums[number] / weight if weight else 0.0
        found[worker] = Part(mine * members, share, residual)
    return found


class _Spread(NamedTuple):
    """A quantity of all directions of a batch: its mean and variance, and its sum by worker."""

    mean: float
    variance: float
    sums: list[float]

    def deviation(self, number: int, drawn: int, count: int) -> float:
        """Of the mean of a sample drawn without replacement, a worker's, from the mean of all."""
        variance = self.variance / drawn * (count - drawn) / count
        if variance <= 0.0:
            return 0.0
        found = (self.sums[number] / drawn - self.mean) / math.sqrt(variance)
        return min(max(found, -MOST), MOST)


def _spread(values: NDArray[np.float64], owners: NDArray[np.int64]) -> _Spread:
    """Ranks are whole, or half: their sums are exact, in whatever order."""
    variance = float(values.var(ddof=1)) if len(values) > 1 else 0.0
    sums = np.bincount(owners, weights=values).tolist()
    return _Spread(float(values.mean()), variance, sums)


def drifted(sums: list[float], seen: Iterable[float]) -> bool:
    """Add what a batch says to the sums, two for each value, upwards and downwards: whether any of
    them is too large to be chance. They begin anew then."""
    for place, value in enumerate(seen):
        for side, deviation in enumerate((value, -value)):
            at = 2 * place + side
            sums[at] = max(0.0, sums[at] + deviation - SLACK)
    if max(sums) < ALARM:
        return False
    sums[:] = [0.0] * len(sums)
    return True
