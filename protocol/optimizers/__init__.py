"""Optimizers by name: how a gradient becomes a step."""

from __future__ import annotations

from collections.abc import Mapping

from protocol.errors import ShoalError
from protocol.optimizers.adam import Adam
from protocol.optimizers.base import Optimizer, Slots, Vector, hyperparameters
from protocol.optimizers.normalised import Normalised
from protocol.optimizers.sgd import SGD

__all__ = ["OPTIMIZERS", "SGD", "Adam", "Normalised", "Optimizer", "Slots", "Vector", "get", "make"]

OPTIMIZERS: Mapping[str, type[Optimizer]] = {
    optimizer.kind: optimizer for optimizer in (Normalised, SGD, Adam)
}


def get(kind: str) -> type[Optimizer]:
    """The optimizer of that name. Raises ShoalError for a name that is not registered."""
    try:
        return OPTIMIZERS[kind]
    except KeyError:
        names = ", ".join(OPTIMIZERS)
        raise ShoalError(f"optimizer {kind!r}: must be one of {names}") from None


def make(kind: str, values: Mapping[str, float]) -> Optimizer:
    """An optimizer from a table of hyperparameters, of which it takes those that are its own.

    Raises:
        ShoalError: an unknown kind, or a hyperparameter out of range.
    """
    optimizer = get(kind)
    own = hyperparameters(optimizer)
    return optimizer(**{name: value for name, value in values.items() if name in own})
