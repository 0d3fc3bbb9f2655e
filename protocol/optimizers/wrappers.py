"""What can be laid around any optimizer: a bound on gradients, decay of weights, slow weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protocol.exact import norm
from protocol.optimizers.base import Optimizer, Slots, Vector, blocks


@dataclass(frozen=True)
class Clipped(Optimizer):
    """Gradients longer than `norm` are cut to that length (Pascanu et al. 2013), in their units.

    The length is the exact one of the integers times the scale.
    """

    inner: Optimizer
    clip_norm: float

    def initial_slots(self, size: int) -> dict[str, Vector]:
        """See `Optimizer.initial_slots`."""
        return self.inner.initial_slots(size)

    def step(
        self,
        total: NDArray[np.int64],
        scale: float,
        theta: NDArray[np.float32],
        slots: Slots,
        learning_rate: float,
    ) -> tuple[Vector, dict[str, Vector]]:
        """See `Optimizer.step`."""
        length = norm(total)
        if length * abs(scale) > self.clip_norm:
            scale = self.clip_norm / length if scale > 0.0 else -self.clip_norm / length
        return self.inner.step(total, scale, theta, slots, learning_rate)


@dataclass(frozen=True)
class Decayed(Optimizer):
    """Weights decay beside the step (Loshchilov and Hutter 2019), outside of all moments.

    step = the inner one - learning_rate * weight_decay * theta.
    """

    inner: Optimizer
    weight_decay: float

    def initial_slots(self, size: int) -> dict[str, Vector]:
        """See `Optimizer.initial_slots`."""
        return self.inner.initial_slots(size)

    def step(
        self,
        total: NDArray[np.int64],
        scale: float,
        theta: NDArray[np.float32],
        slots: Slots,
        learning_rate: float,
    ) -> tuple[Vector, dict[str, Vector]]:
        """See `Optimizer.step`."""
        step, after = self.inner.step(total, scale, theta, slots, learning_rate)
        share, decayed = learning_rate * self.weight_decay, np.empty(total.size)
        for part in blocks(total.size):
            decayed[part] = step[part] - theta[part].astype(np.float64) * share
        return decayed, after


@dataclass(frozen=True)
class LookAhead(Optimizer):
    """Slow weights that follow the fast ones (Zhang et al. 2019, "Lookahead optimizer: k steps
    forward, 1 step back", algorithm 1).

    Slow weights are the parameters at the beginning of each round. After `steps` of the inner
    optimizer's steps the parameters become slow + alpha * (theta - slow), and a new round begins;
    the inner optimizer's moments stay.

    Slots beside the inner one's: `slow_weights` (size,), and `round_steps` (1,), the steps that
    this round has had.
    """

    inner: Optimizer
    steps: int
    alpha: float

    def initial_slots(self, size: int) -> dict[str, Vector]:
        """See `Optimizer.initial_slots`."""
        own = {"slow_weights": np.zeros(size), "round_steps": np.zeros(1)}
        return {**self.inner.initial_slots(size), **own}

    def step(
        self,
        total: NDArray[np.int64],
        scale: float,
        theta: NDArray[np.float32],
        slots: Slots,
        learning_rate: float,
    ) -> tuple[Vector, dict[str, Vector]]:
        """See `Optimizer.step`."""
        begins = slots["round_steps"][0] == 0.0
        slow = theta.astype(np.float64) if begins else slots["slow_weights"].copy()
        step, after = self.inner.step(total, scale, theta, slots, learning_rate)
        taken = slots["round_steps"] + 1.0
        if taken[0] >= self.steps:
            taken, inner, step = np.zeros(1), step, np.empty(total.size)
            for part in blocks(total.size):
                fast = theta[part].astype(np.float64)
                moved = fast + inner[part] - slow[part]
                step[part] = slow[part] + moved * self.alpha - fast
        return step, {**after, "slow_weights": slow, "round_steps": taken}
