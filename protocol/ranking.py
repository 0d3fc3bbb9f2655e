"""Returns to centred ranks: integers that depend on the order of the returns alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def centred_ranks(returns: ArrayLike) -> NDArray[np.int64]:
    """Rank returns as even or odd integers that sum to zero; equal returns get equal ranks.

    A value's rank is `lo + hi - (n - 1)`, where lo and hi are the first and the last position of
    its tie group in ascending order: from -(n - 1) for the lowest to n - 1 for the highest. Divided
    by 2 (n - 1) these are the ranks in [-0.5, 0.5] of Salimans et al. 2017 ("Evolution Strategies
    as a Scalable Alternative to Reinforcement Learning"), with ties shared instead of broken by
    position, so that equal returns never move the parameters.

    Args:
        returns: shape (n,), finite.

    Raises:
        ValueError: a return is NaN or infinite, or the shape is not (n,).
    """
    values = np.asarray(returns, dtype=np.float64)
    if values.ndim != 1:
        raise ValueError(f"returns of shape {values.shape}: must have one dimension")
    finite = np.isfinite(values)
    if not finite.all():
        position = int(np.argmin(finite))
        raise ValueError(f"return {values[position]} at position {position}: must be finite")
    ascending = np.sort(values)
    first = np.searchsorted(ascending, values, side="left")
    last = np.searchsorted(ascending, values, side="right") - 1
    return (first + last - (values.size - 1)).astype(np.int64)
