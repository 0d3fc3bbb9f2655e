"""A plain loop: one environment of Gymnasium as `make` gives it, one NumPy policy at a time."""

from __future__ import annotations

import gymnasium
import numpy as np
from work import HIDDEN, report

environment = gymnasium.make("CartPole-v1")
environment.reset(seed=0)


def evaluate(population: np.ndarray) -> int:
    """Steps of an episode of each member."""
    steps = 0
    for member in population:
        first, rest = member[: 4 * HIDDEN].reshape(HIDDEN, 4), member[4 * HIDDEN :]
        first_bias, second = rest[:HIDDEN], rest[HIDDEN:-2].reshape(2, HIDDEN)
        second_bias = rest[-2:]
        observation, _ = environment.reset()
        over = False
        while not over:
            hidden = np.tanh(first @ observation + first_bias)
            outputs = second @ hidden + second_bias
            observation, _, terminated, truncated, _ = environment.step(int(outputs.argmax()))
            over = terminated or truncated
            steps += 1
    return steps


report(f"Gymnasium {gymnasium.__version__} + NumPy loop", evaluate, 16)
