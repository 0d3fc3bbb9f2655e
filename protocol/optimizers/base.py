"""What every optimizer is: a frozen set of hyperparameters and a pure function to a step."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from protocol.errors import ShoalError

Vector: TypeAlias = NDArray[np.float64]
Slots: TypeAlias = Mapping[str, Vector]

BLOCK = 1 << 14


@dataclass(frozen=True)
class Optimizer:
    """Hyperparameters of one kind of optimizer; subclasses define the step.

    All arithmetic is float64, elementwise + - * / and sqrt in a fixed order: these round alike on
    every machine, other functions do not.

    Attributes:
        weight_decay: L2 penalty as in OpenAI-ES; `weight_decay * theta` is taken off the gradient.
    """

    kind: ClassVar[str]
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        """Raise ShoalError for a hyperparameter that is out of range."""
        self._require("weight_decay", 0.0 <= self.weight_decay < 1.0, "0 <= weight_decay < 1")

    def initial_slots(self, size: int) -> dict[str, Vector]:
        """What the optimizer remembers before its first step, for `size` parameters."""
        raise NotImplementedError

    def step(
        self,
        total: NDArray[np.int64],
        scale: float,
        theta: NDArray[np.float32],
        slots: Slots,
        learning_rate: float,
    ) -> tuple[Vector, dict[str, Vector]]:
        """The step uphill, and the slots after it; the arguments stay as they are.

        Args:
            total: exact weighted sum of noise, shape (size,), not all zero.
            scale: the gradient is `total * scale`.
            theta: parameters before the step, shape (size,).
            slots: as `initial_slots` or the last step returned them.
            learning_rate: of this step.
        """
        raise NotImplementedError

    def _decayed(self, gradient: Vector, theta: NDArray[np.float32]) -> Vector:
        if self.weight_decay == 0.0:
            return gradient
        return gradient - theta.astype(np.float64) * self.weight_decay

    def _require(self, name: str, holds: bool, rule: str) -> None:
        if not holds:
            value = getattr(self, name)
            raise ShoalError(f"optimizer {self.kind}: {name} = {value}: must satisfy {rule}")


def blocks(size: int) -> Iterator[slice]:
    """Slices that cover so many parameters, each so short that what is computed on the way stays
    in the cache."""
    return (slice(begin, begin + BLOCK) for begin in range(0, size, BLOCK))


def hyperparameters(kind: type[Optimizer]) -> tuple[str, ...]:
    """The names of the hyperparameters that an optimizer takes."""
    return tuple(field.name for field in dataclasses.fields(kind))
