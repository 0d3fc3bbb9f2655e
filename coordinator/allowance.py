"""How much of something a stranger may have: a bucket that time refills; pure."""

from __future__ import annotations


class Allowance:
    """At most `most` at once and `rate` a second in the long run."""

    def __init__(self, rate: float, most: float, now: float) -> None:
        """A full bucket at time `now`, in seconds of any clock that never goes back."""
        self._rate = rate
        self._most = most
        self._level = most
        self._at = now

    def take(self, amount: float, now: float) -> bool:
        """Take `amount` if that much is there now; whether it was."""
        self._refill(now)
        if amount > self._level:
            return False
        self._level -= amount
        return True

    def full(self, now: float) -> bool:
        """Whether nothing is missing: who forgets the bucket then, forgives nothing."""
        self._refill(now)
        return self._level >= self._most

    def _refill(self, now: float) -> None:
        self._level = min(self._most, self._level + self._rate * (now - self._at))
        self._at = now
