"""What is kept of the past: bounded, in order, and each item once."""

from __future__ import annotations

import itertools
import math

from hypothesis import given
from hypothesis import strategies as st

from coordinator.dashboard.history import MOST_POINTS, Curve, History, Reel
from tests.coordinator.dashboard.pictures import update_line


@given(most=st.integers(1, 8), count=st.integers(0, 30), since=st.integers(0, 30))
def test_a_reel_gives_each_item_by_its_number(most: int, count: int, since: int) -> None:
    reel: Reel[int] = Reel(most)
    for item in range(count):
        reel.add(item)
    first, items = reel.since(min(since, count))
    assert items == list(range(first, count))
    assert first == max(min(since, count), count - most)


def test_a_long_curve_is_thinned_and_keeps_its_ends() -> None:
    curve = Curve()
    for number in range(20_001):
        curve.add((number,))
        if number in (10, MOST_POINTS, 20_000):
            numbers = [point[0] for point in curve.thinned]
            assert numbers[0] == 0 and numbers[-1] == number
            assert len(numbers) <= MOST_POINTS + 2
            assert numbers == sorted(set(numbers))
    steps = {b - a for a, b in itertools.pairwise(numbers)}
    assert steps == {16}


def test_lines_of_metrics_become_points_and_rows() -> None:
    history = History()
    history.metrics(update_line(1, mean_return=math.nan))
    history.metrics(update_line(2))
    history.metrics(
        {"kind": "centre", "version": 2, "seconds": 1.5, "episodes": 100, "mean_return": 30.0}
        | {"return_deviation": 5.0}
    )
    history.metrics({"kind": "something new"})
    assert [point[4] for point in history.members.thinned] == [None, 12.0]
    ((version, _, mean, half, episodes),) = history.centres.thinned
    assert (version, mean, episodes) == (2, 30.0, 100) and 0.9 < half < 1.1
    assert [row["version"] for row in history.updates.since(0)[1]] == [1, 2]
