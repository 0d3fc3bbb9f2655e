from __future__ import annotations

import pytest

from scripts.bench_sharing import Had, error, parts


def test_parts_are_of_core_seconds_and_of_evaluations_apart() -> None:
    had = [Had(30.0, 100), Had(10.0, 300)]
    assert parts(had) == [(0.75, 0.25), (0.25, 0.75)]
    assert parts([Had(), Had()]) == [(0.0, 0.0), (0.0, 0.0)]


def test_the_worse_of_both_is_what_a_run_is_wrong_by_as_a_part_of_its_share() -> None:
    had = [Had(20.0, 210), Had(10.0, 95), Had(10.0, 95)]
    assert error(had, [0.5, 0.25, 0.25]) == pytest.approx([0.05, 0.05, 0.05])
    later = had[0] - Had(10.0, 10)
    assert (later.core_seconds, later.episodes) == (10.0, 200)
    assert later + Had(10.0, 10) == had[0]
