"""How long to wait before the next attempt: a random part of how long it failed already."""

from __future__ import annotations

from random import Random

SHORTEST = 0.1
"""Seconds."""

SPREAD = 0.3
"""Seconds in which all return who lost the same broker for a moment."""

LONGEST = 30.0
"""Seconds."""

SHARE = 1.0 / 3.0
"""Of the time that went by in vain: who waits no longer than that finds a broker that is back
within a third of the time for which it was away, a ninth on average."""


def next_delay(away: float, random: Random) -> float:
    """Seconds to wait now, after `away` seconds in vain.

    Uniform between the shortest delay and a part of `away`: attempts become rarer by a constant
    factor, as they do where each delay is a multiple of the last one, and peers that lost the same
    broker at the same moment spread out at once and stay spread ("full jitter", Brooker,
    Exponential Backoff And Jitter, 2015).
    """
    return random.uniform(SHORTEST, min(LONGEST, max(SPREAD, SHARE * away)))
