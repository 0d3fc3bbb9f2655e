"""Stochastic gradient ascent with momentum (Polyak 1964), in the form that PyTorch uses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from protocol.optimizers.base import Penalised, Slots, Vector, blocks, optimizer


@optimizer
@dataclass(frozen=True)
class SGD(Penalised):
    """velocity = momentum * velocity + g; step = learning_rate * velocity.

    Attributes:
        momentum: share of the last velocity that stays, in [0, 1); 0 is plain gradient ascent.
    """

    kind: ClassVar[str] = "sgd"
    momentum: float = 0.9

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
        """See `Optimizer.step`."""
        velocity, step = np.empty(total.size), np.empty(total.size)
        for part in blocks(total.size):
            gradient = self._penalised(total[part].astype(np.float64) * scale, theta[part])
            velocity[part] = slots["velocity"][part] * self.momentum + gradient
            step[part] = velocity[part] * learning_rate
        return step, {"velocity": velocity}
