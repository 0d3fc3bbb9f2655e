"""Nesterov's accelerated gradient (Sutskever et al. 2013), in the form that PyTorch uses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from protocol.optimizers.base import Slots, Vector, blocks, optimizer
from protocol.optimizers.sgd import SGD


@optimizer
@dataclass(frozen=True)
class Nesterov(SGD):
    """velocity = momentum * velocity + g; step = learning_rate * (g + momentum * velocity).

    A gradient counts at once as it will once the velocity has carried it a step further.
    """

    kind: ClassVar[str] = "nesterov"

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
            step[part] = (gradient + velocity[part] * self.momentum) * learning_rate
        return step, {"velocity": velocity}
