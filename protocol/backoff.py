"""How long to wait before the next attempt, so that peers which wait for the same spread out."""

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

GOOD_AFTER = 30.0
"""Seconds for which a connection must last before the broker counts as well."""

FLAP = 1.0
"""Seconds in vain that a connection which lasted less counts for at most: a broker that is started
again soon after we came is still found within moments."""


def next_delay(away: float, random: Random) -> float:
    """Seconds to wait now, after `away` seconds in vain.

    Uniform between the shortest delay and a part of `away`: attempts become rarer by a constant
    factor, as they do where each delay is a multiple of the last one, and peers that lost the same
    broker at the same moment spread out at once and stay spread ("full jitter", Brooker,
    Exponential Backoff And Jitter, 2015).
    """
    return random.uniform(SHORTEST, min(LONGEST, max(SPREAD, SHARE * away)))


class Outage:
    """For how long a broker has been away, as the delays before the next attempts count it.

    A connection that does not last is no end of an outage: who is cut off again and again comes
    back ever more rarely.

    Attributes:
        away: seconds in vain.
    """

    def __init__(self) -> None:
        self.away = 0.0

    def waited(self, seconds: float) -> None:
        """There was no connection for so long."""
        self.away += seconds

    def was_up(self, seconds: float) -> None:
        """There was a connection for so long."""
        self.away = 0.0 if seconds >= GOOD_AFTER else self.away + min(seconds, FLAP)


def jittered(seconds: float, random: Random) -> float:
    """`seconds`, give or take a quarter: peers that wait for the same must not ask in step."""
    return seconds * (0.75 + 0.5 * random.random())


class Patience:
    """How long to wait for an answer, each time twice as long as the time before."""

    def __init__(self, first: float, longest: float, random: Random) -> None:
        """`first` and `longest` in seconds, before they are jittered."""
        self._first = first
        self._longest = longest
        self._random = random
        self._seconds = first

    def begin_anew(self) -> None:
        """The next wait is a first one."""
        self._seconds = self._first

    def next(self) -> float:
        """Seconds to wait now."""
        seconds = self._seconds
        self._seconds = min(2.0 * seconds, self._longest)
        return jittered(seconds, self._random)
