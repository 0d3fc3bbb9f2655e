"""Objectives for tests."""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

NO_FUNCTION = 3
EVERY = 1009


def sphere(theta: NDArray[np.float32]) -> float:
    return float(((theta.astype(np.float64) - 3.0) ** 2).sum())


def rosenbrock(theta: NDArray[np.float32]) -> float:
    x, y = theta[:-1].astype(np.float64), theta[1:].astype(np.float64)
    return float((100.0 * (y - x**2) ** 2 + (1.0 - x) ** 2).sum())


def noisy(theta: NDArray[np.float32], seed: int) -> float:
    return sphere(theta) + float(np.random.default_rng(seed).normal())


def greedy(theta: NDArray[np.float32]) -> float:
    """Keeps nothing of what it was given."""
    value = sphere(theta)
    theta[:] = np.nan
    return value


def logarithm(theta: NDArray[np.float32]) -> Any:
    """Defined around 5, and above 0 only: not a number, or no number, elsewhere."""
    if theta[0] < -1.0:
        return "no number"
    return math.nan if theta[0] <= 0.0 else np.float32(math.log(theta[0]))


def crashing(theta: NDArray[np.float32], *, seed: int) -> float:
    if seed % EVERY == 0:
        os.abort()
    return sphere(theta)
