"""Rank correlation."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def rank_correlation(one: ArrayLike, other: ArrayLike) -> float:
    """Spearman's rho of two arrays of one shape, ties at their mean rank; 0 where one is even."""
    first, second = _ranks(np.ravel(one)), _ranks(np.ravel(other))
    if not first.size or not np.any(first) or not np.any(second):
        return 0.0
    return float(first @ second / np.sqrt((first @ first) * (second @ second)))


def _ranks(values: NDArray[np.generic]) -> NDArray[np.float64]:
    """Mean rank of each value among all, minus the mean of all ranks."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2.0 - (len(values) + 1) / 2.0)[inverse]
