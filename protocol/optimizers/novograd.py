"""NovoGrad (Ginsburg et al. 2019, "Stochastic gradient methods with layer-wise adaptive moments for
training of deep networks", algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from protocol.exact import norm
from protocol.optimizers.base import Optimizer, Slots, Vector, blocks, optimizer


@optimizer
@dataclass(frozen=True)
class NovoGrad(Optimizer):
    """Momentum over gradients that are normalised layer by layer.

    For each tensor l of the policy v = beta2 v + (1 - beta2) |g|^2, of its first gradient
    v = |g|^2; m = beta1 m + g / (sqrt(v) + epsilon) - weight_decay * theta;
    step = learning_rate * m. |g| comes from the exact sum of squares of the integers.

    Attributes:
        beta1: share of the first moment that stays, in [0, 1).
        beta2: share of the second moment that stays, in [0, 1).
        epsilon: added to the root of the second moment, in (0, 1].
        weight_decay: in the moment, as in the paper; in [0, 1).
        sizes: of the policy's tensors, in the order of theta; () is one of all parameters.
    """

    kind: ClassVar[str] = "novograd"
    learning_rate: ClassVar[float] = 0.1
    beta1: float = 0.95
    beta2: float = 0.98
    epsilon: float = 1e-8
    weight_decay: float = 0.0
    sizes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Raise ShoalError for a hyperparameter that is out of range."""
        for name in ("beta1", "beta2", "weight_decay"):
            self._require_share(name)
        self._require("epsilon", 0.0 < self.epsilon <= 1.0, "0 < epsilon <= 1")

    def initial_slots(self, size: int) -> dict[str, Vector]:
        """See `Optimizer.initial_slots`."""
        return {"first_moment": np.zeros(size), "second_moments": np.zeros(len(self.sizes) or 1)}

    def step(
        self,
        total: NDArray[np.int64],
        scale: float,
        theta: NDArray[np.float32],
        slots: Slots,
        learning_rate: float,
    ) -> tuple[Vector, dict[str, Vector]]:
        """See `Optimizer.step`."""
        first, step = np.empty(total.size), np.empty(total.size)
        seconds, begin = slots["second_moments"].copy(), 0
        for layer, size in enumerate(self.sizes or (total.size,)):
            length = norm(total[begin : begin + size]) * scale
            square = length * length
            # Zero says that there was no gradient yet.
            known = seconds[layer]
            seconds[layer] = known * self.beta2 + square * (1.0 - self.beta2) if known else square
            root = np.sqrt(seconds[layer]) + self.epsilon
            for block in blocks(size):
                part = slice(begin + block.start, begin + block.stop)
                ascent = total[part].astype(np.float64) * scale / root
                if self.weight_decay:
                    ascent -= theta[part].astype(np.float64) * self.weight_decay
                first[part] = slots["first_moment"][part] * self.beta1 + ascent
                step[part] = first[part] * learning_rate
            begin += size
        return step, {"first_moment": first, "second_moments": seconds}
