"""Who goes on and who is stopped depends on returns alone, not on who came first."""

from __future__ import annotations

import math
import random

from hypothesis import given
from hypothesis import strategies as st

from coordinator.sweep.judging import Verdict, halving, median, rung_versions

RUNGS = 3
RETURNS = st.floats(-1e6, 1e6) | st.just(math.nan)
WHOLE = st.lists(st.lists(RETURNS, min_size=RUNGS, max_size=RUNGS), min_size=1, max_size=12)


def whole(rows: list[list[float]]) -> list[list[float | None]]:
    """A point that failed has failed at every rung."""
    return [
        [math.nan] * RUNGS if any(math.isnan(value) for value in row) else list(row) for row in rows
    ]


@given(WHOLE, st.integers(2, 5))
def test_halving_leaves_one_of_so_many_the_best(rows: list[list[float]], factor: int) -> None:
    points = whole(rows)
    verdicts = halving(points, RUNGS, factor)
    alive = [i for i, row in enumerate(points) if not math.isnan(row[0])]  # type: ignore[arg-type]
    for rung in range(RUNGS):
        stopped = [i for i in alive if verdicts[i] == Verdict(rung, rung)]
        kept = [i for i in alive if i not in stopped]
        assert len(kept) == math.ceil(len(alive) / factor)
        assert all(points[i][rung] <= points[j][rung] for i in stopped for j in kept)  # type: ignore[operator]
        alive = kept
    assert all(verdicts[i] == Verdict(RUNGS) for i in alive)


def grown(points: list[list[float | None]], order: random.Random, rule: str) -> list[Verdict]:
    """The verdicts at the end of a sweep whose runs come to their rungs in any order that the
    verdicts allow."""
    known: list[list[float | None]] = [
        [value if value is not None and math.isnan(value) else None for value in row]
        for row in points
    ]

    def judged() -> list[Verdict]:
        return halving(known, RUNGS, 2) if rule == "halving" else median(known, RUNGS, 2)

    decided: dict[int, int] = {}
    while True:
        verdicts = judged()
        for i, verdict in enumerate(verdicts):
            if verdict.stopped is not None:
                assert decided.setdefault(i, verdict.stopped) == verdict.stopped
            else:
                assert i not in decided  # who was stopped stays so
        open_ = [
            (i, row.index(None))
            for i, row in enumerate(known)
            if None in row and verdicts[i].stopped is None and row.index(None) <= verdicts[i].goal
        ]
        if not open_:
            return verdicts
        i, rung = order.choice(open_)
        known[i][rung] = points[i][rung]


@given(WHOLE, st.randoms(use_true_random=False))
def test_it_does_not_matter_who_is_faster(rows: list[list[float]], order: random.Random) -> None:
    points = whole(rows)
    assert grown(points, order, "halving") == halving(points, RUNGS, 2)
    assert grown(points, order, "median") == median(points, RUNGS, 2)


def test_halving_waits_until_all_are_at_the_rung() -> None:
    assert halving([[1.0, None], [None, None]], 2, 2) == [Verdict(0), Verdict(0)]
    assert halving([[1.0, None], [2.0, None]], 2, 2) == [Verdict(0, 0), Verdict(1)]
    assert halving([[1.0, 1.0], [2.0, 1.0]], 2, 2) == [Verdict(0, 0), Verdict(2)]


def test_of_equals_the_first_go_on() -> None:
    assert [v.stopped for v in halving([[1.0]] * 4, 1, 2)] == [None, None, 0, 0]


def test_the_median_is_that_of_the_points_before() -> None:
    points = [[5.0], [3.0], [4.0], [3.9], [4.0]]
    assert [v.stopped for v in median(points, 1, 3)] == [None, None, None, 0, None]
    assert [v.stopped for v in median(points, 1, 1)] == [None, 0, None, 0, None]


def test_who_was_stopped_counts_no_more_at_later_rungs() -> None:
    points = [[5.0, 1.0], [1.0, 9.0], [6.0, 2.0]]
    assert [v.stopped for v in median(points, 2, 1)] == [None, 0, None]


def test_rungs_lie_where_the_centre_is_evaluated() -> None:
    assert rung_versions("halving", 3, 2, 80, 1) == [10, 20, 40]
    assert rung_versions("halving", 3, 2, 80, 8) == [16, 24, 40]
    assert rung_versions("median", 3, 2, 80, 1) == [20, 40, 60]
    assert rung_versions("median", 3, 2, 2, 5) == [2, 2, 2]
