"""What a screen remembers of a run: its curves, its last lines, and how fast it goes; pure."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coordinator.overview import Overview

MOST_POINTS = 2048
"""Of a curve; of more, two neighbours become one."""
MOST_EVENTS = 500
RATE_SECONDS = 20.0
"""In which the counts of a rate are taken, where they change that often."""
PATIENCE = 2.0
"""Times the usual time between two counts after which a rate falls, since nothing came."""


class Thread:
    """A curve of any length in bounded memory: its points become coarser, never shorter."""

    def __init__(self) -> None:
        self._each = 1
        self._whole: list[tuple[float, float]] = []
        self._sums: list[tuple[float, float]] = []

    def add(self, x: float, y: float) -> None:
        """A point to the right of all others; one that does not lie there begins the curve anew
        from it, since the run went back."""
        if self._whole and x < self._whole[-1][0]:
            self._whole = [point for point in self._whole if point[0] < x]
        self._sums.append((x, y))
        if len(self._sums) >= self._each:
            self._whole.append((x, sum(y for _, y in self._sums) / len(self._sums)))
            self._sums.clear()
        if len(self._whole) >= MOST_POINTS:
            pairs = zip(self._whole[::2], self._whole[1::2], strict=True)
            self._whole = [(right[0], (left[1] + right[1]) / 2.0) for left, right in pairs]
            self._each *= 2

    @property
    def points(self) -> list[tuple[float, float]]:
        """From left to right."""
        return self._whole


class Rates:
    """Episodes and steps a second, of counts that come in lumps: an update at a time."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int, int]] = deque()

    def count(self, now: float, episodes: int, steps: int) -> None:
        """So many have counted until now."""
        seen = self._seen
        if seen and (episodes, steps) == seen[-1][1:]:
            return
        if seen and episodes < seen[-1][1]:
            seen.clear()  # the run went back
        seen.append((now, episodes, steps))
        while len(seen) > 2 and now - seen[1][0] > RATE_SECONDS:
            seen.popleft()

    def at(self, now: float) -> tuple[float, float]:
        """(episodes, steps) a second."""
        seen = self._seen
        if len(seen) < 2:
            return 0.0, 0.0
        (first, *before), (last, *after) = seen[0], seen[-1]
        usual = (last - first) / (len(seen) - 1)
        seconds = (now if now - last > PATIENCE * usual else last) - first
        if seconds <= 0.0:
            return 0.0, 0.0
        return (after[0] - before[0]) / seconds, (after[1] - before[1]) / seconds


@dataclass
class History:
    """Fed with what happens, each as it comes.

    Attributes:
        members, centre: mean return by version, of the perturbed policies and of the unperturbed.
        events: the last lines, the newest last.
        latest: the last line of metrics about an update.
    """

    members: Thread = field(default_factory=Thread)
    centre: Thread = field(default_factory=Thread)
    rates: Rates = field(default_factory=Rates)
    events: deque[str] = field(default_factory=lambda: deque(maxlen=MOST_EVENTS))
    latest: Mapping[str, Any] = field(default_factory=dict)

    def tell(self, line: str) -> None:
        """Something happened."""
        self.events.append(line)

    def measure(self, line: Mapping[str, Any]) -> None:
        """A line of metrics; what is none is left out."""
        version, mean = line.get("version"), line.get("mean_return")
        if not isinstance(version, int) or isinstance(version, bool):
            return
        if line.get("kind") == "update":
            self.latest = line
        if not isinstance(mean, int | float) or not math.isfinite(mean):
            return
        if line.get("kind") == "update":
            self.members.add(version, float(mean))
        elif line.get("kind") == "centre":
            self.centre.add(version, float(mean))

    def look(self, overview: Overview, now: float) -> None:
        """A picture of the run."""
        self.rates.count(now, overview.episodes, overview.steps)

    def figure(self, name: str) -> float | None:
        """A figure of the last update; None where it has no such."""
        value = self.latest.get(name)
        if isinstance(value, int | float) and math.isfinite(value):
            return float(value)
        return None
