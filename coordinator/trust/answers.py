"""What two workers say of the same episodes, compared: the same numbers, or the same direction."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from protocol.messages import TaskKind


class Answer(msgspec.Struct, frozen=True, eq=False, gc=False):
    """What a worker says of the units `[first, first + n)` at `version`.

    `returns` float64 and `lengths` int64: (n, members per direction), +sigma first; (n,) for
    episodes of the centre. NaN returns are those of episodes that raised. `numeric` is the class
    of the session that evaluated them, empty where it has none; `observed` their observation sums.
    """

    worker: str
    numeric: bytes
    kind: TaskKind
    version: int
    first: int
    returns: NDArray[np.float64]
    lengths: NDArray[np.int64]
    observed: bytes = b""

    @property
    def end(self) -> int:
        """One after its last unit."""
        return self.first + len(self.returns)

    def key(self, first: int, end: int, sums: bool) -> bytes:
        """Equal for answers that say the same of units `[first, end)`, and of their sums."""
        rows = slice(first - self.first, end - self.first)
        said = (self.returns[rows] + 0.0).tobytes() + self.lengths[rows].tobytes()
        return said + self.observed if sums else said


class Comparison(NamedTuple):
    """What a comparison of two answers shows, of units that both have and that raised for none."""

    units: int
    exact: bool
    """they are of one numeric class: a difference proves that one of them is wrong"""
    differs: int | None
    """the first unit whose numbers differ, where they are of one class"""
    sums_differ: bool
    """of the same range they have other observation sums, in one class and nothing else differing
    """
    alike: int
    """pairs of members of which both say that the same one is better"""
    unlike: int
    """pairs of which they say the opposite"""

    @property
    def agrees(self) -> bool:
        """Whether nothing speaks against either."""
        if self.exact:
            return self.differs is None and not self.sums_differ
        return self.unlike <= self.alike


def compare(one: Answer, other: Answer) -> Comparison | None:
    """What the answers show of each other; None where they have no unit of one version in common.

    Across numeric classes nothing is ever proved: only the signs of pair differences are counted,
    +sigma against -sigma or, without mirrors, each unit against the next.
    """
    first, end = max(one.first, other.first), min(one.end, other.end)
    if first >= end or one.version != other.version or one.kind != other.kind:
        return None
    ours, theirs = (each.returns[first - each.first : end - each.first] for each in (one, other))
    known = ~(np.isnan(_column(ours)) | np.isnan(_column(theirs)))
    units = int(np.count_nonzero(known))
    if not units:
        return None
    if one.numeric and one.numeric == other.numeric:
        steps, others = (
            each.lengths[first - each.first : end - each.first] for each in (one, other)
        )
        same = (ours == theirs) & (steps == others)
        wrong = np.flatnonzero(known & ~(same if same.ndim == 1 else same.all(axis=1)))
        differs = first + int(wrong[0]) if len(wrong) else None
        alike_range = (one.first, one.end) == (other.first, other.end)
        sums = differs is None and alike_range and one.observed != other.observed
        return Comparison(units, True, differs, sums, 0, 0)
    product = _differences(ours[known]) * _differences(theirs[known])
    alike, unlike = int(np.count_nonzero(product > 0)), int(np.count_nonzero(product < 0))
    return Comparison(units, False, None, False, alike, unlike)


def _column(returns: NDArray[np.float64]) -> NDArray[np.float64]:
    """One return of each unit: all are NaN, or none."""
    return returns if returns.ndim == 1 else returns[:, 0]


def _differences(returns: NDArray[np.float64]) -> NDArray[np.float64]:
    """The signs of differences within disjoint pairs of members."""
    if returns.ndim == 2 and returns.shape[1] == 2:
        return np.asarray(
            (returns[:, 0] > returns[:, 1]) * 1.0 - (returns[:, 0] < returns[:, 1]), np.float64
        )
    flat = returns.reshape(len(returns))
    pairs = len(flat) // 2
    low, high = flat[0 : 2 * pairs : 2], flat[1 : 2 * pairs : 2]
    return np.asarray((low > high) * 1.0 - (low < high), np.float64)
