"""What updates of the past have used, so that a pool that goes on uses it no second time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from coordinator.pool.events import Arrived
from coordinator.pool.ranges import Range, Ranges
from protocol.messages import Update
from protocol.packing import unpack_integers


def used(updates: Iterable[Update], kept: Sequence[Arrived]) -> tuple[tuple[int, int], ...]:
    """The directions, as disjoint ascending (first, count), that these updates used or dropped.

    A weight of 0 may be that of a direction whose return was not there or that of one in the middle
    of the ranks: such a one is taken for used, unless it is in a result of the members that was
    `kept` because no update has used it.
    """
    found = Ranges(0, 0)
    for first, end in _spans(updates):
        found.remove(first, end)
        found.add(Range(first, end))
    for result in kept:
        if result.kind == "members":
            found.remove(result.first, result.first + result.count)
    return tuple((part.first, part.size) for part in found)


def _spans(updates: Iterable[Update]) -> Iterator[tuple[int, int]]:
    for update in updates:
        for cohort in update.cohorts:
            most = len(cohort.weights)  # bytes, at least one a value
            yield cohort.first, cohort.first + len(unpack_integers(cohort.weights, most))
        for direction in update.dropped:
            yield direction, direction + 1
