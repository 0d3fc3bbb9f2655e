"""The units of work that nobody evaluates yet, as sorted disjoint ranges."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Set
from typing import NamedTuple

NOBODY: frozenset[str] = frozenset()


class Range(NamedTuple):
    """Units `[first, end)`: directions of a batch, or episodes of a centre evaluation.

    `avoid` are the workers that failed it or let it run out, `attempts` how often it ran out;
    `awaited`: a lease of it was overdue, so that no batch need wait for it once more.
    """

    first: int
    end: int
    avoid: frozenset[str] = NOBODY
    attempts: int = 0
    awaited: bool = False

    @property
    def size(self) -> int:
        """Units in it."""
        return self.end - self.first

    def part(self, first: int, end: int) -> Range:
        """`[first, end)` with the same history."""
        return Range(first, end, *self[2:])


class Ranges:
    """A set of integers kept as ranges; `take` hands out the lowest."""

    def __init__(self, first: int, end: int) -> None:
        self._ranges: list[Range] = []
        self.total = 0
        """units in it"""
        self.unawaited = 0
        """those that no overdue lease ever held"""
        self.add(Range(first, end))

    def __iter__(self) -> Iterator[Range]:
        return iter(self._ranges)

    def add(self, new: Range) -> None:
        """Put a range in; none of it may be there already. Neighbours of one history merge."""
        if new.size <= 0:
            return
        self._count(new, 1)
        place = bisect_left(self._ranges, new.first, key=lambda old: old.first)
        begin, end = place, place
        if begin > 0 and _continues(self._ranges[begin - 1], new):
            begin -= 1
            new = new.part(self._ranges[begin].first, new.end)
        if end < len(self._ranges) and _continues(new, self._ranges[end]):
            new = new.part(new.first, self._ranges[end].end)
            end += 1
        self._ranges[begin:end] = [new]

    def take(self, most: int, worker: str, eligible: Set[str]) -> Range | None:
        """Take out the lowest range for this worker, at most `most` long, or None.

        A range that avoids the worker is for it again once all who are `eligible` are avoided.
        """
        for place, whole in enumerate(self._ranges):
            if worker in whole.avoid and not eligible <= whole.avoid:
                continue
            end = min(whole.end, whole.first + most)
            self._ranges[place : place + 1] = [whole.part(end, whole.end)] * (end < whole.end)
            taken = whole.part(whole.first, end)
            self._count(taken, -1)
            return taken
        return None

    def take_exactly(self, first: int, end: int, worker: str) -> Range | None:
        """Take out `[first, end)`, not empty, or None where not all of it is there or a part avoids
        the worker."""
        begin = bisect_right(self._ranges, first, key=lambda old: old.end)
        stop = bisect_left(self._ranges, end, key=lambda old: old.first)
        parts = self._ranges[begin:stop]
        there = sum(min(part.end, end) - max(part.first, first) for part in parts)
        if there < end - first or any(worker in part.avoid for part in parts):
            return None
        self.remove(first, end)
        return Range(
            first,
            end,
            NOBODY.union(*(part.avoid for part in parts)),
            max(part.attempts for part in parts),
            all(part.awaited for part in parts),
        )

    def remove(self, first: int, end: int) -> None:
        """Take out whatever of `[first, end)`, not empty, is there."""
        begin = bisect_right(self._ranges, first, key=lambda old: old.end)
        stop = bisect_left(self._ranges, end, key=lambda old: old.first)
        touched = self._ranges[begin:stop]
        kept = [old.part(old.first, first) for old in touched[:1] if old.first < first]
        kept += [old.part(end, old.end) for old in touched[-1:] if old.end > end]
        self._ranges[begin:stop] = kept
        for old in touched:
            self._count(old, -1)
        for new in kept:
            self._count(new, 1)

    def _count(self, part: Range, sign: int) -> None:
        self.total += sign * part.size
        if not part.awaited:
            self.unawaited += sign * part.size


def _continues(low: Range, high: Range) -> bool:
    return low.end == high.first and low[2:] == high[2:]
