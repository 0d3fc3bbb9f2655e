"""ClipUp (Toklu, Liskowski and Srivastava 2020, "ClipUp: a simple and powerful optimizer for
distribution-based policy evolution", algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from protocol.exact import euclidean, norm
from protocol.optimizers.base import Penalised, Slots, Vector, blocks, optimizer


@optimizer
@dataclass(frozen=True)
class ClipUp(Penalised):
    """velocity = momentum * velocity + learning_rate * g / |g|, cut to a length of maximum_speed.

    The step is the velocity: no longer than `maximum_speed`, in units of the parameters. The
    penalty acts on the unit vector: g / |g| - l2 * theta.

    Attributes:
        momentum: share of the last velocity that stays, in [0, 1).
        maximum_speed: 0 or more; 0 is twice the learning rate, the paper's rule of thumb.
    """

    kind: ClassVar[str] = "clipup"
    learning_rate: ClassVar[float] = 0.25
    momentum: float = 0.9
    maximum_speed: float = 0.0

    def __post_init__(self) -> None:
        """Raise ShoalError for a hyperparameter that is out of range."""
        super().__post_init__()
        self._require_share("momentum")
        self._require("maximum_speed", self.maximum_speed >= 0.0, "maximum_speed >= 0")

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
        length, velocity = norm(total), np.empty(total.size)
        for part in blocks(total.size):
            ascent = self._penalised(total[part].astype(np.float64) / length, theta[part])
            velocity[part] = slots["velocity"][part] * self.momentum + ascent * learning_rate
        speed = euclidean(velocity)
        limit = self.maximum_speed or 2.0 * learning_rate
        if speed > limit:
            velocity *= limit / speed
        return velocity, {"velocity": velocity}
