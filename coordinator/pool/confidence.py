"""How sure the mean return of some episodes is: Student's confidence interval; pure."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

USUAL = 0.95
"""Confidence of the intervals that people are shown, where a run says nothing else."""
MANY = 200
"""Degrees of freedom beyond which an expansion around the normal distribution is exact enough."""
HALVINGS = 60


def margin(deviation: float, count: int, confidence: float = USUAL) -> float:
    """Half the width of the two-sided interval of a mean; infinite for a single return.

    Args:
        deviation: sample deviation of the returns.
        count: of returns, independent ones.
        confidence: above 0 and below 1: how often such an interval holds the true mean, where the
            mean of so many returns is normal.
    """
    if count < 2:
        return math.inf
    return quantile(confidence, count - 1) * deviation / math.sqrt(count)


def lowest(mean: float, deviation: float, count: int, confidence: float) -> float:
    """The lower end of that interval; the mean itself where `confidence` is 0."""
    return mean - margin(deviation, count, confidence) if confidence else mean


def merit(mean: float, deviation: float, count: int) -> tuple[float, int]:
    """What evaluations of the centre are compared by, to find the best version: the lower end of
    the usual interval, so that luck with few episodes counts less; then how many they were.

    A single return has no interval, and stands for itself.
    """
    return (lowest(mean, deviation, count, USUAL) if count > 1 else mean), count


@lru_cache(maxsize=256)
def quantile(confidence: float, freedom: int) -> float:
    """What |t| of Student's distribution stays below with this probability.

    Abramowitz and Stegun, Handbook of Mathematical Functions (1964): 26.7.3 and 26.7.4 solved by
    halving, or 26.7.5.
    """
    if freedom > MANY:
        return _expanded(NormalDist().inv_cdf(0.5 + confidence / 2.0), freedom)
    low, high = 0.0, 0.5 * math.pi  # of the angle whose tangent is t / sqrt(freedom)
    for _ in range(HALVINGS):
        middle = (low + high) / 2.0
        below = _within(middle, freedom) < confidence
        low, high = (middle, high) if below else (low, middle)
    return math.sqrt(freedom) * math.tan(low)


def _within(angle: float, freedom: int) -> float:
    """Probability that |t| is below sqrt(freedom) * tan(angle)."""
    square = math.cos(angle) ** 2
    odd = freedom % 2
    term = math.cos(angle) if odd else 1.0
    total = term if freedom > 1 else 0.0
    for power in range(2 + odd, freedom - 1, 2):
        term *= square * (power - 1) / power
        total += term
    inner = math.sin(angle) * total
    return 2.0 / math.pi * (angle + inner) if odd else inner


def _expanded(z: float, freedom: int) -> float:
    """The quantile from the normal one `z`."""
    first = (z**3 + z) / 4.0
    second = (5.0 * z**5 + 16.0 * z**3 + 3.0 * z) / 96.0
    third = (3.0 * z**7 + 19.0 * z**5 + 17.0 * z**3 - 15.0 * z) / 384.0
    return z + first / freedom + second / freedom**2 + third / freedom**3
