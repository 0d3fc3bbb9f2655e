"""Sums of squares, exponentials and logarithms that are the same on every machine."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

LARGEST_EXPONENT = 700.0
"""Of `exp`: more in magnitude counts as this."""
_LOG2_E = float.fromhex("0x1.71547652b82fep+0")
_LN2_HIGH = float.fromhex("0x1.62e42fee00000p-1")  # times an exponent it is exact
_LN2_LOW = float.fromhex("0x1.a39ef35793c76p-33")
_INVERSE_FACTORIALS = tuple(1.0 / math.factorial(n) for n in range(13, -1, -1))
_LIMB_BITS = 18
_LIMB_MASK = (1 << _LIMB_BITS) - 1
_LOWEST_EXPONENT = -1000
"""Of the power of two that values are scaled by: its inverse must be a number."""
_BLOCK = 1 << 13
"""Elements whose limb products add up below 2**53; in cache, and too few for threads to start."""


def sum_of_squares(values: NDArray[np.int64]) -> int:
    """The exact sum of values**2, for values in -2**53 .. 2**53."""
    if values.size == 0:
        return 0
    peak = max(-int(values.min()), int(values.max()))
    if peak**2 * values.size < 1 << 63:
        return int(np.dot(values, values))
    blocks = range(0, values.size, _BLOCK)
    return sum(_limb_sum_of_squares(values[begin : begin + _BLOCK]) for begin in blocks)


def norm(values: NDArray[np.int64]) -> float:
    """The Euclidean norm of integers: the square root of the exact sum, each rounded once."""
    return math.sqrt(sum_of_squares(values))


def euclidean(values: NDArray[np.float64]) -> float:
    """The Euclidean norm of finite numbers, infinite beyond the largest one; equal everywhere.

    Squares are added by folding the later half onto the earlier one until one is left: elementwise
    sums only, in an order that the number of values alone decides. Before that they are scaled by a
    power of two, which is exact, so that no square leaves the range.
    """
    largest = float(np.abs(values).max(initial=0.0))
    if largest == 0.0:
        return 0.0
    exponent = max(math.frexp(largest)[1], _LOWEST_EXPONENT)
    scaled = values * math.ldexp(1.0, -exponent)
    squares, left = scaled * scaled, values.size
    while left > 1:
        kept = (left + 1) // 2
        squares[: left - kept] += squares[kept:left]
        left = kept
    try:
        return math.ldexp(math.sqrt(squares[0]), exponent)
    except OverflowError:
        return math.inf


def exp(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """e to the power of finite values, within 2 units in the last place; equal on every machine.

    Reduced by multiples of ln 2 to +-0.35 (Cody and Waite 1980), a Taylor polynomial of degree 13
    by Horner's rule, scaled by an exact power of two. Values are limited to +-`LARGEST_EXPONENT`.
    """
    return _exponential(np.clip(values, -LARGEST_EXPONENT, LARGEST_EXPONENT))


def log(values: ArrayLike) -> NDArray[np.float64]:
    """The natural logarithms of finite values above 0, within 1e-15 of their magnitude or of 1;
    equal on every machine.

    Halley's iteration on `exp` for the fractions, whose error each step cubes.
    """
    fractions, exponents = np.frexp(np.asarray(values, dtype=np.float64))
    found = 2.0 * (fractions - 1.0) / (fractions + 1.0)
    for _ in range(3):
        powers = _exponential(found)
        found = found + 2.0 * (fractions - powers) / (fractions + powers)
    logarithms: NDArray[np.float64] = exponents * _LN2_HIGH + (exponents * _LN2_LOW + found)
    return logarithms


def _exponential(values: NDArray[np.float64]) -> NDArray[np.float64]:
    times = np.rint(values * _LOG2_E)
    rest = (values - times * _LN2_HIGH) - times * _LN2_LOW
    sums = np.full_like(rest, _INVERSE_FACTORIALS[0])
    for coefficient in _INVERSE_FACTORIALS[1:]:
        sums = sums * rest + coefficient
    return np.ldexp(sums, times.astype(np.int32))


def _limb_sum_of_squares(values: NDArray[np.int64]) -> int:
    # Dot products of 18-bit limbs are exact in float64 in whatever order a library adds them.
    low = (values & _LIMB_MASK).astype(np.float64)
    middle = (values >> _LIMB_BITS & _LIMB_MASK).astype(np.float64)
    high = (values >> 2 * _LIMB_BITS).astype(np.float64)
    coefficients = (
        low @ low,
        2 * (low @ middle),
        2 * (low @ high) + middle @ middle,
        2 * (middle @ high),
        high @ high,
    )
    return sum(int(c) << _LIMB_BITS * power for power, c in enumerate(coefficients))
