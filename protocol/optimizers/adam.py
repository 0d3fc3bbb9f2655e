"""Adam (Kingma and Ba 2015, "Adam: a method for stochastic optimization", algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from protocol.optimizers.base import Optimizer, Slots, Vector, blocks


@dataclass(frozen=True)
class Adam(Optimizer):
    """Steps along the running mean of gradients, divided by the root of their running square.

    The powers of beta that correct the bias are running products, kept with the moments: `pow`
    rounds differently from one platform to the next.

    Attributes:
        beta1: share of the first moment that stays, in [0, 1).
        beta2: share of the second moment that stays, in [0, 1).
        epsilon: added to the root of the second moment, in (0, 1].
    """

    kind: ClassVar[str] = "adam"
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        """Raise ShoalError for a hyperparameter that is out of range."""
        super().__post_init__()
        self._require("beta1", 0.0 <= self.beta1 < 1.0, "0 <= beta1 < 1")
        self._require("beta2", 0.0 <= self.beta2 < 1.0, "0 <= beta2 < 1")
        self._require("epsilon", 0.0 < self.epsilon <= 1.0, "0 < epsilon <= 1")

    def initial_slots(self, size: int) -> dict[str, Vector]:
        """See `Optimizer.initial_slots`."""
        return {
            "first_moment": np.zeros(size),
            "second_moment": np.zeros(size),
            "beta_powers": np.ones(2),
        }

    def step(
        self,
        total: NDArray[np.int64],
        scale: float,
        theta: NDArray[np.float32],
        slots: Slots,
        learning_rate: float,
    ) -> tuple[Vector, dict[str, Vector]]:
        """See `Optimizer.step`."""
        powers = slots["beta_powers"] * np.array([self.beta1, self.beta2])
        first, second, step = (np.empty(total.size) for _ in range(3))
        for part in blocks(total.size):
            gradient = self._decayed(total[part].astype(np.float64) * scale, theta[part])
            first[part] = slots["first_moment"][part] * self.beta1 + gradient * (1.0 - self.beta1)
            square = gradient * gradient
            second[part] = slots["second_moment"][part] * self.beta2 + square * (1.0 - self.beta2)
            mean = first[part] / (1.0 - powers[0])
            root = np.sqrt(second[part] / (1.0 - powers[1])) + self.epsilon
            step[part] = mean / root * learning_rate
        return step, {"first_moment": first, "second_moment": second, "beta_powers": powers}
