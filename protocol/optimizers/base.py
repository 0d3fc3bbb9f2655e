"""What every optimizer is: a frozen set of hyperparameters and a pure function to a step."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from protocol.errors import ShoalError
from protocol.registry import Registry

Vector: TypeAlias = NDArray[np.float64]
Slots: TypeAlias = Mapping[str, Vector]

BLOCK = 1 << 14


@dataclass(frozen=True)
class Optimizer:
    """Hyperparameters of one kind of optimizer; subclasses define them and the step.

    All arithmetic is float64, elementwise + - * / and sqrt in a fixed order: these round alike on
    every machine, other functions do not. Powers are running products, kept among the slots; norms
    come from `protocol.exact`.
    """

    kind: ClassVar[str]
    """Its name in a run spec."""
    learning_rate: ClassVar[float] = 0.05
    """Of a run that gives none."""

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

    def _require(self, name: str, holds: bool, rule: str) -> None:
        if not holds:
            value = getattr(self, name)
            raise ShoalError(f"optimizer {self.kind}: {name} = {value}: must satisfy {rule}")

    def _require_share(self, name: str) -> None:
        """The hyperparameter of that name is a share of what stays."""
        self._require(name, 0.0 <= getattr(self, name) < 1.0, f"0 <= {name} < 1")


@dataclass(frozen=True)
class Penalised(Optimizer):
    """An optimizer that ascends the objective less an L2 penalty.

    Attributes:
        l2: as in OpenAI-ES; `l2 * theta` is taken off the gradient, in [0, 1).
    """

    l2: float = 0.0

    def __post_init__(self) -> None:
        """Raise ShoalError for a hyperparameter that is out of range."""
        self._require_share("l2")

    def _penalised(self, gradient: Vector, theta: NDArray[np.float32]) -> Vector:
        if self.l2 == 0.0:
            return gradient
        return gradient - theta.astype(np.float64) * self.l2


OPTIMIZERS: Registry[Optimizer] = Registry("optimizer.kind", "shoal.optimizers", Optimizer)

_Class = TypeVar("_Class", bound=type[Optimizer])


def optimizer(kind: _Class) -> _Class:
    """Class decorator: run specs may choose this optimizer, by its `kind`."""
    OPTIMIZERS.add(kind.kind, kind)
    return kind


def blocks(size: int) -> Iterator[slice]:
    """Slices that cover so many parameters, each so short that what is computed on the way stays
    in the cache."""
    return (slice(begin, min(begin + BLOCK, size)) for begin in range(0, size, BLOCK))


def hyperparameters(kind: type[Optimizer]) -> dict[str, object]:
    """The hyperparameters that an optimizer takes, and the values that they have of themselves."""
    return {field.name: field.default for field in dataclasses.fields(kind)}
