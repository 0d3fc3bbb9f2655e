"""AdaBelief (Zhuang et al. 2020, "AdaBelief optimizer", algorithm 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from protocol.optimizers.base import Slots, Vector, blocks, optimizer
from protocol.optimizers.moments import Moments


@optimizer
@dataclass(frozen=True)
class AdaBelief(Moments):
    """Adam that divides by how far gradients lie from their running mean, not from zero.

    s = beta2 s + (1 - beta2) (g - m)^2 + epsilon, m as it is after this gradient;
    step = learning_rate * m / (1 - beta1^t) / (sqrt(s / (1 - beta2^t)) + epsilon). Where gradients
    agree, steps are long. epsilon is the authors' own, since it adds up in s.
    """

    kind: ClassVar[str] = "adabelief"
    epsilon: float = 1e-16

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
            surprise = gradient - first[part]
            square = surprise * surprise
            kept = slots["second_moment"][part] * self.beta2 + square * (1.0 - self.beta2)
            second[part] = kept + self.epsilon
            mean = first[part] / (1.0 - powers[0])
            root = np.sqrt(second[part] / (1.0 - powers[1])) + self.epsilon
            step[part] = mean / root * learning_rate
        return step, {"first_moment": first, "second_moment": second, "beta_powers": powers}
