"""Functions of float64 with the same bits on every CPU: only + - * / and comparisons, in order."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

# exp(x) = 2^k exp(r) with x = k ln 2 + r, |r| <= 0.35 (Cody and Waite 1980): ln 2 in two parts, of
# which the first has so few bits that k times it is exact; the Taylor series to r^13 is off by less
# than a unit in the last place.
LOG2_E = 1.4426950408889634
LN2_HIGH = 0.6931471803691238
LN2_LOW = 1.9082149292705877e-10
LARGEST = 700.0  # above, exp is infinite; below -700 it is 0
EXPONENTS = tuple(1.0 / math.factorial(power) for power in range(13, -1, -1))
BIAS = 1023  # of a float64's exponent
FRACTION_BITS = 52

TINY = 1e-5  # below it two terms of a series are as exact as a float32 needs
# log(1 + x) = 2 artanh(s), s = x / (2 + x): the series to s^27, for s <= 1/3.
ARTANH = tuple(1.0 / power for power in range(27, 0, -2))
# exp(z^2) erfc(z) = t P(t), t = 2 / (2 + z): a minimax fit of degree 14 on 0.14 <= t <= 1, which is
# z <= 12; relative error 2e-11. Beyond, erfc is below any float32.
ERFC = (
    -0.015015988084204098,
    0.15066474964914447,
    -0.6734184486003554,
    1.7530671358795984,
    -2.9051633647730943,
    3.1379339039638507,
    -2.200411104407877,
    1.0642795417222142,
    -0.4723786695904076,
    0.10890659076835518,
    0.06136579000052059,
    0.1794194682940518,
    0.24654537019931758,
    0.2821106247398687,
    0.28209440024016624,
)


@njit(error_model="numpy")
def exp(x: float) -> float:
    """The exponential: 0 below -700, infinite above 700; NaN stays NaN."""
    if x < -LARGEST:
        return 0.0
    if x > LARGEST:
        return np.inf
    k = math.floor(x * LOG2_E + 0.5)
    r = (x - k * LN2_HIGH) - k * LN2_LOW
    value = 0.0
    for coefficient in EXPONENTS:
        value = value * r + coefficient
    return value * np.int64((np.int64(k) + BIAS) << FRACTION_BITS).view(np.float64)  # 2^k, exact


@njit(error_model="numpy")
def expm1(x: float) -> float:
    """exp(x) - 1 to a relative error of 1e-10."""
    if -TINY < x < TINY:
        return x + 0.5 * x * x
    return exp(x) - 1.0


@njit(error_model="numpy")
def log1p(x: float) -> float:
    """log(1 + x) of 0 <= x <= 1."""
    s = x / (2.0 + x)
    square = s * s
    value = 0.0
    for coefficient in ARTANH:
        value = value * square + coefficient
    return 2.0 * s * value


@njit(error_model="numpy")
def logistic(x: float) -> float:
    """1 / (1 + exp(-x))."""
    return 1.0 / (1.0 + exp(-x))


@njit(error_model="numpy")
def normal(x: float) -> float:
    """The standard normal distribution below x, with a relative error of 1e-9 in its tail too."""
    z = abs(x) * math.sqrt(0.5)
    t = 2.0 / (2.0 + z)
    value = 0.0
    for coefficient in ERFC:
        value = value * t + coefficient
    tail = 0.5 * exp(-z * z) * (t * value)
    return tail if x < 0.0 else 1.0 - tail
