from __future__ import annotations

import heapq

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.pool.sizing import (
    DEADLINE,
    EMPTY,
    MESSAGE_SECONDS,
    MOST_TIMES,
    OVERDUE,
    RESTART_SECONDS,
    UNKNOWN_LEASE,
    UNKNOWN_SPEED,
    Pace,
    Pacing,
    Window,
    as_full,
    lease_seconds,
    least_seconds,
    task_size,
)

ASKED = {
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
    assert size(unleased=100, unfinished=900) == 20  # 0.2 seconds; half a share is 13


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
    fill=st.integers(0, 5000),
)
def test_a_task_always_fits_what_is_there(
    unleased: int,
    leased: int,
    held: int,
    share: float,
    units_per_second: float,
    idle: bool,
    fill: int,
) -> None:
    count = size(
        unleased=unleased,
        unfinished=unleased + leased,
        held=held,
        share=share,
        units_per_second=units_per_second,
        idle=idle,
        fill=fill,
    )
    assert 0 <= count <= unleased
    assert count > 0 or not idle or unleased == 0, "an idle worker goes without"


@pytest.mark.parametrize(
    ("share", "count"),
    [
        (0.5, 128),
        (0.55, 128),  # the rest of its share would be a handful in empty lanes
        (0.47, 128),  # and a handful less leaves them as empty
        (0.74, 128),
        (0.88, 256),  # likewise of two fills
        (0.3, 77),  # too little to fill them is its share, as one
    ],
)
def test_a_task_fills_lanes_that_step_together(share: float, count: int) -> None:
    asked = {"unleased": 256, "unfinished": 256, "share": share, "units_per_second": 1000.0}
    assert size(**asked, fill=128) == count
    assert size(**asked, fill=0) == round(share * 256 + 0.5)


def test_what_is_left_beside_full_lanes_goes_with_them_or_to_others() -> None:
    left = {"unleased": 140, "unfinished": 256, "units_per_second": 1000.0, "fill": 128}
    assert size(**left, share=0.5) == 140
    assert size(**left, share=0.55, held=116, idle=False) == 0
    assert size(**left, share=0.9, held=116, idle=False) == 140
    assert size(**{**left, "unleased": 30}, share=1.0, held=226, idle=False) == 30


@given(
    unleased=st.integers(1, 5000),
    leased=st.integers(0, 5000),
    share=st.floats(0.0, 1.0),
    units_per_second=st.floats(1e-3, 1e6),
    fill=st.integers(0, 40_000),
)
def test_who_lies_about_its_lanes_gets_hardly_more_than_its_share(
    unleased: int, leased: int, share: float, units_per_second: float, fill: int
) -> None:
    asked = {
        "unleased": unleased,
        "unfinished": unleased + leased,
        "share": share,
        "units_per_second": units_per_second,
    }
    fair = max(1.0, share * (unleased + leased) + 1)
    assert size(**asked, fill=fill) <= max(size(**asked), 5 / 3 * fair)


@given(st.integers(1, 5000), st.integers(1, 5000), st.integers(0, 5000))
def test_few_units_take_as_long_as_more_but_no_longer_than_full_lanes(
    units: int, more: int, fill: int
) -> None:
    assert units <= as_full(units, fill) <= max(units, min(fill, MOST_TIMES * units))
    assert as_full(units, fill) <= as_full(units + more, fill)
    assert as_full(units, 0) == units
    assert as_full(100, 200) == 100 + EMPTY * 100


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


@given(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6))
def test_longer_batches_afford_longer_tasks_and_more_of_them(one: float, other: float) -> None:
    shorter, longer = sorted((one, other))
    assert least_seconds(shorter) <= least_seconds(longer)
    assert longer / least_seconds(longer) >= shorter / least_seconds(shorter) * (1 - 1e-9)


@given(st.floats(0.1, 1000.0), st.floats(0.2, 5.0))
def test_no_other_length_of_the_shortest_tasks_costs_less(batch: float, times: float) -> None:
    def cost(seconds: float) -> float:
        return seconds / 2 + MESSAGE_SECONDS * batch / seconds

    best = least_seconds(batch)
    assert cost(best) <= cost(best * times) * (1 + 1e-9)


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
    assert lease_seconds(expected, 3.0, 2.0, median, attempts) == seconds


@given(
    expected=st.floats(0.0, 1e6),
    more=st.floats(0.0, 1e6),
    factor=st.floats(1.0, 10.0),
    floor=st.floats(0.1, 100.0),
    median=st.none() | st.floats(1e-3, 1e3),
    attempts=st.integers(0, 20),
)
def test_a_lease_is_never_shorter_for_more_work_and_lies_within_its_bounds(
    expected: float, more: float, factor: float, floor: float, median: float | None, attempts: int
) -> None:
    shorter = lease_seconds(expected, factor, floor, median, attempts)
    assert shorter <= lease_seconds(expected + more, factor, floor, median, attempts)
    assert shorter <= lease_seconds(expected, factor, floor, median, attempts + 1)
    assert shorter >= floor
    if median is not None:
        assert shorter <= max(floor, 20.0 * median) * 2 ** min(attempts, 10)


@given(st.none() | st.floats(0.0, 100.0), st.floats(0.0, 100.0), st.floats(0.0, 100.0))
def test_a_lease_is_overdue_no_later_than_it_runs_out(
    median: float | None, deviation: float, more: float
) -> None:
    assert 1.0 <= OVERDUE.of(median, deviation) <= DEADLINE.of(median, deviation)
    for factor in (OVERDUE, DEADLINE):
        assert factor.of(median, deviation) <= factor.of(median, deviation + more)


def test_deadlines_follow_how_far_durations_scatter() -> None:
    assert (OVERDUE.of(None, 0.0), DEADLINE.of(None, 0.0)) == (1.5, 3.0)  # nothing is known
    assert (OVERDUE.of(1.0, 0.0), DEADLINE.of(1.0, 0.0)) == (1.1, 2.0)  # all as predicted
    assert (OVERDUE.of(1.0, 0.2), DEADLINE.of(1.0, 0.2)) == (1.0 + 3 * 0.2, 1.0 + 10 * 0.2)
    assert (OVERDUE.of(2.0, 0.1), DEADLINE.of(2.0, 0.1)) == (2.0 + 3 * 0.1, 3.0)  # all twice that


def test_a_pacing_tells_when_more_work_would_be_done() -> None:
    assert Pacing(2.0, 0.5).seconds(3) == 3.5
    assert Pacing(2.0, 0.5, fill=5).seconds(3) == 2.0 + 0.5 * as_full(3, 5) > 3.5


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


def test_a_lease_that_runs_out_in_the_moment_of_a_result_halves_the_pace() -> None:
    pace = Pace(0.0)
    pace.observe(1000, 1.0)
    pace.ran_out(6000, 0.0)
    assert pace.speed == 500.0
    pace.observe(1000, 1.0)
    assert pace.speed == 1000.0


@pytest.mark.parametrize("times", [0.1, 10.0])
def test_a_pace_that_changes_tenfold_is_followed_within_three_tasks(times: float) -> None:
    """Tasks are sized by the pace, 2 seconds of work by what is known of it."""
    speed, pace = 500.0, Pace(0.0)
    for _ in range(5):
        pace.observe(2.0 * pace.speed, 2.0 * pace.speed / speed)
    assert pace.speed == pytest.approx(speed)
    speed *= times
    for _ in range(3):
        pace.observe(2.0 * pace.speed, 2.0 * pace.speed / speed)
    assert pace.speed == pytest.approx(speed, rel=0.01)


def test_the_median_keeps_moving_after_many_values() -> None:
    window = Window()
    assert window.median is None
    for seconds in [1.0] * 200 + [5.0] * 120:
        window.add(seconds)
    assert (window.median, window.deviation) == (5.0, 0.0)


def test_nothing_is_said_of_too_few_values() -> None:
    window = Window(fewest=10)
    for value in range(9):
        window.add(float(value))
    assert window.median is None
    window.add(9.0)
    assert window.median is not None


@given(st.lists(st.floats(0.0, 1e6), min_size=1, max_size=400))
def test_a_window_forgets_all_but_the_last_hundred_or_so(values: list[float]) -> None:
    window = Window()
    for place, value in enumerate(values, 1):
        window.add(value)
        # The first few are looked at each time, then every twentieth.
        if place < Window.EVERY or place % Window.EVERY == Window.EVERY - 1:
            recent = sorted(values[max(0, place - Window.SIZE) : place])
            median = recent[len(recent) // 2]
            assert window.median == median
            assert window.deviation == sorted(abs(v - median) for v in recent)[len(recent) // 2]


def test_a_few_that_never_come_do_not_move_what_the_others_need() -> None:
    window = Window()
    for place in range(100):
        window.add(1000.0 if place % 3 == 0 else 0.9 + 0.002 * place)
    assert window.median is not None
    assert OVERDUE.of(window.median, window.deviation) < 1.5


def test_what_a_network_held_back_and_brought_at_once_makes_nobody_faster_than_it_was() -> None:
    """The lease of the first of two results ran out; the second was done meanwhile, too."""
    pace = Pace(0.0)
    for _ in range(3):
        pace.observe(1000.0, 1.0)
    pace.ran_out(1000.0, 4.0)
    pace.observe(1000.0, 0.001)
    assert pace.speed == pytest.approx(1000.0)
    for _ in range(3):
        pace.observe(1000.0, 0.1)
    assert pace.speed == pytest.approx(10_000.0), "it is followed within three tasks all the same"


def test_a_lease_of_what_failed_before_leaves_time_to_start_processes_again() -> None:
    often = {"factor": 3.0, "floor": 2.0, "median": 0.5}
    assert lease_seconds(1.0, attempts=0, **often) == 3.0
    assert lease_seconds(1.0, attempts=0, failed=True, **often) == RESTART_SECONDS
    assert lease_seconds(1.0, attempts=1, failed=True, **often) == RESTART_SECONDS
    assert lease_seconds(1.0, attempts=4, failed=True, **often) == 48.0
    assert lease_seconds(None, attempts=0, failed=True, **often) == 60.0
