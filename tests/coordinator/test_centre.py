from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.pool.centre import Evaluation


def lengths(returns: list[float]) -> np.ndarray:
    return np.full(len(returns), 7, dtype=np.int64)


def record(evaluation: Evaluation, first: int, returns: list[float]) -> None:
    evaluation.record(first, np.array(returns), lengths(returns))


@pytest.mark.parametrize(
    ("screened", "target", "full"),
    [
        ([9.0, 9.0, 9.0, 9.0], 10.0, False),  # no spread: 9 is 9
        ([8.0, 10.0, 8.0, 10.0], 10.0, True),  # 9 + 3 * 1.15 / 2 reaches it
        ([8.0, 10.0, 8.0, 10.0], 10.8, False),
        ([10.0, 10.0, 10.0, 10.0], 10.0, True),
        ([99.0, 99.0, 99.0, 99.0], None, False),  # nothing to reach
    ],
)
def test_screening_decides_whether_the_rest_is_worth_it(
    screened: list[float], target: float | None, full: bool
) -> None:
    evaluation = Evaluation(5, 10, 4, target)
    assert evaluation.work.size == 4
    record(evaluation, 0, screened)
    assert evaluation.full == full
    assert evaluation.finished == (not full)
    assert not evaluation.reached
    assert evaluation.work.size == (10 if full else 4)


def test_a_full_evaluation_reaches_the_target_with_its_mean_over_all_episodes() -> None:
    evaluation = Evaluation(5, 6, 2, 10.0)
    record(evaluation, 0, [10.0, 12.0])
    record(evaluation, 2, [9.0, 9.0, 10.0, 10.0])
    assert evaluation.finished
    assert evaluation.mean == 10.0
    assert evaluation.reached
    assert evaluation.deviation == pytest.approx(np.std([10, 12, 9, 9, 10, 10], ddof=1))
    assert evaluation.steps == 42


def test_just_below_the_target_is_not_reached() -> None:
    evaluation = Evaluation(5, 2, 2, 10.0)
    record(evaluation, 0, [10.0, np.nextafter(10.0, 0.0) - 1e-12])
    assert evaluation.finished
    assert not evaluation.reached


@pytest.mark.parametrize(("confidence", "reached"), [(0.0, True), (0.5, True), (0.95, False)])
def test_with_confidence_the_whole_interval_has_to_lie_above_the_target(
    confidence: float, reached: bool
) -> None:
    evaluation = Evaluation(5, 4, 4, 10.0, confidence)
    record(evaluation, 0, [9.0, 13.0, 9.0, 13.0])  # 11 +- 1.15, times 0.76 or 3.18
    assert evaluation.full
    assert evaluation.reached == reached


@given(st.permutations(range(12)), st.data())
def test_the_verdict_is_the_same_for_any_order_and_cut(
    order: list[int], data: st.DataObject
) -> None:
    returns = np.sin(np.arange(12) * 1.7) * 5 + 9
    whole = Evaluation(0, 12, 3, 10.0)
    whole.record(0, returns[:3], np.ones(3, dtype=np.int64))
    whole.record(3, returns[3:], np.ones(9, dtype=np.int64))
    parts = Evaluation(0, 12, 3, 10.0)
    for screened in (True, False):
        for episode in order:
            if (episode < 3) == screened:
                end = min(3 if screened else 12, episode + data.draw(st.integers(1, 4)))
                parts.record(episode, returns[episode:end], np.ones(end - episode, dtype=np.int64))
    assert parts.finished
    assert (parts.mean, parts.deviation, parts.steps) == (whole.mean, whole.deviation, whole.steps)


def test_an_episode_counts_once_and_the_first_return_stays() -> None:
    evaluation = Evaluation(0, 4, 4, None)
    record(evaluation, 0, [1.0, 2.0])
    record(evaluation, 1, [50.0, 3.0])
    record(evaluation, 3, [4.0])
    assert evaluation.mean == 2.5


def test_a_failed_episode_stays_open() -> None:
    evaluation = Evaluation(0, 3, 3, None)
    evaluation.record(0, np.array([1.0, np.nan, 3.0]), lengths([0.0] * 3), "a")
    assert not evaluation.finished
    assert [(r.first, r.end, r.avoid) for r in evaluation.work.unleased] == [(1, 2, frozenset("a"))]
    record(evaluation, 1, [2.0])
    assert evaluation.mean == 2.0


def test_all_can_be_asked_for_whatever_the_screening_said() -> None:
    evaluation = Evaluation(0, 8, 2, 100.0)
    record(evaluation, 0, [1.0, 1.0])
    assert evaluation.finished
    evaluation.make_full()
    evaluation.make_full()
    assert not evaluation.finished
    assert evaluation.work.missing == 6


def test_one_episode_has_no_deviation() -> None:
    evaluation = Evaluation(0, 1, 1, 5.0)
    record(evaluation, 0, [5.0])
    assert (evaluation.deviation, evaluation.reached) == (0.0, True)
