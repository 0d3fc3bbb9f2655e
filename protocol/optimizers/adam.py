"""Adam (Kingma and Ba 2015, "Adam: a method for stochastic optimization", algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from protocol.optimizers.base import Slots, Vector, blocks, optimizer
from protocol.optimizers.moments import Moments


@optimizer
@dataclass(frozen=True)
class Adam(Moments):
    """Steps along the running mean of gradients, divided by the root of their running square.

    m = beta1 m + (1 - beta1) g and v = beta2 v + (1 - beta2) g^2, each corrected by
    1 / (1 - beta^t); step = learning_rate * m / (sqrt(v) + epsilon), at most about the learning
    rate in each parameter, whatever the gradient's units.
    """

    kind: ClassVar[str] = "adam"

    def step(
        self,
        total: NDArray[np.int64],
        scale: float,
        theta: NDArray[np.float32],
        slots: Slots,
        learning_rate: float,
    ) -> tuple[Vector, dict[str, Vector]]:
        """See `Optimizer.step`."""
        powers = self._powers(slots)
        first, second, step = (np.empty(total.size) for _ in range(3))
        for part in blocks(total.size):
            gradient = self._penalised(total[part].astype(np.float64) * scale, theta[part])
            first[part] = slots["first_moment"][part] * self.beta1 + gradient * (1.0 - self.beta1)
            square = gradient * gradient
            second[part] = slots["second_moment"][part] * self.beta2 + square * (1.0 - self.beta2)
            mean = first[part] / (1.0 - powers[0])
            root = np.sqrt(second[part] / (1.0 - powers[1])) + self.epsilon
            step[part] = mean / root * learning_rate
        return step, {"first_moment": first, "second_moment": second, "beta_powers": powers}
