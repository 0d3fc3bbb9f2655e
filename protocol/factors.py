"""Parameters that are perturbed and moved less than others, or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

import numpy as np
from numpy.typing import NDArray

from protocol.networks import Tensor


def factors(
    tensors: Sequence[Tensor], frozen: Sequence[str], scales: Mapping[str, float]
) -> NDArray[np.float64] | None:
    """What each parameter's perturbations and steps are multiplied by, shape (size,); None where
    that is 1 for all.

    Args:
        tensors: what the parameters are, in order.
        frozen: patterns of names whose factor is 0.
        scales: factors by pattern of the names.
    """
    if not frozen and not scales:
        return None
    parts = [np.full(t.size, _factor(t.name, frozen, scales)) for t in tensors]
    return np.concatenate(parts)


def fault(tensors: Sequence[Tensor], frozen: Sequence[str], scales: Mapping[str, float]) -> str:
    """What is wrong with such patterns, and what to do; empty where nothing is."""
    names = [tensor.name for tensor in tensors]
    for field, patterns in (("frozen", frozen), ("sigma_scale", tuple(scales))):
        for pattern in patterns:
            if not any(fnmatchcase(name, pattern) for name in names):
                return (
                    f"policy.{field} has {pattern!r}, which is none of the policy's parameters: "
                    f"they are {', '.join(names)[:160]}"
                )
    for name in names:
        told = [pattern for pattern in scales if fnmatchcase(name, pattern)]
        if len(told) > 1:
            return (
                f"policy.sigma_scale has {told[0]!r} and {told[1]!r}, which are both of {name}: "
                "give each parameter one factor"
            )
    if all(_factor(name, frozen, scales) == 0.0 for name in names):
        return "policy.frozen is of all parameters, which leaves nothing to train: name fewer"
    return ""


def _factor(name: str, frozen: Sequence[str], scales: Mapping[str, float]) -> float:
    if any(fnmatchcase(name, pattern) for pattern in frozen):
        return 0.0
    return next((scale for pattern, scale in scales.items() if fnmatchcase(name, pattern)), 1.0)
