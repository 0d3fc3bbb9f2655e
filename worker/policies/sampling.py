"""Choices drawn from a stream of the episode's seed: the same on every CPU and in every lane."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from protocol.kernels import fill_stream
from protocol.streams import Domain
from worker.policies.exact import exp

ACTION = np.uint64(Domain.ACTION)
FRACTION_BITS = np.uint64(11)  # of a word that a float64 below 1 has no place for
FRACTION = 2.0**-53


@njit(error_model="numpy")
def uniform(run_seed: np.uint64, seed: np.uint64, number: int, block: NDArray[np.uint64]) -> float:
    """Number `number` of those in [0, 1) that belong to an episode: a word's first 53 bits.

    `block` is room for 8 words.
    """
    fill_stream(run_seed, ACTION, seed, np.uint64(number >> 2), block, 8)
    return float(block[number & 3] >> FRACTION_BITS) * FRACTION


@njit(error_model="numpy")
def softmax_choice(logits: NDArray[np.float32], share: float, room: NDArray[np.float64]) -> int:
    """The choice in whose interval `share` lies, when [0, 1) is cut as the softmax of `logits`.

    Where the largest of them is no finite number: the first that is as large. `room` holds as many
    as `logits`.
    """
    best = 0
    for i in range(1, logits.size):
        if logits[i] > logits[best]:
            best = i
    total = 0.0
    for i in range(logits.size):
        total += exp(np.float64(logits[i]) - np.float64(logits[best]))
        room[i] = total
    for i in range(logits.size):
        if room[i] > share * total:
            return i
    return best  # no sum is larger than a share that is no number


@njit(error_model="numpy")
def switched_on(logit: np.float32, share: float) -> bool:
    """Whether `share` lies below the logistic function of `logit`."""
    if logit > 0:
        return share * (1.0 + exp(-np.float64(logit))) < 1.0
    odds = exp(np.float64(logit))
    return share * (1.0 + odds) < odds
