"""PyTorch's elementwise activations, beside the tanh and relu that every kernel has in it.

Each is compiled on its own when a policy asks for it, and called by its address: no kernel is
compiled anew for it. Sums are in float64, rounded once; settings are PyTorch's defaults.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, MutableSequence
from typing import Any

import numpy as np
from numba import cfunc, types

from worker.policies.exact import exp, expm1, log1p, logistic, normal

Values = MutableSequence[Any]
"""So many float32s, which become what the function makes of them."""

SELU_ALPHA = 1.6732632423543772  # Klambauer et al. 2017
SELU_SCALE = 1.0507009873554805
GELU_CUBIC = 0.044715  # Hendrycks and Gimpel 2016
GELU_SLOPE = 1.5957691216057308  # 2 sqrt(2 / pi), since tanh(u) = 2 logistic(2 u) - 1
SHRINK = 0.5
LEAK = 0.01
LINEAR = 20.0  # above, softplus is x
LARGEST = 100.0  # above, mish is x
NEAR = 0.1  # to 0, x - tanh(x) would lose its digits; a series doesn't
TANHSHRINK = (1382.0 / 155925.0, -62.0 / 2835.0, 17.0 / 315.0, -2.0 / 15.0, 1.0 / 3.0)


def celu(values: Values, count: int) -> None:
    """max(0, x) + min(0, exp(x) - 1), with its alpha of 1 as `elu`."""
    for i in range(count):
        x = np.float64(values[i])
        values[i] = np.float32(expm1(x) if x < 0.0 else x)


def elu(values: Values, count: int) -> None:
    """x, or exp(x) - 1 below 0 (Clevert et al. 2016)."""
    for i in range(count):
        x = np.float64(values[i])
        values[i] = np.float32(expm1(x) if x < 0.0 else x)


def gelu(values: Values, count: int) -> None:
    """x times the normal distribution below it (Hendrycks and Gimpel 2016)."""
    for i in range(count):
        x = np.float64(values[i])
        values[i] = np.float32(x * normal(x))


def gelu_tanh(values: Values, count: int) -> None:
    """PyTorch's gelu with `approximate="tanh"`."""
    for i in range(count):
        x = np.float64(values[i])
        values[i] = np.float32(x * logistic(GELU_SLOPE * (x + GELU_CUBIC * x * x * x)))


def hardshrink(values: Values, count: int) -> None:
    """x, or 0 within 1/2 of 0."""
    for i in range(count):
        x = np.float64(values[i])
        values[i] = np.float32(0.0 if -SHRINK <= x <= SHRINK else x)


def hardsigmoid(values: Values, count: int) -> None:
    """x / 6 + 1/2 in [0, 1]."""
    for i in range(count):
        x = np.float64(values[i])
        values[i] = np.float32(min(max(x + 3.0, 0.0), 6.0) / 6.0)


def hardswish(values: Values, count: int) -> None:
    """x times its `hardsigmoid` (Howard et al. 2019)."""
    for i in range(count):
        x = np.float64(values[i])
        values[i] = np.float32(x * (min(max(x + 3.0, 0.0), 6.0) / 6.0))


def hardtanh(values: Values, count: int) -> None:
    """x in [-1, 1]."""
    for i in range(count):
        x = np.float64(values[i])
        values[i] = np.float32(min(max(x, -1.0), 1.0))


def identity(values: Values, count: int) -> None:
    """x."""


def leaky_relu(values: Values, count: int) -> None:
    """x, or a hundredth of it below 0."""
    for i in range(count):
        x = np.float64(values[i])
        values[i] = np.float32(LEAK * x if x < 0.0 else x)


def logsigmoid(values: Values, count: int) -> None:
    """The logarithm of `sigmoid`."""
    for i in range(count):
        x = np.float64(values[i])
        values[i] = np.float32(min(x, 0.0) - log1p(exp(-abs(x))))


def mish(values: Values, count: int) -> None:
    """x tanh(softplus(x)) (Misra 2019)."""
    for i in range(count):
        x = np.float64(values[i])
        e = exp(min(x, LARGEST))
        odds = e * (e + 2.0)
        values[i] = np.float32(x * (odds / (odds + 2.0)))


def relu6(values: Values, count: int) -> None:
    """x in [0, 6]."""
    for i in range(count):
        x = np.float64(values[i])
        values[i] = np.float32(min(max(x, 0.0), 6.0))


def selu(values: Values, count: int) -> None:
    """`elu`, scaled such that deviations stay near 1 (Klambauer et al. 2017)."""
    for i in range(count):
        x = np.float64(values[i])
        values[i] = np.float32(SELU_SCALE * (SELU_ALPHA * expm1(x) if x < 0.0 else x))


def sigmoid(values: Values, count: int) -> None:
    """1 / (1 + exp(-x))."""
    for i in range(count):
        values[i] = np.float32(logistic(np.float64(values[i])))


def silu(values: Values, count: int) -> None:
    """x times its `sigmoid`."""
    for i in range(count):
        x = np.float64(values[i])
        values[i] = np.float32(x * logistic(x))


def softplus(values: Values, count: int) -> None:
    """log(1 + exp(x)), or x above 20."""
    for i in range(count):
        x = np.float64(values[i])
        values[i] = np.float32(x if x > LINEAR else max(x, 0.0) + log1p(exp(-abs(x))))


def softshrink(values: Values, count: int) -> None:
    """x, 1/2 nearer to 0; 0 within 1/2 of it."""
    for i in range(count):
        x = np.float64(values[i])
        shift = SHRINK if x > SHRINK else (-SHRINK if x < -SHRINK else x)
        values[i] = np.float32(x - shift)


def softsign(values: Values, count: int) -> None:
    """x / (1 + |x|)."""
    for i in range(count):
        x = np.float64(values[i])
        values[i] = np.float32(x / (1.0 + abs(x)))


def tanhshrink(values: Values, count: int) -> None:
    """x - tanh(x)."""
    for i in range(count):
        x = np.float64(values[i])
        if -NEAR < x < NEAR:
            square = x * x
            series = 0.0
            for coefficient in TANHSHRINK:
                series = series * square + coefficient
            values[i] = np.float32(x * square * series)
        else:
            values[i] = np.float32(x - (1.0 - 2.0 / (exp(2.0 * x) + 1.0)))


FUNCTIONS: dict[str, Callable[[Values, int], None]] = {
    function.__name__: function
    for function in (
        celu,
        elu,
        gelu,
        gelu_tanh,
        hardshrink,
        hardsigmoid,
        hardswish,
        hardtanh,
        identity,
        leaky_relu,
        logsigmoid,
        mish,
        relu6,
        selu,
        sigmoid,
        silu,
        softplus,
        softshrink,
        softsign,
        tanhshrink,
    )
}


@functools.cache
def compiled(name: str) -> Any:
    """The function of that name, compiled or read from where it was kept; alive for ever."""
    signature = types.void(types.CPointer(types.float32), types.int64)
    return cfunc(signature, cache=True, error_model="numpy")(FUNCTIONS[name])
