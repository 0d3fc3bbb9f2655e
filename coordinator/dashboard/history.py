"""What a page shows of the past: curves, thinned as they grow, the last updates and events."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from coordinator.dashboard.published import finite, half_width

MOST_POINTS = 2000
"""Of a curve: where it has more, every second one is let go of, and of what comes then."""
RECENT_POINTS = 1024
"""That a page can still get one by one."""
MOST_UPDATES = 100
MOST_EVENTS = 200
LONGEST_EVENT = 400
"""Characters."""

T = TypeVar("T")
Point = tuple[Any, ...]


class Reel(Generic[T]):
    """The last of items that are numbered from 0 as they come."""

    def __init__(self, most: int) -> None:
        self.next = 0
        self._items: deque[T] = deque(maxlen=most)

    def add(self, item: T) -> None:
        """One more."""
        self._items.append(item)
        self.next += 1

    def since(self, number: int) -> tuple[int, list[T]]:
        """(number of the first, those from that number on that are still there)."""
        first = max(number, self.next - len(self._items))
        return first, list(self._items)[len(self._items) - (self.next - first) :]


class Curve(Reel[Point]):
    """A curve that may grow for ever."""

    def __init__(self) -> None:
        super().__init__(RECENT_POINTS)
        self._kept: list[Point] = []
        self._every = 1

    def add(self, item: Point) -> None:
        """One more point."""
        if self.next % self._every == 0:
            self._kept.append(item)
            if len(self._kept) > MOST_POINTS:
                del self._kept[1::2]
                self._every *= 2
        super().add(item)

    @property
    def thinned(self) -> list[Point]:
        """From the first to the last point, some between them left out."""
        if not self._items:
            return []
        last = self._items[-1]
        return [*self._kept, *([] if self._kept[-1] is last else [last])]


class History:
    """What was told of the run since it began, as far as it is kept.

    Attributes:
        members: points (version, seconds, episodes, steps, mean, deviation, best, workers, bytes).
        centres: points (version, seconds, mean, half of the interval, episodes).
        updates: of each the fields that the page lists.
        events: (Unix time in seconds, line).
    """

    def __init__(self) -> None:
        self.members = Curve()
        self.centres = Curve()
        self.updates: Reel[Mapping[str, Any]] = Reel(MOST_UPDATES)
        self.events: Reel[tuple[float, str]] = Reel(MOST_EVENTS)

    def metrics(self, line: Mapping[str, Any]) -> None:
        """A line of metrics; what is none is left out."""
        kind = line.get("kind")
        if kind == "update":
            self._update(line)
        elif kind == "centre":
            deviation, episodes = line.get("return_deviation"), line.get("episodes")
            self.centres.add(
                (
                    line.get("version"),
                    line.get("seconds"),
                    _number(line.get("mean_return")),
                    half_width(deviation, episodes),
                    episodes,
                )
            )

    def event(self, moment: float, line: str) -> None:
        """Something happened."""
        self.events.add((round(moment, 1), line[:LONGEST_EVENT]))

    def _update(self, line: Mapping[str, Any]) -> None:
        self.members.add(
            (
                line.get("version"),
                line.get("seconds"),
                line.get("episodes"),
                line.get("env_steps"),
                _number(line.get("mean_return")),
                _number(line.get("return_deviation")),
                _number(line.get("best_return")),
                line.get("workers"),
                line.get("wire_bytes"),
            )
        )
        self.updates.add(
            {
                "version": line.get("version"),
                "members": line.get("members"),
                "late": line.get("late_members"),
                "dropped": line.get("dropped_directions"),
                "mean": _number(line.get("mean_return")),
                "hash": str(line.get("params_hash", ""))[:12],
                "took": _number(line.get("update_seconds")),
                "seconds": _number(line.get("seconds")),
            }
        )


def _number(value: Any) -> float | None:
    return finite(float(value)) if isinstance(value, int | float) else None
