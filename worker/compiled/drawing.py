"""Pictures of our own environments, drawn with NumPy: uint8, shape (height, width, 3)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from worker.compiled.grids import Cell

Picture = NDArray[np.uint8]
Colour = tuple[int, int, int]

WHITE, GREY, BLACK = (255, 255, 255), (190, 190, 190), (40, 40, 40)
GREEN, BLUE, BROWN = (70, 160, 90), (50, 110, 200), (200, 150, 100)
LONGEST_SIDE = 640
"""Pixels of the longer side of a grid, or about so many; a large one has a pixel a cell."""
LARGEST_CELL = 48
LINE_FROM = 6
"""Pixels of a cell from which on there are lines between them."""
WIDTH, HEIGHT = 600, 400
METRE = 125
"""Pixels: the track of 4.8 m fills the width."""
GROUND = 300
CART, POLE = (50, 30), 5
"""Pixels: width and height of the cart, half the thickness of the pole."""


def grid(
    rows: int, columns: int, goal: Cell, marked: Collection[Cell] = (), colour: Colour = BLACK
) -> Callable[[Any], Picture]:
    """Draws a walk whose state is the number of its cell, row by row: blue on the way to green.

    Args:
        marked: cells that look like nothing to walk on, in their `colour`.
    """
    side = max(1, min(LARGEST_CELL, LONGEST_SIDE // max(rows, columns)))
    ground = np.full((rows, columns, 3), WHITE, dtype=np.uint8)
    for cell in marked:
        ground[cell] = colour
    ground[goal] = GREEN

    def draw(state: Any) -> Picture:
        cells = ground.copy()
        cells[divmod(int(state), columns)] = BLUE
        picture = cells.repeat(side, axis=0).repeat(side, axis=1)
        if side >= LINE_FROM:
            picture[::side] = picture[:, ::side] = GREY
        return picture

    return draw


def cartpole(state: Any) -> Picture:
    """The cart on its track, and the pole on it; of the state the place in m and the angle in
    radians, from the upright to the right."""
    place, _, angle, _ = np.asarray(state, dtype=np.float64)
    picture = np.full((HEIGHT, WIDTH, 3), WHITE, dtype=np.uint8)
    picture[GROUND : GROUND + 2] = BLACK
    middle = round(WIDTH / 2 + METRE * float(place))
    half, height = CART[0] // 2, CART[1] // 2
    left, right = max(0, middle - half), max(0, middle + half)
    picture[GROUND - height : GROUND + height, left:right] = BLACK
    # All within so many pixels of the line from the foot of the pole to its end.
    down, across = np.ogrid[:HEIGHT, :WIDTH]
    rise, run = -np.cos(angle), np.sin(angle)
    below, beside = down - (GROUND - height), across - middle
    along = np.clip(below * rise + beside * run, 0.0, METRE)
    off = np.hypot(below - along * rise, beside - along * run)
    picture[off <= POLE] = BROWN
    return picture
