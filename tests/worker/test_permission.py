"""When a machine may work: no clock, no sensor, but what a test says."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import ShoalError
from worker import permission
from worker.evaluation.memory import EMPTY
from worker.permission import (
    DAEMON,
    Heat,
    Latch,
    Permission,
    Readings,
    Terms,
    least_memory,
    memory_of_child,
)
from worker.permission_options import memory_of_all
from worker.schedule import parse

NOON, NIGHT = datetime(2026, 11, 30, 12), datetime(2026, 11, 30, 23)
CALM = Readings(on_battery=False, others=0.0, cores=8, untouched=1e6, heat=(Heat(50.0, 100.0),))


class Day:
    """A permission that is asked every 5 s."""

    def __init__(self, **terms: object) -> None:
        self.permission = Permission(Terms(**terms))  # type: ignore[arg-type]
        self.now = 1000.0

    def asks(self, readings: Readings, seconds: float = 5.0, local: datetime = NOON) -> str:
        """What holds after so long with the same readings."""
        said = ""
        for _ in range(round(seconds / 5.0)):
            self.now += 5.0
            said = self.permission.judge(readings, local, self.now)
        return said


def test_nothing_chosen_and_nothing_known_is_permission() -> None:
    assert Day().asks(Readings()) == ""
    busy = replace(CALM, on_battery=True, others=8.0, untouched=0.0, memory=1 << 40)
    assert Day().asks(busy, 60.0) == "", "nobody asked for more than care for heat"


def test_outside_its_hours_it_rests() -> None:
    day = Day(schedule=parse("22:00-07:00"))
    assert day.asks(CALM, local=NOON) == "paused: outside 22:00-07:00"
    assert day.asks(CALM, local=NIGHT) == ""


def test_on_battery_it_rests_until_the_mains_are_there_to_stay() -> None:
    day = Day(pause_on_battery=True)
    battery = replace(CALM, on_battery=True)
    assert day.asks(CALM) == ""
    assert day.asks(battery) == "paused: on battery"
    assert day.asks(CALM, permission.PLUGGED_FOR) == "paused: on battery"
    assert day.asks(battery) == "paused: on battery", "a loose plug"
    assert day.asks(CALM, permission.PLUGGED_FOR) == "paused: on battery"
    assert day.asks(CALM) == ""
    assert day.asks(replace(CALM, on_battery=None)) == "", "no battery at all"


def test_it_yields_to_what_lasts_and_comes_back_once_that_is_over() -> None:
    day = Day(idle_only=True)
    busy, less = replace(CALM, others=1.0), replace(CALM, others=0.5)
    assert day.asks(busy) == "", "a moment is nobody's work"
    assert day.asks(CALM) == ""
    assert day.asks(busy, 15.0) == "paused: this machine is in use"
    assert day.asks(less, 600.0) == "paused: this machine is in use", "between the bounds"
    assert day.asks(CALM, permission.CALM_FOR) == "paused: this machine is in use"
    assert day.asks(busy) == "paused: this machine is in use"
    assert day.asks(CALM, permission.CALM_FOR) == "paused: this machine is in use"
    assert day.asks(CALM) == ""
    assert Day().asks(busy, 60.0) == ""


@pytest.mark.parametrize(("cores", "bound"), [(1, 0.5), (4, 0.5), (8, 0.8), (64, 6.4)])
def test_how_much_others_use_of_a_machine_in_use(cores: int, bound: float) -> None:
    for others, used in ((bound - 0.01, False), (bound + 0.01, True)):
        said = Day(idle_only=True).asks(replace(CALM, cores=cores, others=others), 60.0)
        assert bool(said) == used


def test_a_key_that_was_typed_is_use_for_two_minutes() -> None:
    day = Day(idle_only=True)
    assert day.asks(replace(CALM, untouched=119.0)) == "paused: this machine is in use"
    assert day.asks(replace(CALM, untouched=120.0)) == ""
    assert day.asks(replace(CALM, untouched=None)) == "", "no terminal tells"


def test_too_hot_is_near_what_the_platform_calls_critical() -> None:
    day = Day()
    warm, hot = (Heat(94.0, 100.0),), (Heat(40.0, 100.0), Heat(95.4, 100.0))
    assert day.asks(replace(CALM, heat=warm)) == ""
    assert day.asks(replace(CALM, heat=hot)) == "paused: too hot (95 C)"
    assert day.asks(replace(CALM, heat=warm), 600.0) == "paused: too hot (95 C)", "not yet cool"
    assert day.asks(CALM, permission.COOL_FOR) == "paused: too hot (95 C)"
    assert day.asks(CALM) == ""
    assert day.asks(replace(CALM, heat=(Heat(99.0, 100.0),))) == "paused: too hot (99 C)"
    assert Day().asks(replace(CALM, heat=(Heat(140.0),))) == "", "no bound is known"


def test_too_hot_is_what_the_volunteer_says() -> None:
    day = Day(max_temperature=70.0)
    assert day.asks(replace(CALM, heat=(Heat(70.0),))) == "paused: too hot (70 C)"
    assert Day(max_temperature=70.0).asks(replace(CALM, heat=(Heat(69.9),))) == ""


def test_who_takes_too_much_memory_rests_until_it_takes_clearly_less() -> None:
    day = Day(memory=1 << 30)
    large = replace(CALM, memory=(1 << 30) + 1)
    near = replace(CALM, memory=(1 << 30) - 1)
    assert day.asks(near) == ""
    assert day.asks(large) == "paused: it takes 1 GiB of memory (--memory 1 GiB)"
    assert day.asks(near, 600.0) != ""
    assert day.asks(replace(CALM, memory=1 << 29), 15.0) == ""


def test_several_reasons_are_told_one_after_the_other_and_all_are_kept() -> None:
    day = Day(schedule=parse("22:00-07:00"), pause_on_battery=True)
    battery = replace(CALM, on_battery=True)
    assert "outside" in day.asks(battery, local=NOON)
    assert day.asks(CALM, local=NIGHT) == "paused: on battery"


@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.floats(0.1, 20.0)), max_size=60))
def test_a_latch_turns_only_after_its_time(looks: list[tuple[bool, bool, float]]) -> None:
    latch, now, turned = Latch(10.0, 60.0), 0.0, float("-inf")
    for on, off, wait in looks:
        now += wait
        before = latch.holds
        after = latch.look(on, off, now)
        if after != before:
            assert on if after else off
            assert now - turned >= (10.0 if after else 60.0)
            turned = now


@given(
    st.integers(1, 64), st.integers(0, 1 << 36), st.integers(0, 1 << 36), st.integers(0, 1 << 36)
)
def test_the_parts_of_a_worker_fit_into_its_memory(
    children: int, extra: int, rest: int, evaluating: int
) -> None:
    limit = least_memory(children) + extra
    each = memory_of_child(
        limit, Readings(memory=rest + evaluating, evaluating=evaluating), children
    )
    assert each >= EMPTY
    if each > EMPTY:
        assert max(rest, DAEMON) + children * each <= limit


def test_a_memory_that_suffices_for_nothing_is_refused_with_what_would() -> None:
    assert memory_of_all("1GiB", 2) == 1 << 30
    for text in ("300MiB", "much", "-1GB", "0"):
        with pytest.raises(
            ShoalError, match=r"--memory .*: must be at least 360 MiB.*2 evaluation"
        ):
            memory_of_all(text, 2)
