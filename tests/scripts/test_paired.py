"""Ratios of paired costs: their sums decide, and what differs between starts is in the interval."""

from __future__ import annotations

import pytest

from scripts.paired import Pair, Ratio, ratio


def test_large_pieces_of_work_weigh_more():
    found = ratio([[Pair(9.0, 10.0), Pair(2.0, 1.0)]])
    assert found.value == pytest.approx(1.0)
    assert found.low < 1.0 < found.high


def test_what_slows_both_alike_changes_nothing():
    found = ratio([[Pair(0.96 * slow, slow) for slow in (1.0, 1.3, 0.7, 2.0)]])
    assert (found.low, found.value, found.high) == pytest.approx((0.96, 0.96, 0.96))


def test_rounds_that_differ_widen_the_interval():
    slow, fast = [Pair(0.9, 1.0)] * 50, [Pair(1.0, 1.0)] * 50
    assert ratio([slow + fast]).high < 0.97
    found = ratio([slow, fast])
    assert (found.low, found.high) == pytest.approx((0.9, 1.0))


@pytest.mark.parametrize(
    ("low", "high", "decided"), [(0.951, 0.99, True), (0.9, 0.949, False), (0.94, 0.96, None)]
)
def test_an_interval_around_the_bound_decides_nothing(low, high, decided):
    assert Ratio((low + high) / 2, low, high).at_least(0.95) is decided
