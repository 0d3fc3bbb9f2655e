"""Points have names of their own, which depend on what they say and on nothing else."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from coordinator.sweep.file import Budget, SweepFile
from coordinator.sweep.points import Range, all_points, drawn, drawn_from, nested, point

FIELDS = st.sampled_from(
    ["strategy.sigma", "strategy.population", "optimizer.kind", "policy.hidden", "pool.quorum"]
)
VALUES = st.one_of(
    st.integers(-1000, 1000),
    st.floats(-10, 10),
    st.text("abc", max_size=3),
    st.lists(st.integers(0, 5), max_size=3),
)
GRIDS = st.dictionaries(FIELDS, st.lists(VALUES, min_size=1, max_size=3), min_size=1)


def tables(flat: dict[str, Any], order: random.Random) -> dict[str, Any]:
    """As TOML has it, in another order."""
    names = list(flat)
    order.shuffle(names)
    made: dict[str, Any] = {}
    for name in names:
        table, field = name.split(".")
        made.setdefault(table, {})[field] = flat[name]
    return made


def sweep(**said: Any) -> SweepFile:
    return SweepFile(base="CartPole-v1", budget=Budget(updates=1), **said)


@given(GRIDS, st.randoms(use_true_random=False))
def test_a_grid_has_each_combination_once_in_whatever_order_it_is_written(
    grid: dict[str, Any], order: random.Random
) -> None:
    points = all_points(sweep(grid=tables(grid, order)))
    names = [each.name for each in points]
    assert len(set(names)) == len(names)
    expected = 1
    for values in grid.values():
        expected *= len({repr(value) for value in values})
    assert len(names) == expected
    assert names == [each.name for each in all_points(sweep(grid=tables(grid, order)))]


@given(st.dictionaries(FIELDS, VALUES, min_size=1), st.randoms(use_true_random=False))
def test_a_name_is_that_of_the_settings(settings: dict[str, Any], order: random.Random) -> None:
    names = list(settings)
    order.shuffle(names)
    assert point(settings) == point({name: settings[name] for name in names})
    assert point({**settings, "more.of": 1}).name != point(settings).name


def test_names_stay_what_they_are() -> None:
    """A sweep that goes on finds its runs by them."""
    assert point({"strategy.sigma": 0.05, "optimizer.kind": "adam"}).name == "53b74148"


@given(st.integers(0, 2**63 - 1), st.integers(0, 10_000))
def test_what_is_drawn_lies_in_its_range_and_is_drawn_again(seed: int, number: int) -> None:
    ranges = {
        "a": Range(low=0.1, high=0.7),
        "b": Range(low=1e-3, high=10.0, log=True),
        "c": Range(low=3, high=20, whole=True, step=4),
        "d": Range(choices=("x", [1, 2])),
    }
    one = drawn(ranges, seed, number)
    assert one == drawn(dict(reversed(ranges.items())), seed, number)
    assert 0.1 <= one["a"] <= 0.7 and 1e-3 <= one["b"] <= 10.0
    assert one["c"] in (3, 7, 11, 15, 19) and one["d"] in ("x", [1, 2])


def test_draws_cover_their_ranges() -> None:
    said = sweep(
        points=400,
        random={
            "strategy": {"sigma": {"log-uniform": [0.01, 1.0]}},
            "optimizer.kind": {"choice": ["adam", "sgd"]},
        },
    )
    points = all_points(said)
    assert len(points) == 400
    below = sum(each.settings["strategy.sigma"] < 0.1 for each in points)
    adam = sum(each.settings["optimizer.kind"] == "adam" for each in points)
    assert 150 < below < 250 and 150 < adam < 250
    assert list(drawn_from(said)) == ["optimizer.kind", "strategy.sigma"]
    assert all_points(sweep(points=100, random=said.random)) == points[:100]


def test_points_that_are_the_same_count_once() -> None:
    entries = ({"strategy": {"sigma": 0.1}}, {"strategy.sigma": 0.1}, {"optimizer.kind": "adam"})
    assert [each.settings for each in all_points(sweep(list=entries))] == [
        {"strategy.sigma": 0.1},
        {"optimizer.kind": "adam"},
    ]


def test_what_is_said_of_a_point_is_one_line() -> None:
    assert point({"a": "two\nlines", "b": "straße"}).label == 'a="two\\nlines" b=straße'


def test_settings_become_tables() -> None:
    assert nested({"a.b": 1, "a.c.d": [2], "e": 3}) == {"a": {"b": 1, "c": {"d": [2]}}, "e": 3}
