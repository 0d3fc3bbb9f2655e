"""The interval of a mean, against tables of Student's t and against what it promises."""

from __future__ import annotations

import math

import numpy as np
import pytest

from coordinator.pool import confidence
from coordinator.pool.confidence import lowest, margin, merit, quantile


@pytest.mark.parametrize(
    ("sure", "freedom", "expected"),
    [
        (0.95, 1, 12.706205),
        (0.90, 2, 2.919986),
        (0.999, 3, 12.923979),
        (0.99, 4, 4.604095),
        (0.95, 9, 2.262157),
        (0.95, 99, 1.984217),
        (0.95, 200, 1.971896),
        (0.95, 499, 1.964729),
        (0.5, 65_535, 0.674493),
    ],
)
def test_quantiles_are_those_of_the_tables(sure: float, freedom: int, expected: float) -> None:
    assert quantile(sure, freedom) == pytest.approx(expected, rel=1e-6)


def test_both_ways_to_a_quantile_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confidence, "MANY", 1000)
    quantile.cache_clear()
    exact = [quantile(sure, 201) for sure in (0.5, 0.9, 0.999)]
    monkeypatch.setattr(confidence, "MANY", 200)
    quantile.cache_clear()
    assert [quantile(sure, 201) for sure in (0.5, 0.9, 0.999)] == pytest.approx(exact, rel=1e-7)


def test_intervals_hold_the_true_mean_as_often_as_they_say() -> None:
    drawn = np.random.default_rng(3).normal(7.0, 4.0, size=(4000, 5))
    means, deviations = drawn.mean(axis=1), drawn.std(axis=1, ddof=1)
    held = [
        abs(mean - 7.0) <= margin(deviation, 5, 0.9)
        for mean, deviation in zip(means, deviations, strict=True)
    ]
    assert abs(np.mean(held) - 0.9) < 4 * math.sqrt(0.09 / 4000)


def test_the_lower_end_is_the_mean_without_confidence() -> None:
    assert lowest(5.0, 2.0, 10, 0.0) == 5.0
    assert lowest(5.0, 2.0, 10, 0.95) == pytest.approx(5.0 - 2.262157 * 2.0 / math.sqrt(10))
    assert lowest(5.0, 0.0, 10, 0.95) == 5.0
    assert lowest(5.0, 0.0, 1, 0.95) == -math.inf


def test_luck_with_few_episodes_is_worth_less_than_a_little_less_over_many() -> None:
    assert merit(470.0, 30.0, 100) > merit(480.0, 30.0, 10)
    assert merit(500.0, 0.0, 100) > merit(500.0, 0.0, 10)
    assert merit(3.0, 0.0, 1)[0] == 3.0
