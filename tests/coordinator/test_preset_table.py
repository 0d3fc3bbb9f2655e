"""The table of the pool's settings in the host's manual says what they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator.pool.presets import PRESETS
from protocol.spec import PoolSpec

ELSEWHERE = {"audit_share"}
"""Fields that say nothing about when a batch is closed."""
PAGE = Path(__file__).parents[2] / "docs" / "operating.md"


def _rows() -> dict[str, list[str]]:
    """The cells of each row of the table, by its field."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("| `[pool]` |"))
    rows = {}
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        field, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        rows[field.strip("`")] = cells
    return rows


@pytest.mark.parametrize("column", range(1, 1 + len(PRESETS)))
def test_presets_are_as_the_table_says(column: int) -> None:
    preset = list(PRESETS)[column - 1]
    told = {field: float(cells[column]) for field, cells in _rows().items() if cells[column]}
    assert told == PRESETS[preset]


def test_defaults_are_as_the_table_says() -> None:
    told = {field: float(cells[0]) for field, cells in _rows().items()}
    fields = set(PoolSpec.__struct_fields__) - ELSEWHERE
    assert told == {field: getattr(PoolSpec(), field) for field in fields}
