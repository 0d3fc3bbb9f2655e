"""How much the pool could have evaluated, and how much of that time its workers were busy."""

from __future__ import annotations

from typing import NamedTuple


class Reading(NamedTuple):
    """Environment steps since the start."""

    capacity: float
    """that the workers who were there could have made"""
    busy: float
    """that they made, whatever came of them"""


class Meter:
    """Integrates the workers' speeds over virtual time, however often they change."""

    def __init__(self, now: float) -> None:
        self._now = now
        self._capacity = self._busy = 0.0
        self._speed = self._busy_speed = 0.0

    def change(self, now: float, capacity: float = 0.0, busy: float = 0.0) -> None:
        """From now on so many steps per second more are possible, and are made."""
        self.read(now)
        self._speed += capacity
        self._busy_speed += busy

    def read(self, now: float) -> Reading:
        """The sums up to now."""
        self._capacity += self._speed * (now - self._now)
        self._busy += self._busy_speed * (now - self._now)
        self._now = now
        return Reading(self._capacity, self._busy)
