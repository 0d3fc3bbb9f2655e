"""Where moves on a grid lead, as a table that is computed once."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

Cell = tuple[int, int]
"""Row and column, from 0; the first row is the upper one."""

MOVES: dict[str, Cell] = {"up": (-1, 0), "right": (0, 1), "down": (1, 0), "left": (0, -1)}


def destinations(
    rows: int, columns: int, moves: tuple[str, ...], walls: Collection[Cell] = ()
) -> NDArray[np.int32]:
    """The cell that each move leads to from each cell: where it would leave the grid or enter a
    wall, the cell itself.

    Cells are numbered row by row.

    Returns:
        int32, shape (rows * columns, len(moves)).
    """
    table = np.empty((rows * columns, len(moves)), dtype=np.int32)
    for row in range(rows):
        for column in range(columns):
            for place, move in enumerate(moves):
                down, right = MOVES[move]
                to = row + down, column + right
                inside = 0 <= to[0] < rows and 0 <= to[1] < columns
                cell = to if inside and to not in walls else (row, column)
                table[row * columns + column, place] = cell[0] * columns + cell[1]
    return table
