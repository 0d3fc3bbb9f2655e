"""How much of something somebody may have: a bucket that time refills; pure."""

from __future__ import annotations


class Allowance:
    """At most `most` at once and `rate` a second in the long run; a full bucket at first.

    `now` is always in seconds of any clock that begins at 0 or later and never goes back.
    """

    def __init__(self, rate: float, most: float) -> None:
        self._rate = rate
        self._most = most
        self._level = most
        self._at = 0.0

    def take(self, amount: float, now: float) -> bool:
        """Take `amount` if that much is there now; whether it was."""
        self._refill(now)
        if amount > self._level:
            return False
        self._level -= amount
        return True

    def overdraw(self, amount: float) -> None:
        """Take `amount`, be it there or not: a debt is worked off before there is `delay` 0."""
        self._level -= amount

    def delay(self, now: float) -> float:
        """Seconds until something is there; 0 where it is."""
        self._refill(now)
        return 0.0 if self._level > 0.0 else (1.0 - self._level) / max(self._rate, 1e-9)

    def full(self, now: float) -> bool:
        """Whether nothing is missing: who forgets the bucket then, forgives nothing."""
        self._refill(now)
        return self._level >= self._most

    def _refill(self, now: float) -> None:
        self._level = min(self._most, self._level + self._rate * (now - self._at))
        self._at = now
