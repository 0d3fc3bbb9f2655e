"""`jax:CliffWalking-v0`: Gymnasium's CliffWalking-v1 (Sutton and Barto 2018, example 6.6)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from protocol.spaces import Discrete
from worker.compiled import drawing
from worker.compiled.environment import Functional
from worker.compiled.grids import destinations

ROWS, COLUMNS = 4, 12
START, GOAL = 36, 47
CLIFF = range(37, 47)
MOVES = ("up", "right", "down", "left")


def make(limit: int = 0) -> Functional:
    """The walk along the cliff: -1 a step, -100 and back to the start for a step off it.

    Args:
        limit: steps after which an episode is cut; 0, as in Gymnasium, for never.
    """
    leads = destinations(ROWS, COLUMNS, MOVES).ravel()
    falls = np.isin(leads, CLIFF)
    to = jnp.asarray(np.where(falls, START, leads))
    rewards = jnp.asarray(np.where(falls, -100.0, -1.0), dtype=jnp.float32)

    def reset(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        start = jnp.int32(START)
        return start, start

    def step(
        state: jax.Array, action: jax.Array, key: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
        move = state * len(MOVES) + action
        state = to[move]
        return state, state, rewards[move], state == GOAL

    cliff = [divmod(cell, COLUMNS) for cell in CLIFF]
    draw = drawing.grid(ROWS, COLUMNS, divmod(GOAL, COLUMNS), cliff, drawing.BROWN)
    cells, moves = Discrete(n=ROWS * COLUMNS), Discrete(n=len(MOVES))
    return Functional(cells, moves, limit, reset, step, draw=draw)
