"""RAdam (Liu et al. 2020, "On the variance of the adaptive learning rate and beyond", alg. 2)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from protocol.optimizers.base import Slots, Vector, blocks, optimizer
from protocol.optimizers.moments import Moments

SHORTEST = 5.0
"""Length of the average from which its variance is rectified; the paper says 4, the authors' code
and PyTorch 5."""


@optimizer
@dataclass(frozen=True)
class RAdam(Moments):
    """Adam that trusts its second moment by how many gradients it has seen.

    rho = 2 / (1 - beta2) - 1 and rho_t = rho - 2 t beta2^t / (1 - beta2^t), the length of the
    average. While rho_t <= 5, step = learning_rate * m / (1 - beta1^t), in the gradient's units;
    then step = r * learning_rate * m / (1 - beta1^t) * sqrt(1 - beta2^t) / (sqrt(v) + epsilon) with
    r^2 = (rho_t - 4) (rho_t - 2) rho / ((rho - 4) (rho - 2) rho_t).
    """

    kind: ClassVar[str] = "radam"

    def initial_slots(self, size: int) -> dict[str, Vector]:
        """See `Optimizer.initial_slots`."""
        return {**super().initial_slots(size), "steps": np.zeros(1)}

    def step(
        self,
        total: NDArray[np.int64],
        scale: float,
        theta: NDArray[np.float32],
        slots: Slots,
        learning_rate: float,
    ) -> tuple[Vector, dict[str, Vector]]:
        """See `Optimizer.step`."""
        powers, steps = self._powers(slots), slots["steps"] + 1.0
        trust = self._trust(float(steps[0]), float(powers[1]))
        first, second, step = (np.empty(total.size) for _ in range(3))
        for part in blocks(total.size):
            gradient = self._penalised(total[part].astype(np.float64) * scale, theta[part])
            first[part] = slots["first_moment"][part] * self.beta1 + gradient * (1.0 - self.beta1)
            square = gradient * gradient
            second[part] = slots["second_moment"][part] * self.beta2 + square * (1.0 - self.beta2)
            step[part] = first[part] / (1.0 - powers[0]) * learning_rate
            if trust is not None:
                step[part] = step[part] / (np.sqrt(second[part]) + self.epsilon) * trust
        moments = {"first_moment": first, "second_moment": second}
        return step, {**moments, "beta_powers": powers, "steps": steps}

    def _trust(self, steps: float, power: float) -> float | None:
        """r * sqrt(1 - beta2^t); None while the average is too short."""
        whole = 2.0 / (1.0 - self.beta2) - 1.0
        length = whole - 2.0 * steps * power / (1.0 - power)
        if length <= SHORTEST:
            return None
        so_far = (length - 4.0) * (length - 2.0) * whole
        in_the_end = (whole - 4.0) * (whole - 2.0) * length
        return math.sqrt(so_far / in_the_end) * math.sqrt(1.0 - power)
