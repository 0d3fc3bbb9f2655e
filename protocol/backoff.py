"""How long to wait before the next attempt: decorrelated jitter between 0.1 and 30 seconds."""

from __future__ import annotations

from random import Random

SHORTEST = 0.1
"""Seconds. Also what to give as `previous` before the first attempt."""

LONGEST = 30.0
"""Seconds."""


def next_delay(previous: float, random: Random) -> float:
    """Seconds to wait now, after having waited `previous` seconds the last time.

    Uniform between the shortest delay and three times the previous one ("decorrelated jitter",
    Brooker, Exponential Backoff And Jitter, 2015): clients that lost the same broker at the same
    moment spread out at once and stay spread.
    """
    ceiling = max(SHORTEST, 3.0 * previous)
    return min(LONGEST, random.uniform(SHORTEST, ceiling))
