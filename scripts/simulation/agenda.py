"""Virtual time: what happens next, one action after the other."""

from __future__ import annotations

import heapq
from collections.abc import Callable

Action = Callable[[], None]


class Agenda:
    """Actions by time; those of one time in the order in which they were entered."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        """virtual seconds"""
        self._actions: list[tuple[float, int, Action]] = []
        self._entered = 0

    def at(self, time: float, action: Action) -> None:
        """Do something at a time; at once, where it has passed."""
        self._entered += 1
        heapq.heappush(self._actions, (time, self._entered, action))

    def after(self, seconds: float, action: Action) -> None:
        """Do something so much later."""
        self.at(self.now + seconds, action)

    def run(self, until: Callable[[], bool], seconds: float) -> bool:
        """Go on until the condition holds; False where so many seconds were not enough."""
        end = self.now + seconds
        while not until():
            if not self._actions or self._actions[0][0] > end:
                self.now = end
                return until()
            time, _, action = heapq.heappop(self._actions)
            self.now = max(self.now, time)
            action()
        return True
