"""What Adam and those made after it share: running means of the gradient and of its square."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from protocol.optimizers.base import Penalised, Slots, Vector


@dataclass(frozen=True)
class Moments(Penalised):
    """Hyperparameters and slots of optimizers with two moments.

    The powers of beta that correct the moments' bias towards zero are running products, kept with
    them: `pow` rounds differently from one platform to the next.

    Attributes:
        beta1: share of the first moment that stays, in [0, 1).
        beta2: share of the second moment that stays, in [0, 1).
        epsilon: added to the root of the second moment, in (0, 1].
    """

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        """Raise ShoalError for a hyperparameter that is out of range."""
        super().__post_init__()
        self._require_share("beta1")
        self._require_share("beta2")
        self._require("epsilon", 0.0 < self.epsilon <= 1.0, "0 < epsilon <= 1")

    def initial_slots(self, size: int) -> dict[str, Vector]:
        """See `Optimizer.initial_slots`."""
        return {
            "first_moment": np.zeros(size),
            "second_moment": np.zeros(size),
            "beta_powers": np.ones(2),
        }

    def _powers(self, slots: Slots) -> Vector:
        """beta1 and beta2, each to the power of the number of steps, this one included."""
        powers: Vector = slots["beta_powers"] * np.array([self.beta1, self.beta2])
        return powers
