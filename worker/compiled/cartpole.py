"""`jax:CartPole-v1`: Gymnasium's of that name, with its limit of 500 steps (Barto et al. 1983)."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from protocol.spaces import Box, Discrete
from worker.compiled import drawing
from worker.compiled.environment import Functional

LIMIT = 500
SOLVED = 475.0
GRAVITY = 9.8
POLE_MASS = 0.1
TOTAL_MASS = POLE_MASS + 1.0
HALF_LENGTH = 0.5
MASS_LENGTH = POLE_MASS * HALF_LENGTH
FORCE = 10.0
SECONDS = 0.02
"""Of a step."""
WIDEST = 2.4
"""Off the middle, in metres."""
STEEPEST = 12 * 2 * math.pi / 360
"""Off the upright, in radians."""
SPREAD = 0.05
"""Episodes begin with all four numbers within this of 0."""


def make() -> Functional:
    """The pole on the cart: a reward of 1 a step until it falls or the cart leaves the track."""

    def reset(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        state = jax.random.uniform(key, (4,), jnp.float32, -SPREAD, SPREAD)
        return state, state

    def step(
        state: jax.Array, action: jax.Array, key: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
        x, speed, angle, turning = state
        force = jnp.where(action == 1, FORCE, -FORCE)
        cosine, sine = jnp.cos(angle), jnp.sin(angle)
        push = (force + MASS_LENGTH * turning**2 * sine) / TOTAL_MASS
        bend = (GRAVITY * sine - cosine * push) / (
            HALF_LENGTH * (4.0 / 3.0 - POLE_MASS * cosine**2 / TOTAL_MASS)
        )
        gain = push - MASS_LENGTH * bend * cosine / TOTAL_MASS
        moved = jnp.stack(
            [
                x + SECONDS * speed,
                speed + SECONDS * gain,
                angle + SECONDS * turning,
                turning + SECONDS * bend,
            ]
        )
        fallen = (jnp.abs(moved[0]) > WIDEST) | (jnp.abs(moved[2]) > STEEPEST)
        return moved, moved, jnp.float32(1.0), fallen

    return Functional(Box(shape=(4,)), Discrete(n=2), LIMIT, reset, step, SOLVED, drawing.cartpole)
