"""A scene of each kind of liars, seen for long enough that all are found."""

from __future__ import annotations

import pytest

from scripts import check_liars


@pytest.mark.parametrize(
    ("scene", "tasks", "found"),
    [("honest", 600, 0), ("shared", 600, 5), ("copiers", 500, 5), ("claimants", 1800, 5)],
)
def test_liars_are_found_within_fifty_tasks_and_nobody_else_is(
    scene: str, tasks: int, found: int
) -> None:
    seen = check_liars.detect(scene, 3, tasks).inspector
    assert len(seen.found) == found
    assert not seen.missed and not seen.framed
    assert all(count <= 50 for count in seen.found.values())
