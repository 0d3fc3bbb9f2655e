"""The part of a batch that nobody evaluates yet, as sorted disjoint ranges."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Range:
    """Directions (or centre episodes) `[first, end)`, best not given to the workers in `avoid`."""

    first: int
    end: int
    avoid: frozenset[str] = frozenset()


class Ranges:
    """A set of integers kept as ranges; `take` hands out the lowest."""

    def __init__(self, first: int, end: int) -> None:
        self._ranges = [Range(first, end)] if end > first else []
        self.total = end - first

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(self._ranges)

    def add(self, first: int, end: int, avoid: frozenset[str] = frozenset()) -> None:
        """Put `[first, end)` in; none of it may be there already."""
        if end <= first:
            return
        place = bisect_left(self._ranges, Range(first, end))
        self._ranges.insert(place, Range(first, end, avoid))
        self.total += end - first

    def take(self, most: int, worker: str, heed_avoid: bool = True) -> tuple[int, int] | None:
        """Take out the lowest range for this worker, at most `most` long: (first, end), or None."""
        for place, candidate in enumerate(self._ranges):
            if heed_avoid and worker in candidate.avoid:
                continue
            end = min(candidate.end, candidate.first + most)
            if end == candidate.end:
                del self._ranges[place]
            else:
                self._ranges[place] = Range(end, candidate.end, candidate.avoid)
            self.total -= end - candidate.first
            return candidate.first, end
        return None

    def remove(self, first: int, end: int) -> None:
        """Take out whatever of `[first, end)` is there."""
        kept: list[Range] = []
        for candidate in self._ranges:
            if candidate.end <= first or candidate.first >= end:
                kept.append(candidate)
                continue
            if candidate.first < first:
                kept.append(Range(candidate.first, first, candidate.avoid))
            if candidate.end > end:
                kept.append(Range(end, candidate.end, candidate.avoid))
            self.total -= min(candidate.end, end) - max(candidate.first, first)
        self._ranges = kept
