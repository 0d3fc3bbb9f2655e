"""In which updates a worker's accepted results counted, and for what share of their members. Pure.

An answer may come before the update that uses the result, or after it: both are kept for a while.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from protocol.messages import Cohort, Result, Update
from protocol.packing import WireError, unpack_integers
from protocol.spec import MAX_DIRECTIONS

UPDATES_KEPT = 16
"""Updates that an answer may come after."""
RESULTS_KEPT = 1024
"""Accepted results that wait for their update."""

Range = tuple[int, int]
"""The first direction, and that after the last, of a result."""


class Counting:
    """What the updates since we joined used of us.

    Attributes:
        updates: in how many of them a result of ours counted.
        directions: of ours, with a weight.
        of: directions with a weight of everybody, in all updates since our first task.
    """

    def __init__(self) -> None:
        self.updates = 0
        self.directions = 0
        self.of = 0
        self._began = math.inf
        self._ours: defaultdict[int, list[Range]] = defaultdict(list)
        """by the version that they were evaluated at"""
        self._latest: deque[int] = deque()
        """the versions of all of these, in the order in which they came"""
        self._seen: deque[tuple[Update, list[bool]]] = deque(maxlen=UPDATES_KEPT)

    @property
    def share(self) -> float:
        """Of the members of all updates since our first task, 0 to 1."""
        return self.directions / self.of if self.of else 0.0

    def began(self, version: int) -> None:
        """We have a task of that version."""
        self._began = min(self._began, version)

    def accepted(self, results: Iterable[Result]) -> None:
        """The coordinator took these results of ours."""
        for result in results:
            if result.kind != "members":
                continue
            ours = (result.first, result.first + result.count)
            self._keep(result.version, ours)
            for update, counted in self._seen:
                if update.version >= result.version:
                    self._count(update, {result.version: [ours]}, counted)

    def update(self, update: Update) -> None:
        """The next update, as it was signed."""
        if update.version < self._began:
            return
        self.of += sum(int(np.count_nonzero(_weights(cohort))) for cohort in update.cohorts)
        counted = [False]
        self._seen.append((update, counted))
        self._count(update, self._ours, counted)

    def _keep(self, version: int, ours: Range) -> None:
        if len(self._latest) == RESULTS_KEPT:
            oldest = self._latest.popleft()
            self._ours[oldest].pop(0)
            if not self._ours[oldest]:
                del self._ours[oldest]
        self._ours[version].append(ours)
        self._latest.append(version)

    def _count(
        self, update: Update, ours: Mapping[int, Sequence[Range]], counted: list[bool]
    ) -> None:
        """Each pair of an update and a range comes here once."""
        for cohort in update.cohorts:
            found = [one for one in ours.get(cohort.version, ()) if one[1] > cohort.first]
            if not found:
                continue
            weights = _weights(cohort)
            used = sum(
                int(np.count_nonzero(weights[max(0, begin - cohort.first) : end - cohort.first]))
                for begin, end in found
            )
            self.directions += used
            if used and not counted[0]:
                counted[0] = True
                self.updates += 1


def _weights(cohort: Cohort) -> np.ndarray:
    try:
        return unpack_integers(cohort.weights, MAX_DIRECTIONS)
    except WireError:  # whoever applies it says so
        return np.zeros(0, np.int64)
