"""The units of work that nobody evaluates yet, as sorted disjoint ranges."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Set
from typing import NamedTuple

import msgspec

NOBODY: frozenset[str] = frozenset()
SUSPECT_AFTER = 2
"""Failures of a range after which it is given out in ever smaller pieces: what breaks its workers
is found without breaking more of them."""


class Blame(NamedTuple):
    """What a lease that ended without its result adds to the history of its range."""

    avoid: frozenset[str] = NOBODY
    """who should not have it again first"""
    attempts: int = 0
    """1: it ran out"""
    failures: int = 0
    """1: its worker failed it"""


NO_BLAME = Blame()


class Range(msgspec.Struct, frozen=True, gc=False):
    """Units `[first, end)`: directions of a batch, or episodes of a centre evaluation.

    `avoid` are the workers that failed it or let it run out, `attempts` how often it ran out;
    `awaited`: a lease of it was overdue, so that no batch need wait for it once more; `failures`:
    how many leases of it ended in a failure of their worker; `most`: units of it that one lease may
    have, 0 as many as it likes.
    """

    first: int
    end: int
    avoid: frozenset[str] = NOBODY
    attempts: int = 0
    awaited: bool = False
    failures: int = 0
    most: int = 0

    @property
    def span(self) -> tuple[int, int]:
        """(first, end)."""
        return self.first, self.end

    @property
    def history(self) -> tuple[frozenset[str], int, bool, int, int]:
        """What leases of it came to."""
        return self.avoid, self.attempts, self.awaited, self.failures, self.most

    @property
    def size(self) -> int:
        """Units in it."""
        return self.end - self.first

    @property
    def suspect(self) -> bool:
        """Whether it may be what breaks its workers, and no other than its holder should try it at
        the same time. That it only ran out tells more of who had it."""
        return self.failures - self.attempts >= SUSPECT_AFTER

    def part(self, first: int, end: int) -> Range:
        """`[first, end)` with the same history."""
        return Range(first, end, self.avoid, self.attempts, self.awaited, self.failures, self.most)

    def after(self, blame: Blame, awaited: bool) -> Range:
        """The same units once a lease of them ended so."""
        failures = self.failures + blame.failures
        most = self.most
        if blame.failures and failures >= SUSPECT_AFTER:
            most = max(1, self.size // 2)
        return Range(
            self.first,
            self.end,
            self.avoid | blame.avoid,
            self.attempts + blame.attempts,
            self.awaited or awaited,
            failures,
            most,
        )


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
            end = whole.first + (most if not 0 < whole.most < most else whole.most)
            if end >= whole.end:
                del self._ranges[place]
                taken = whole
            else:
                self._ranges[place] = whole.part(end, whole.end)
                taken = whole.part(whole.first, end)
            count = taken.end - taken.first
            self.total -= count
            if not taken.awaited:
                self.unawaited -= count
            return taken
        return None

    def take_again(self, first: int, end: int, worker: str) -> Range | None:
        """Take out `[first, end)`, not empty, for who was given it before, or None where not all of
        it is there or the worker let a part run out.

        That it vanished with it is forgiven: it is back.
        """
        parts = self.within(first, end)
        there = sum(part.size for part in parts)
        if there < end - first or any(worker in part.avoid and part.attempts for part in parts):
            return None
        self.remove(first, end)
        failures = max(0, *(part.failures - (worker in part.avoid) for part in parts))
        return Range(
            first,
            end,
            NOBODY.union(*(part.avoid for part in parts)) - {worker},
            max(part.attempts for part in parts),
            all(part.awaited for part in parts),
            failures,
            max(part.most for part in parts) if failures >= SUSPECT_AFTER else 0,
        )

    def within(self, first: int, end: int) -> list[Range]:
        """What of `[first, end)` is there."""
        begin = bisect_right(self._ranges, first, key=lambda old: old.end)
        stop = bisect_left(self._ranges, end, key=lambda old: old.first)
        touched = self._ranges[begin:stop]
        return [old.part(max(old.first, first), min(old.end, end)) for old in touched]

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
        size = sign * (part.end - part.first)
        self.total += size
        if not part.awaited:
            self.unawaited += size


def _continues(low: Range, high: Range) -> bool:
    return low.end == high.first and low.history == high.history
