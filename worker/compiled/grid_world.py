"""`jax:GridWorld-v0`: find the goal on a grid, whose cells are observed by their number."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from protocol.errors import ShoalError
from protocol.spaces import Discrete
from worker.compiled import drawing
from worker.compiled.environment import Functional
from worker.compiled.grids import Cell, destinations

MOVES = ("right", "down", "left", "up")
LARGEST = 1024
"""Rows, and columns, at most."""


def make(
    rows: int = 8,
    columns: int = 12,
    start: str = "",
    goal: str = "0,0",
    walls: str = "",
    slip: float = 0.0,
    step_cost: float = 0.0,
    limit: int = 1000,
) -> Functional:
    """A walk over the grid that ends at the goal, with a reward of 1.

    Args:
        start: row and column where episodes begin; the last of both where nothing is said.
        goal: likewise, where they end.
        walls: cells that can't be entered, such as "1,2 2,2".
        slip: probability that a step goes to one of the two sides instead.
        step_cost: taken off the reward of every step.
        limit: steps after which an episode is cut; 0 for never.

    Raises `ShoalError` where these make no grid.
    """
    for name, value in (("rows", rows), ("columns", columns)):
        if not 1 <= value <= LARGEST:
            raise ShoalError(f"{name} is {value}: must be 1 to {LARGEST:,}")
    if not 0.0 <= slip <= 1.0:
        raise ShoalError(f"slip is {slip}: a probability, must be 0 to 1")
    first = _cell("start", start, rows, columns) if start else (rows - 1, columns - 1)
    last = _cell("goal", goal, rows, columns)
    blocked = {_cell("walls", cell, rows, columns) for cell in walls.split()}
    if first == last or first in blocked or last in blocked:
        raise ShoalError(
            f"start {first} and goal {last} with the walls {walls!r}: must be two cells, neither "
            "of them a wall"
        )
    to = jnp.asarray(destinations(rows, columns, MOVES, blocked).ravel())
    begin, end = (cell[0] * columns + cell[1] for cell in (first, last))

    def reset(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        state = jnp.int32(begin)
        return state, state

    def step(
        state: jax.Array, action: jax.Array, key: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
        if slip:
            # A quarter turn either way: of four moves in a circle the one before or after.
            drawn = jax.random.uniform(key)
            turn = jnp.where(drawn < slip / 2, 1, jnp.where(drawn < slip, 3, 0))
            action = (action + turn) % len(MOVES)
        state = to[state * len(MOVES) + action]
        reached = state == end
        reward = reached.astype(jnp.float32) - jnp.float32(step_cost)
        return state, state, reward, reached

    draw = drawing.grid(rows, columns, last, blocked)
    cells, moves = Discrete(n=rows * columns), Discrete(n=len(MOVES))
    return Functional(cells, moves, limit, reset, step, draw=draw)


def _cell(name: str, text: str, rows: int, columns: int) -> Cell:
    row, comma, column = text.partition(",")
    if comma and row.isdecimal() and column.isdecimal():
        cell = int(row), int(column)
        if cell[0] < rows and cell[1] < columns:
            return cell
    raise ShoalError(
        f"{name} has {text[:20]!r}: a cell is a row and a column, from 0,0 to "
        f"{rows - 1},{columns - 1}"
    )
