"""The parameters that a run begins with, the same on every peer."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from protocol import noise
from protocol.errors import ShoalError
from protocol.networks import Tensor


def initial_theta(
    run_seed: int, tensors: Sequence[Tensor], kind: str, scale: float, final_scale: float = 1.0
) -> NDArray[np.float32]:
    """The parameters of version 0.

    Args:
        run_seed: of the run.
        tensors: what the parameters are, in order.
        kind: "zero"; "scaled": weights are the quantised normal noise of stream
            (run_seed, initialisation, number of the tensor of weights) times
            scale / sqrt(inputs); "orthogonal": weights, as (outputs, inputs), are `scale` times
            a matrix whose rows, or columns where these are fewer, are orthonormal (Saxe et al.
            2014), made of that noise. Biases are zero.
        scale: standard deviation of a weight of an output with one input, or length of the rows.
        final_scale: factor of the last tensor of weights.

    Returns:
        float32, shape (size,).
    """
    if kind not in ("zero", "scaled", "orthogonal"):
        raise ShoalError(f"initialisation {kind!r}: must be one of zero, scaled, orthogonal")
    weights = [place for place, tensor in enumerate(tensors) if tensor.inputs]
    parts = []
    for place, tensor in enumerate(tensors):
        values = np.zeros(tensor.size, dtype=np.float32)
        if kind != "zero" and tensor.inputs:
            factor = scale * final_scale if place == weights[-1] else scale
            normal = _noise(run_seed, weights.index(place), tensor.size)
            if kind == "scaled":
                factor = noise.unit(noise.GAUSSIAN) * factor / math.sqrt(tensor.inputs)
                values = (normal * factor).astype(np.float32)
            else:
                matrix = normal.reshape(tensor.shape[0], tensor.inputs)
                values = (_orthogonal(matrix) * factor).astype(np.float32).ravel()
        parts.append(values)
    return np.concatenate(parts)


def _noise(run_seed: int, number: int, size: int) -> NDArray[np.float64]:
    """Normal noise in its unit, of that number of a tensor of weights."""
    octets = noise.stream(run_seed, noise.Domain.INITIALISATION, number, 2 * size)
    return noise.gaussian_table()[octets.view("<u2")].astype(np.float64)


def _orthogonal(normal: NDArray[np.float64]) -> NDArray[np.float64]:
    # Compiled code, which only runs that begin so need.
    from protocol.orthonormal import orthonormalise

    # Odd numbers, of which none is 0: a single one has a direction too.
    vectors = 2.0 * normal + 1.0
    turned = vectors.shape[0] < vectors.shape[1]
    columns = np.ascontiguousarray(vectors.T if turned else vectors)
    orthonormalise(columns)
    return columns.T if turned else columns
