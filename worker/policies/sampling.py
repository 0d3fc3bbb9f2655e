"""Choices drawn from a stream of the episode's seed: the same on every CPU and in every lane."""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from protocol.kernels import fill_stream
from protocol.streams import Domain

ACTION = np.uint64(Domain.ACTION)
FRACTION_BITS = np.uint64(11)  # of a word that a float64 below 1 has no place for
FRACTION = 2.0**-53

# exp(x) = 2^k exp(r) with x = k ln 2 + r, |r| <= 0.35 (Cody and Waite 1980): ln 2 in two parts, of
# which the first has so few bits that k times it is exact; the Taylor series to r^13 is off by less
# than a unit in the last place.
LOG2_E = 1.4426950408889634
LN2_HIGH = 0.6931471803691238
LN2_LOW = 1.9082149292705877e-10
SMALLEST = -700.0  # below, exp is 0: nothing is ever drawn with so small a probability
COEFFICIENTS = tuple(1.0 / math.factorial(power) for power in range(13, -1, -1))


@njit(error_model="numpy")
def exp(x: float) -> float:
    """The exponential of a float64 up to 700; 0 below -700."""
    if x < SMALLEST:
        return 0.0
    k = math.floor(x * LOG2_E + 0.5)
    r = (x - k * LN2_HIGH) - k * LN2_LOW
    value = 0.0
    for coefficient in COEFFICIENTS:
        value = value * r + coefficient
    return math.ldexp(value, int(k))  # exact


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
