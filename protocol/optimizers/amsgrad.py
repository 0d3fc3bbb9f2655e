"""AMSGrad (Reddi, Kale and Kumar 2018, "On the convergence of Adam and beyond", algorithm 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from protocol.optimizers.base import Slots, Vector, blocks, optimizer
from protocol.optimizers.moments import Moments


@optimizer
@dataclass(frozen=True)
class AMSGrad(Moments):
    """Adam that divides by the largest second moment so far, so that its steps never grow back.

    h = max(h, v); step = learning_rate * m / (1 - beta1^t) / (sqrt(h / (1 - beta2^t)) + epsilon):
    with Adam's corrections, as PyTorch has it; the paper has none. Known as ZO-AdaMM where the
    gradient is estimated without derivatives (Chen et al. 2019).
    """

    kind: ClassVar[str] = "amsgrad"

    def initial_slots(self, size: int) -> dict[str, Vector]:
        """See `Optimizer.initial_slots`."""
        return {**super().initial_slots(size), "highest": np.zeros(size)}

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
        first, second, highest, step = (np.empty(total.size) for _ in range(4))
        for part in blocks(total.size):
            gradient = self._penalised(total[part].astype(np.float64) * scale, theta[part])
            first[part] = slots["first_moment"][part] * self.beta1 + gradient * (1.0 - self.beta1)
            square = gradient * gradient
            second[part] = slots["second_moment"][part] * self.beta2 + square * (1.0 - self.beta2)
            # Neither is ever -0.0, of which machines may take either zero.
            highest[part] = np.maximum(slots["highest"][part], second[part])
            mean = first[part] / (1.0 - powers[0])
            root = np.sqrt(highest[part] / (1.0 - powers[1])) + self.epsilon
            step[part] = mean / root * learning_rate
        moments = {"first_moment": first, "second_moment": second, "highest": highest}
        return step, {**moments, "beta_powers": powers}
