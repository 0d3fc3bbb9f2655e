"""Curves as characters: eight dots a cell where a terminal has them, ASCII elsewhere; pure."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from coordinator.screen.text import row
from protocol.figures import shown

Points = Sequence[tuple[float, float]]
FAR = 3.0
"""Times the range of the curves beyond which the target is not shown: it would flatten them."""
LABEL = 9
"""Cells left of the curves, for what the heights mean."""
_BITS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Of a braille character: by row and column of its dots."""
_BRAILLE = 0x2800


@dataclass(frozen=True)
class Curve:
    """One of several curves of a chart; those that come later are drawn over the others."""

    points: Points
    style: str
    mark: str
    """stands for it where there is only ASCII"""


def chart(
    curves: Sequence[Curve], target: float | None, width: int, height: int, plain: bool
) -> list[Text]:
    """So many lines of so many cells: all curves over one another, and the target as a line.

    `plain`: in ASCII.
    """
    cells = width - LABEL
    points = [point for curve in curves for point in curve.points]
    if cells < 4 or height < 2 or not points:
        words = "no update yet" if height > 0 and width > 20 else ""
        return [row(width, (words if n == height // 2 else "", "dim")) for n in range(height)]
    low, high = _spread(min(y for _, y in points), max(y for _, y in points))
    if target is not None and not low <= target <= high:
        if low - FAR * (high - low) <= target <= high + FAR * (high - low):
            low, high = min(low, target), max(high, target)
        else:
            target = None
    begin, end = min(x for x, _ in points), max(x for x, _ in points)
    across, down = (1, 1) if plain else (2, 4)
    marks: list[list[tuple[int | str, str]]] = [[(0, "")] * cells for _ in range(height)]

    def place(y: float) -> int:
        return round((high - y) / (high - low) * (height * down - 1))

    def put(column: int, line: int, mark: str, style: str) -> None:
        before, _ = marks[line // down][column // across]
        if plain:
            marks[line][column] = (mark, style)
            return
        known = before if isinstance(before, int) else 0
        bit = _BITS[line % 4][column % 2]
        marks[line // 4][column // 2] = (known | bit, style)

    if target is not None:
        for column in range(0, cells * across, across * 2):
            put(column, place(target), "-", "green")
    for curve in curves:
        last: int | None = None
        for column, y in _resampled(curve.points, begin, end, cells * across):
            line = place(y)
            # From the line before, so that steep curves have no holes.
            first, final = sorted((line, line if last is None or plain else last))
            for each in range(first, final + 1):
                put(column, each, curve.mark, curve.style)
            last = line
    labels = {0: high, height - 1: low}
    lines = []
    for number, cells_of in enumerate(marks):
        label = f"{shown(labels[number]):>{LABEL - 2}.{LABEL - 2}} " if number in labels else ""
        parts = [(f"{label:<{LABEL - 1}}{'|' if plain else '│'}", "dim")]
        for style, group in itertools.groupby(cells_of, key=lambda cell: cell[1]):
            parts.append(("".join(_character(mark) for mark, _ in group), style))
        lines.append(row(width, *parts))
    return lines


def _character(mark: int | str) -> str:
    if isinstance(mark, str):
        return mark
    return chr(_BRAILLE + mark) if mark else " "


def _spread(low: float, high: float) -> tuple[float, float]:
    """A range of heights with something between its ends."""
    if high - low > 1e-9 * max(1.0, abs(low), abs(high)):
        return low, high
    room = max(1.0, abs(high)) * 0.05
    return low - room, high + room


def _resampled(points: Points, begin: float, end: float, columns: int) -> list[tuple[int, float]]:
    """(column, height) from the first point to the last: the mean of those that share a column,
    straight lines across columns that have none."""
    if not points:
        return []
    scale = (columns - 1) / (end - begin) if end > begin else 0.0
    sums: dict[int, tuple[float, int]] = {}
    for x, y in points:
        column = round((x - begin) * scale)
        total, count = sums.get(column, (0.0, 0))
        sums[column] = (total + y, count + 1)
    known = [(column, total / count) for column, (total, count) in sorted(sums.items())]
    found = known[:1]
    for (left, y), (right, z) in itertools.pairwise(known):
        for column in range(left + 1, right + 1):
            found.append((column, y + (z - y) * (column - left) / (right - left)))
    return found
