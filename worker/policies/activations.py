"""Activations of the same bits on every CPU: only + - * / and comparisons, in a fixed order."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

# tanh(x) = x P(x^2) / Q(x^2): a rational minimax fit of degree (4, 4) in x^2 on |x| <= 9, relative
# error 2e-8 in exact arithmetic and at most 7 units in the last place in float32. From 9.01 on
# tanh is 1 in float32.
TANH_SATURATION = np.float32(9.0)
P1 = np.float32(0.13381027)
P2 = np.float32(0.0034955894)
P3 = np.float32(2.0609097e-05)
P4 = np.float32(1.33546685e-08)
Q1 = np.float32(0.46714342)
Q2 = np.float32(0.025876988)
Q3 = np.float32(0.00032856368)
Q4 = np.float32(7.776564e-07)
ZERO = np.float32(0.0)
ONE = np.float32(1.0)
HALF = np.float32(0.5)

TANH = 0
RELU = 1
"""In kernels; any other activation is the address of its code."""


@njit(inline="always", error_model="numpy")
def tanh(x: np.float32) -> np.float32:
    """Hyperbolic tangent of a float32; odd, never outside [-1, 1]; NaN stays NaN."""
    x = TANH_SATURATION if x > TANH_SATURATION else x
    x = -TANH_SATURATION if x < -TANH_SATURATION else x
    square = x * x
    above = (((P4 * square + P3) * square + P2) * square + P1) * square + ONE
    below = (((Q4 * square + Q3) * square + Q2) * square + Q1) * square + ONE
    quotient = x * above / below
    quotient = ONE if quotient > ONE else quotient
    return -ONE if quotient < -ONE else quotient


@njit(inline="always", error_model="numpy")
def sigmoid(x: np.float32) -> np.float32:
    """Logistic function of a float32, by its tanh: never outside [0, 1]; NaN stays NaN."""
    return HALF + HALF * tanh(HALF * x)


@njit(inline="always", error_model="numpy")
def relu(x: np.float32) -> np.float32:
    """x where it is positive, else 0; NaN stays NaN."""
    return ZERO if x < ZERO else x


@intrinsic
def call(typing_context: Any, address: Any, values: Any) -> Any:
    """Call the function at an address with a contiguous array's first element and its size."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[1])(context, builder, arguments[1])
        kinds = [array.data.type, array.nitems.type]
        function = ir.FunctionType(ir.VoidType(), kinds).as_pointer()
        builder.call(builder.inttoptr(arguments[0], function), [array.data, array.nitems])
        return context.get_dummy_value()

    return types.void(types.int64, values), generate


@njit(inline="always", error_model="numpy")
def activate(values: NDArray[np.float32], activation: int) -> None:
    """Make of each value what an activation, by its `code`, makes of it."""
    if activation == TANH:
        for i in range(values.size):
            values[i] = tanh(values[i])
    elif activation == RELU:
        for i in range(values.size):
            values[i] = relu(values[i])
    else:
        call(activation, values)


def code(name: str) -> int:
    """What kernels know an activation by; it is compiled where it has to be."""
    if name in ("tanh", "relu"):
        return RELU if name == "relu" else TANH
    from worker.policies import elementwise

    address: int = elementwise.compiled(name).address
    return address
