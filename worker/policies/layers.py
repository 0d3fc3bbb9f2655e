"""Layers of weights and biases: how their parameters are arranged, and what they make of inputs."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numba import njit
from numpy.typing import NDArray

from protocol.networks import Tensor

ZERO = np.float32(0.0)
FEW_OUTPUTS = 8  # below it a layer is too narrow for the vector unit: its outputs go one by one


@njit(error_model="numpy")
def dense(
    inputs: NDArray[np.float32],
    weights: NDArray[np.float32],
    biases: NDArray[np.float32],
    outputs: NDArray[np.float32],
) -> None:
    """outputs = weights . inputs + biases; each output sums its inputs in order, then its bias.

    An input of 0 is passed over: it would add 0. Both loops below make the same sums.

    Args:
        inputs: shape (i,).
        weights: shape (i * o,), the o weights of the first input first.
        biases, outputs: shape (o,).
    """
    many = outputs.size
    if many < FEW_OUTPUTS:
        for o in range(0, many, 4):
            # Four sums side by side, since one alone waits for itself; the last may be repeats.
            p, q, r = min(o + 1, many - 1), min(o + 2, many - 1), min(o + 3, many - 1)
            a = b = c = d = ZERO
            for i in range(inputs.size):
                row = weights[i * many : (i + 1) * many]
                a += row[o] * inputs[i]
                b += row[p] * inputs[i]
                c += row[q] * inputs[i]
                d += row[r] * inputs[i]
            outputs[o] = a + biases[o]
            outputs[p] = b + biases[p]
            outputs[q] = c + biases[q]
            outputs[r] = d + biases[r]
        return
    outputs[:] = ZERO
    fours = inputs.size // 4 * 4
    for i in range(0, fours, 4):
        a, b, c, d = inputs[i], inputs[i + 1], inputs[i + 2], inputs[i + 3]
        if a != ZERO or b != ZERO or c != ZERO or d != ZERO:
            block = weights[i * many : (i + 4) * many]
            first, second = block[:many], block[many : 2 * many]
            third, fourth = block[2 * many : 3 * many], block[3 * many :]
            for o in range(many):
                total = outputs[o] + first[o] * a
                total = total + second[o] * b
                total = total + third[o] * c
                outputs[o] = total + fourth[o] * d
    for i in range(fours, inputs.size):
        row = weights[i * many : (i + 1) * many]
        for o in range(many):
            outputs[o] += row[o] * inputs[i]
    for o in range(many):
        outputs[o] += biases[o]


@njit(error_model="numpy")
def transpose(
    source: NDArray[np.float32], inputs: int, many: int, target: NDArray[np.float32]
) -> None:
    """target[i, o] = source[o, i], both flat, for `many` outputs o of `inputs` inputs i."""
    eights = many // 8 * 8
    for o in range(0, eights, 8):
        # Eight rows side by side fill whole stretches of the target, which a row alone would not.
        rows = source[o * inputs : (o + 8) * inputs]
        a, b = rows[:inputs], rows[inputs : 2 * inputs]
        c, d = rows[2 * inputs : 3 * inputs], rows[3 * inputs : 4 * inputs]
        e, f = rows[4 * inputs : 5 * inputs], rows[5 * inputs : 6 * inputs]
        g, h = rows[6 * inputs : 7 * inputs], rows[7 * inputs :]
        for i in range(inputs):
            stretch = target[i * many + o : i * many + o + 8]
            stretch[0], stretch[1], stretch[2], stretch[3] = a[i], b[i], c[i], d[i]
            stretch[4], stretch[5], stretch[6], stretch[7] = e[i], f[i], g[i], h[i]
    for o in range(eights, many):
        for i in range(inputs):
            target[i * many + o] = source[o * inputs + i]


@njit(cache=True, error_model="numpy")
def arrange(
    parameters: NDArray[np.float32], shapes: NDArray[np.int64], out: NDArray[np.float32]
) -> None:
    """Rows of `parameters` with each tensor's weights (o, i) turned to (i, o); biases stay.

    Args:
        shapes: see `shapes_of`.
    """
    for row in range(parameters.shape[0]):
        begin = 0
        for tensor in range(shapes.shape[0]):
            many, inputs = shapes[tensor, 0], shapes[tensor, 1]
            if inputs:
                end = begin + many * inputs
                transpose(parameters[row, begin:end], inputs, many, out[row, begin:end])
            else:
                end = begin + many
                out[row, begin:end] = parameters[row, begin:end]
            begin = end


def shapes_of(tensors: Iterable[Tensor]) -> NDArray[np.int64]:
    """Outputs and inputs of each tensor, shape (tensors, 2); a bias has no inputs."""
    return np.array([(tensor.shape[0], tensor.inputs) for tensor in tensors], dtype=np.int64)
