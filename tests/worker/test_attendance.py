from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.exit_codes import DONE, NO_ENVIRONMENT, UNREACHABLE
from worker.attendance import (
    IDLE_FOR,
    LONG_REST,
    MOST,
    PARKED_FOR,
    PATIENCE,
    REMEMBERED,
    SHORT_REST,
    Attendance,
)
from worker.permission import DAEMON, Readings
from worker.room import LEAST_FREE, USUAL, Room
from worker.view import View, over, together

RUNS = [f"run{number}" for number in range(40)]


def test_all_runs_are_joined_up_to_the_most_at_a_time() -> None:
    attendance, attended = Attendance(), set[str]()
    while run := attendance.next(RUNS, attended, True, 0.0):
        attended.add(run)
    assert attended == set(RUNS[:MOST])
    attended.remove(RUNS[3])
    attendance.ended(RUNS[3], DONE, "the run is finished", 1.0)
    assert attendance.next(RUNS, attended, True, 1.0) == RUNS[MOST]
    assert attendance.next(RUNS, attended, False, 1.0) == "", "there is no memory for more"


def test_a_run_that_ended_rests_ever_longer_until_it_has_a_task_for_us() -> None:
    attendance, moment = Attendance(), 0.0
    for rest in (SHORT_REST, 2 * SHORT_REST, 4 * SHORT_REST):
        attendance.ended("a", UNREACHABLE, "nobody announced it", moment)
        assert attendance.next(["a"], (), True, moment + rest - 0.1) == ""
        moment += rest
        assert attendance.next(["a"], (), True, moment) == "a"
    for _ in range(10):
        attendance.ended("a", DONE, "finished", moment)
    assert attendance.next(["a"], (), True, moment + LONG_REST) == "a"
    attendance.served("a")
    attendance.ended("a", DONE, "finished", moment)
    assert attendance.next(["a"], (), True, moment + SHORT_REST) == "a"


def test_a_run_that_cannot_be_served_is_said_once_and_not_asked_again_soon() -> None:
    attendance = Attendance()
    assert attendance.ended("a", NO_ENVIRONMENT, "no such environment", 0.0)
    assert attendance.next(["a", "b"], (), True, LONG_REST - 1.0) == "b"
    assert attendance.next(["a"], (), True, LONG_REST) == "a"
    assert not attendance.ended("a", NO_ENVIRONMENT, "no such environment", LONG_REST)
    assert attendance.ended("a", NO_ENVIRONMENT, "another reason", LONG_REST)


def test_who_is_idle_for_longest_makes_room_for_who_waits() -> None:
    attendance = Attendance(most=2)
    attended = {"a": 5.0, "b": IDLE_FOR + 1.0}
    places = dict.fromkeys(attended, 100.0)
    assert attendance.makes_room(attended, places, False, 0.0) == "", "nobody waits"
    assert attendance.next(["a", "b", "c"], attended, True, 0.0) == ""
    assert attendance.makes_room(attended, places, False, 0.0) == "b"
    attendance.parked("b", 0.0)
    assert attendance.next(["a", "b", "c"], ["a"], True, 0.0) == "c"
    assert attendance.next(["a", "b", "c"], ["a"], True, 1.0) == "c"
    assert attendance.next(["b"], ["a"], True, PARKED_FOR) == "b", "it comes back"


def test_who_waits_for_long_has_its_turn_though_nobody_is_idle() -> None:
    attendance = Attendance(most=2)
    attended, places = {"a": 0.0, "b": 0.0}, {"a": 400.0, "b": 390.0}
    assert attendance.next(["a", "b", "c"], attended, True, 0.0) == ""
    assert attendance.makes_room(attended, places, False, PATIENCE - 1.0) == ""
    assert attendance.makes_room(attended, places, False, PATIENCE) == "a"


def test_who_has_a_place_keeps_it_for_a_while_however_many_wait() -> None:
    attendance, here = Attendance(most=2), RUNS[:10]
    began: dict[str, float] = {}
    stays, waits = list[float](), dict.fromkeys(here, 0.0)
    for moment in map(float, range(int(12 * PATIENCE))):
        if run := attendance.next(here, began, True, moment):
            began[run], waited = moment, moment - waits[run]
            assert waited <= 5 * PATIENCE
        places = {run: moment - since for run, since in began.items()}
        if run := attendance.makes_room(dict.fromkeys(began, 0.0), places, False, moment):
            stays.append(moment - began.pop(run))
            attendance.parked(run, moment)
            waits[run] = moment
    assert len(stays) >= 20 and min(stays) >= PATIENCE


def test_too_much_memory_costs_the_idlest_its_place_but_never_the_last() -> None:
    attendance = Attendance()
    assert attendance.makes_room({"a": 1.0, "b": 0.0}, {"a": 9.0, "b": 99.0}, True, 0.0) == "a"
    assert attendance.makes_room({"a": 1.0}, {"a": 9.0}, True, 0.0) == ""


@given(st.lists(st.tuples(st.integers(0, 2000), st.sampled_from((0, 4, 5, 6))), max_size=1500))
def test_what_is_remembered_is_bounded(ends: list[tuple[int, int]]) -> None:
    attendance = Attendance()
    for moment, (number, code) in enumerate(ends):
        attendance.ended(f"run{number}", code, f"{number}", float(moment))
        assert len(attendance._rests) <= REMEMBERED >= len(attendance._told)


# Memory.


def test_runs_have_room_in_what_the_volunteer_said() -> None:
    room = Room(DAEMON + 5 * USUAL)
    assert room.has_for_more(children=2, runs=0)
    assert room.has_for_more(children=2, runs=1)
    assert not room.has_for_more(children=2, runs=2)
    assert not room.is_short(2, 2)
    assert room.is_short(2, 3)
    room.read(Readings(memory=DAEMON + 5 * USUAL, evaluating=4 * USUAL), free=1 << 40)
    assert room.is_short(2, 2), "it is near the limit"
    room.read(Readings(memory=DAEMON + 4 * USUAL, evaluating=8 * USUAL), free=1 << 40)
    assert not room.has_for_more(2, 2)


def test_runs_have_room_in_half_of_what_was_free() -> None:
    room = Room(None)
    assert room.has_for_more(1, 0)
    assert not room.has_for_more(1, 1), "not before it is known what is free"
    room.read(Readings(), free=2 * (DAEMON + 3 * USUAL))
    assert room.has_for_more(1, 2)
    assert not room.has_for_more(1, 3)
    room.read(Readings(), free=LEAST_FREE - 1)
    assert room.is_short(1, 2)


# What is seen of them.


def test_several_runs_are_seen_as_one() -> None:
    busy = View(version=3, running=1, done=5, steps=70, seconds_left=2.0, accepted=4)
    idle = View(version=9, done=1, steps=10, idle_because="waiting for a task", paused="paused")
    both = together([busy, idle])
    assert (both.running, both.done, both.steps, both.accepted) == (1, 6, 80, 4)
    assert (both.idle_because, both.paused, both.version) == ("", "paused", 0)
    assert both.seconds_left == 2.0
    assert together([idle]) is idle
    assert together([idle, idle]).idle_because == "waiting for a task"
    other = View(idle_because="the update is being made")
    assert together([idle, other]).idle_because == "waiting for a task of any run"
    left = over(busy)
    assert (left.running, left.done, left.steps) == (0, 5, 70)


@pytest.mark.parametrize("most", [1, 3])
def test_places_that_get_free_go_to_who_waited_longest(most: int) -> None:
    attendance = Attendance(most)
    first = RUNS[:most]
    for late, run in enumerate(RUNS[most : most + 3]):
        here = [*first, *RUNS[most : most + late + 1]]
        assert attendance.next(here, first, True, float(late)) == "", run
    assert attendance.next(RUNS[::-1], first[1:], True, 5.0) == RUNS[most]
