"""Vectors made orthonormal in one fixed order of sums: the same bits on every machine."""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray


@njit(cache=True)
def orthonormalise(vectors: NDArray[np.float64]) -> None:
    """Make the columns orthonormal, one after the other, in place (modified Gram-Schmidt).

    Of normal random numbers they are then uniformly distributed among all such, as the Q of a
    decomposition whose R has a positive diagonal (Mezzadri 2007): QR of a library would have other
    bits on another machine.

    Args:
        vectors: shape (elements, count <= elements), its columns linearly independent. Elements of
            all columns lie side by side, so that sums go through them in order and yet by vectors.
    """
    elements, count = vectors.shape
    shares = np.empty(count)
    for column in range(count):
        square = 0.0
        for i in range(elements):
            square += vectors[i, column] * vectors[i, column]
        length = math.sqrt(square)
        shares[column + 1 :] = 0.0
        for i in range(elements):
            vectors[i, column] /= length
            value = vectors[i, column]
            for other in range(column + 1, count):
                shares[other] += value * vectors[i, other]
        for i in range(elements):
            value = vectors[i, column]
            for other in range(column + 1, count):
                vectors[i, other] -= value * shares[other]
