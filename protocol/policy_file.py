"""The layout of a policy file: the named tensors of a policy, written and read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from protocol.errors import ShoalError
from protocol.normalizer import NormalizerState
from protocol.spec import RunSpec

Statistics = tuple[NDArray[np.float32], NDArray[np.float32]]
"""Mean and inverse deviation of the observations, each of shape (observation size,)."""

MEAN = "observation.mean"
INVERSE = "observation.inverse_deviation"
COUNT = "observation.count"
EXACT_MEAN = "observation.exact_mean"
SQUARES = "observation.squared_deviations"
SPEC = "spec"
"""Of a policy file that lies in no run directory: the run's spec, in TOML, among its metadata."""
STATISTICS = (MEAN, INVERSE, COUNT, EXACT_MEAN, SQUARES)
"""What a policy file holds beside parameters: the first two, float32, are what a policy is played
with; the others, float64, are what a run begins with: frames, their mean, and the sum of squared
deviations from it."""


class PolicyError(ShoalError):
    """The run directory holds no policy that can be played."""


def to_tensors(
    spec: RunSpec, theta: NDArray[np.float32], statistics: NormalizerState | None
) -> dict[str, NDArray[np.floating]]:
    """Named tensors of a policy: those of `spec.tensors`, float32, and with a normaliser
    `STATISTICS`.

    `theta` has shape (spec.size,).
    """
    tensors: dict[str, NDArray[np.floating]] = {}
    place = 0
    for part in spec.tensors:
        end = place + part.size
        tensors[part.name] = theta[place:end].reshape(part.shape)
        place = end
    if statistics is not None:
        tensors[MEAN], tensors[INVERSE] = statistics.policy_input()
        tensors[COUNT] = np.array([statistics.count])
        tensors[EXACT_MEAN], tensors[SQUARES] = statistics.mean, statistics.squares
    return tensors


def from_tensors(
    spec: RunSpec, tensors: Mapping[str, NDArray[np.float32]], file: Path
) -> tuple[NDArray[np.float32], Statistics | None]:
    """Parameters of shape (spec.size,), and the statistics where the spec has a normaliser.

    Raises `PolicyError`, which names `file`, where a tensor is missing or of another shape.
    """
    parts = []
    for name, shape in spec.tensors:
        tensor = tensors.get(name)
        if tensor is None or tensor.shape != shape or tensor.dtype != np.float32:
            raise PolicyError(
                f"{file} has no float32 {name} of shape {shape}, as spec.toml "
                "asks: the two are of different runs"
            )
        parts.append(tensor.ravel())
    theta = np.concatenate(parts)
    if not spec.normalizer.enabled:
        return theta, None
    mean, inverse = tensors.get(MEAN), tensors.get(INVERSE)
    shape = (spec.environment.observation.size,)
    if mean is None or inverse is None or not mean.shape == inverse.shape == shape:
        raise PolicyError(f"{file} lacks the observation statistics that spec.toml asks for")
    return theta, (mean, inverse)
