"""Layers of weights and biases: in which order they are read, and what they make of inputs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from protocol.networks import Tensor
from worker.policies.signs import part, value

ZERO = np.float32(0.0)
FEW_OUTPUTS = 8  # below it a layer is too narrow for the vector unit: its outputs go one by one


@njit(inline="always")
def any_set(a: np.float32, b: np.float32, c: np.float32, d: np.float32) -> bool:
    """Whether one of them is not 0."""
    return a != ZERO or b != ZERO or c != ZERO or d != ZERO


@njit(error_model="numpy")
def dense(
    inputs: NDArray[np.float32],
    weights: Any,
    biases: Any,
    outputs: NDArray[np.float32],
) -> None:
    """outputs = weights . inputs + biases; each output sums its inputs in order, then its bias.

    An input of 0 is passed over: it would add 0. Both loops below make the same sums.

    Args:
        inputs: shape (i,).
        weights: shape (i * o,), the o weights of the first input first; an array, or a part of a
            member that was never built, see `signs.part`.
        biases: shape (o,), likewise.
        outputs: shape (o,).
    """
    many = outputs.size
    if many < FEW_OUTPUTS:
        for o in range(0, many, 4):
            # Four sums side by side, since one alone waits for itself; the last may be repeats.
            p, q, r = min(o + 1, many - 1), min(o + 2, many - 1), min(o + 3, many - 1)
            a = b = c = d = ZERO
            for i in range(inputs.size):
                row = part(weights, i * many, (i + 1) * many)
                a += value(row, o) * inputs[i]
                b += value(row, p) * inputs[i]
                c += value(row, q) * inputs[i]
                d += value(row, r) * inputs[i]
            outputs[o] = a + value(biases, o)
            outputs[p] = b + value(biases, p)
            outputs[q] = c + value(biases, q)
            outputs[r] = d + value(biases, r)
        return
    outputs[:] = ZERO
    eights, fours = inputs.size // 8 * 8, inputs.size // 4 * 4
    # Rows by their place in one block: slices of it would each be checked for overlap.
    for i in range(0, eights, 8):
        a, b, c, d = inputs[i], inputs[i + 1], inputs[i + 2], inputs[i + 3]
        e, f, g, h = inputs[i + 4], inputs[i + 5], inputs[i + 6], inputs[i + 7]
        if any_set(a, b, c, d) or any_set(e, f, g, h):
            block = part(weights, i * many, (i + 8) * many)
            for o in range(many):
                total = outputs[o] + value(block, o) * a
                total = total + value(block, many + o) * b
                total = total + value(block, 2 * many + o) * c
                total = total + value(block, 3 * many + o) * d
                total = total + value(block, 4 * many + o) * e
                total = total + value(block, 5 * many + o) * f
                total = total + value(block, 6 * many + o) * g
                outputs[o] = total + value(block, 7 * many + o) * h
    for i in range(eights, fours, 4):
        a, b, c, d = inputs[i], inputs[i + 1], inputs[i + 2], inputs[i + 3]
        if any_set(a, b, c, d):
            block = part(weights, i * many, (i + 4) * many)
            for o in range(many):
                total = outputs[o] + value(block, o) * a
                total = total + value(block, many + o) * b
                total = total + value(block, 2 * many + o) * c
                outputs[o] = total + value(block, 3 * many + o) * d
    for i in range(fours, inputs.size):
        row = part(weights, i * many, (i + 1) * many)
        for o in range(many):
            outputs[o] += value(row, o) * inputs[i]
    for o in range(many):
        outputs[o] += value(biases, o)


def order(
    tensors: Iterable[Tensor], features: tuple[int, int, int] | None = None
) -> NDArray[np.int32]:
    """The order in which policies read parameters, shape (size,): entry j is parameter order[j].

    Each tensor's weights (o, i) are turned to (i, o), so that what one input adds to all outputs
    lies side by side; biases stay. Inputs that are an image, of a convolution or of the first dense
    layer behind one, whose (channels, height, width) are `features`, are turned to (height, width,
    channels).
    """
    pieces, begin = [], 0
    for tensor in tensors:
        places = np.arange(begin, begin + tensor.size, dtype=np.int32).reshape(tensor.shape)
        if len(tensor.shape) == 2 and features is not None:
            places, features = places.reshape(tensor.shape[0], *features), None
        turned = places.transpose(2, 3, 1, 0) if places.ndim == 4 else places.T
        pieces.append(turned.ravel())
        begin += tensor.size
    return np.concatenate(pieces)
