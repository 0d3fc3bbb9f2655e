from __future__ import annotations

import heapq

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.pool.sizing import (
    UNKNOWN_LEASE,
    UNKNOWN_SPEED,
    Durations,
    Pace,
    lease_seconds,
    task_size,
)

ASKED = {
    "whole": 1000,
    "unleased": 1000,
    "unfinished": 1000,
    "held": 0,
    "share": 0.25,
    "units_per_second": 100.0,
    "task_seconds": 2.0,
    "minimum_seconds": 0.2,
    "idle": True,
}


def size(**changes: object) -> int:
    return task_size(**{**ASKED, **changes})  # type: ignore[arg-type]


def test_a_task_is_half_of_a_workers_share_of_what_is_left() -> None:
    assert size() == 125
    assert size(unleased=400, unfinished=600) == 50


def test_a_task_is_never_longer_than_asked_nor_uselessly_short() -> None:
    assert size(units_per_second=10.0) == 20  # 2 seconds of it
    assert size(unleased=100, unfinished=900, whole=400) == 20  # 0.2 s; half a share is 13
    assert size(unleased=100, unfinished=900) == 41  # a sixth of its share of the whole


def test_a_share_too_small_for_two_tasks_is_given_whole() -> None:
    assert size(unleased=120, unfinished=120) == 30


def test_what_is_not_worth_sharing_goes_to_one_worker() -> None:
    assert size(unleased=5, unfinished=5, share=0.5) == 5  # 0.05 seconds
    assert size(unleased=5, unfinished=5, share=0.5, held=20, idle=False) == 5
    assert size(unleased=6, unfinished=6, share=0.5) == 3


def test_who_has_its_share_gets_no_more_unless_it_is_idle() -> None:
    assert size(held=250, idle=False) == 0
    assert size(held=250, idle=True) > 0
    assert size(unleased=0, unfinished=0) == 0


@given(
    unleased=st.integers(0, 5000),
    leased=st.integers(0, 5000),
    held=st.integers(0, 5000),
    share=st.floats(0.0, 1.0),
    units_per_second=st.floats(1e-9, 1e15),
    idle=st.booleans(),
)
def test_a_task_always_fits_what_is_there(
    unleased: int, leased: int, held: int, share: float, units_per_second: float, idle: bool
) -> None:
    count = size(
        unleased=unleased,
        unfinished=unleased + leased,
        held=held,
        share=share,
        units_per_second=units_per_second,
        idle=idle,
    )
    assert 0 <= count <= unleased
    assert count > 0 or not idle or unleased == 0, "an idle worker goes without"


@pytest.mark.parametrize(
    "speeds", [[100.0] * 8, [1.0, 10.0, 100.0, 1000.0], [5.0 * 2**n for n in range(9)]]
)
def test_workers_of_any_speeds_end_a_batch_together(speeds: list[float]) -> None:
    """Each asks when it is free; units per second are its speed."""
    left, total, ends, longest = 8192, sum(speeds), [], 0.0
    free = [(0.0, worker) for worker in range(len(speeds))]
    while free:
        now, worker = heapq.heappop(free)
        count = size(
            unleased=left,
            unfinished=left,
            share=speeds[worker] / total,
            units_per_second=speeds[worker],
        )
        if not count:
            ends.append(now)
            continue
        left -= count
        longest = max(longest, 1 / speeds[worker])
        heapq.heappush(free, (now + count / speeds[worker], worker))
    ideal = 8192 / total
    assert max(ends) <= ideal + 0.2 + longest
    assert min(ends) >= ideal - 2.0


@pytest.mark.parametrize(
    ("expected", "median", "attempts", "seconds"),
    [
        (None, None, 0, UNKNOWN_LEASE),
        (None, 1.0, 1, 2 * UNKNOWN_LEASE),
        (0.1, 0.1, 0, 2.0),  # the floor
        (4.0, None, 0, 12.0),
        (4.0, 3.0, 0, 12.0),
        (400.0, 3.0, 0, 60.0),  # nobody may be arbitrarily slow
        (4.0, 3.0, 2, 48.0),
        (1.0, 1.0, 1000, 3.0 * 1024),
    ],
)
def test_lease_seconds(
    expected: float | None, median: float | None, attempts: int, seconds: float
) -> None:
    assert lease_seconds(expected, 2.0, median, attempts) == seconds


def test_a_pace_is_declared_until_it_is_measured() -> None:
    assert Pace(0.0).speed == UNKNOWN_SPEED
    pace = Pace(5e6)
    assert (pace.speed, pace.measured) == (5e6, False)
    pace.observe(300, 2.0)
    assert (pace.speed, pace.measured) == (150.0, True)


def test_the_first_result_is_forgotten_at_the_second() -> None:
    pace = Pace(0.0)
    pace.observe(100, 10.0)  # starting took most of it
    pace.observe(1000, 1.0)
    assert pace.speed == 1000.0


def test_a_pace_follows_within_three_results() -> None:
    pace = Pace(0.0)
    for _ in range(10):
        pace.observe(1000, 1.0)
    for _ in range(3):
        pace.observe(100, 1.0)
    assert pace.speed == 100.0


def test_two_results_at_one_moment_do_not_make_a_pace_infinite() -> None:
    pace = Pace(0.0)
    pace.observe(1000, 0.0)
    assert pace.speed == UNKNOWN_SPEED
    pace.observe(1000, 1.0)
    pace.observe(1000, 0.0)
    assert pace.speed == 2000.0


def test_a_lease_that_ran_out_bounds_the_pace() -> None:
    pace = Pace(1e12)
    pace.ran_out(6000, 60.0)
    assert (pace.speed, pace.measured) == (100.0, True)
    pace.ran_out(6000, 60.0)
    assert pace.speed == 50.0


def test_the_median_keeps_moving_after_many_results() -> None:
    durations = Durations()
    assert durations.median is None
    for seconds in [1.0] * 200 + [5.0] * 120:
        durations.add(seconds)
    assert durations.median == 5.0
