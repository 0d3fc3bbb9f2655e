"""Which directions count in an update, as arrays over all its contributions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coordinator.pool.events import Arrived, CloseBatch, Contribution


@dataclass(frozen=True, eq=False)
class Counted:
    """Directions with returns, in the order of their contributions or results."""

    directions: NDArray[np.int64]
    versions: NDArray[np.int64]
    """that each was evaluated at"""
    lengths: NDArray[np.int64]
    """(n, members of each) steps"""

    @classmethod
    def of(cls, parts: Sequence[Contribution] | Sequence[Arrived]) -> Counted:
        """What counts in these; a direction whose returns are NaN does not."""
        if not parts:
            none = np.empty(0, dtype=np.int64)
            return cls(none, none, none[:, np.newaxis])
        counts = np.array([len(part.returns) for part in parts])
        starts = np.cumsum(counts) - counts
        firsts = np.array([part.first for part in parts]) - starts
        directions = np.repeat(firsts, counts) + np.arange(counts.sum())
        versions = np.repeat([part.version for part in parts], counts)
        lengths = np.concatenate([part.lengths for part in parts])
        valid = ~np.isnan(np.concatenate([part.returns[:, 0] for part in parts]))
        return cls(directions[valid], versions[valid], lengths[valid])

    def by_batch(self, size: int) -> Iterator[tuple[int, NDArray[np.bool_]]]:
        """(index, which of the directions are of it) for each batch of that size."""
        indices = self.directions // size
        for index in np.unique(indices).tolist():
            yield index, indices == index


def counted(closed: CloseBatch) -> NDArray[np.int64]:
    """The directions that count in an update, in the order of its contributions."""
    return Counted.of(closed.contributions).directions


def used(closed: CloseBatch) -> Iterator[tuple[int, int]]:
    """(first, count) of the directions that an update used or dropped."""
    directions = np.sort(np.concatenate([counted(closed), np.array(closed.dropped, dtype=int)]))
    starts = np.flatnonzero(np.diff(directions, prepend=-2) != 1)
    ends = np.append(starts[1:], len(directions))
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        yield int(directions[start]), end - start
