"""Normalised gradient ascent with momentum: only the direction of the gradient counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from protocol.exact import norm
from protocol.optimizers.base import Penalised, Slots, Vector, blocks, optimizer


@optimizer
@dataclass(frozen=True)
class Normalised(Penalised):
    """velocity = momentum * velocity + g / |g|; step = learning_rate * velocity.

    The step's length does not depend on the scale of the returns or on sigma: `learning_rate` is in
    units of the parameters, and with momentum the steps grow to learning_rate / (1 - momentum).
    |g| comes from the exact sum of squares of the integers. The penalty acts on the unit vector:
    g / |g| - l2 * theta.

    Attributes:
        momentum: share of the last velocity that stays, in [0, 1).
    """

    kind: ClassVar[str] = "normalised"
    learning_rate: ClassVar[float] = 0.5
    momentum: float = 0.8

    def __post_init__(self) -> None:
        """Raise ShoalError for a hyperparameter that is out of range."""
        super().__post_init__()
        self._require_share("momentum")

    def initial_slots(self, size: int) -> dict[str, Vector]:
        """See `Optimizer.initial_slots`."""
        return {"velocity": np.zeros(size)}

    def step(
        self,
        total: NDArray[np.int64],
        scale: float,
        theta: NDArray[np.float32],
        slots: Slots,
        learning_rate: float,
    ) -> tuple[Vector, dict[str, Vector]]:
        """See `Optimizer.step`; `scale` cancels."""
        length = norm(total)
        velocity, step = np.empty(total.size), np.empty(total.size)
        for part in blocks(total.size):
            ascent = self._penalised(total[part].astype(np.float64) / length, theta[part])
            velocity[part] = slots["velocity"][part] * self.momentum + ascent
            step[part] = velocity[part] * learning_rate
        return step, {"velocity": velocity}
