"""Utilities by position among the returns, the best first, shared by what ties."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from protocol.strategies.base import Vector


def by_position(returns: ArrayLike, table: Vector) -> Vector:
    """The entry of `table` at the position of each return in descending order; ties get the mean of
    theirs, so that it is the same in any order.

    Args:
        returns: finite, shape (n,).
        table: shape (n,).
    """
    values = np.asarray(returns, dtype=np.float64)
    _, group = np.unique(-values, return_inverse=True)
    sums = np.zeros(int(group.max(initial=-1)) + 1)
    counts = np.zeros_like(sums)
    # In the order of the table, whatever that of the returns is.
    ascending = np.sort(group)
    np.add.at(sums, ascending, table)
    np.add.at(counts, ascending, 1.0)
    shared: NDArray[np.float64] = (sums / counts)[group]
    return shared
