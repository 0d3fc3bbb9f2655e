"""What of a worker's results the updates used, whichever is heard of first."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import messages
from protocol.messages import Cohort, Result, Update
from protocol.packing import pack_integers
from tests.worker.test_session import Desk, host_of
from worker import counting
from worker.counting import Counting
from worker.pace import Rhythm

EMPTY = Update(1, 0, (), 0.0, 0.0, 0.1, (), 0, 0, bytes(16), bytes(16))


def update_of(version: int, *cohorts: tuple[int, int, list[int]]) -> Update:
    """An update of cohorts (first direction, version, weights)."""
    packed = tuple(
        Cohort(first, at, 60, pack_integers(np.array(weights))) for first, at, weights in cohorts
    )
    return msgspec.structs.replace(EMPTY, version=version, cohorts=packed)


def result_of(version: int, first: int, count: int, kind: messages.TaskKind = "members") -> Result:
    return Result(1, kind, version, first, count, 1, bytes(16), b"", b"")


def counting_from(version: int) -> Counting:
    found = Counting()
    found.began(version)
    return found


def test_what_has_a_weight_counts_once() -> None:
    found = counting_from(0)
    found.accepted([result_of(3, 10, 4), result_of(3, 16, 2)])
    found.update(update_of(3, (8, 3, [1, 1, 0, 5, -5, 1, 1, 1, 0, 0])))
    assert (found.updates, found.directions, found.of) == (1, 3, 7)
    assert found.share == pytest.approx(3 / 7)


def test_other_versions_other_directions_and_the_centre_are_not_ours() -> None:
    found = counting_from(0)
    found.accepted([result_of(2, 0, 9), result_of(3, 20, 4), result_of(3, 0, 4, "centre")])
    found.update(update_of(3, (0, 3, [1] * 9), (30, 2, [1, 1])))
    assert (found.updates, found.directions, found.of) == (0, 0, 11)


def test_updates_from_before_our_first_task_are_not_looked_at() -> None:
    found = Counting()
    found.update(update_of(0, (0, 0, [1] * 8)))
    found.began(2)
    found.update(update_of(1, (8, 1, [1] * 8)))
    found.update(update_of(2, (16, 2, [1] * 8)))
    assert (found.updates, found.of) == (0, 8)


def test_what_was_late_counts_in_a_later_update() -> None:
    found = counting_from(0)
    found.accepted([result_of(2, 0, 4)])
    found.update(update_of(3, (8, 3, [1] * 8), (0, 2, [1, 0, 1])))
    assert (found.updates, found.directions) == (1, 2)


def test_an_answer_after_the_update_counts_too() -> None:
    found = counting_from(0)
    found.update(update_of(3, (0, 3, [1] * 8)))
    assert (found.updates, found.of) == (0, 8)
    found.accepted([result_of(3, 0, 2)])
    found.accepted([result_of(3, 4, 2)])
    assert (found.updates, found.directions) == (1, 4)


def test_weights_that_can_not_be_read_are_somebody_elses_to_complain_of() -> None:
    found = counting_from(0)
    found.accepted([result_of(0, 0, 4)])
    found.update(msgspec.structs.replace(EMPTY, cohorts=(Cohort(0, 0, 60, b"\xff\x01"),)))
    assert (found.updates, found.of, found.share) == (0, 0, 0.0)


def test_what_is_remembered_is_bounded() -> None:
    found = counting_from(0)
    for version in range(counting.UPDATES_KEPT + 1):
        found.update(update_of(version, (0, version, [1])))
    found.accepted([result_of(0, 0, 1)])
    assert found.updates == 0
    for first in range(counting.RESULTS_KEPT + 1):
        found.accepted([result_of(99, first, 1)])
    found.update(update_of(99, (0, 99, [1] * 5)))
    assert found.directions == 4


@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 11), st.booleans()), max_size=24),
    st.lists(st.integers(-1, 1), min_size=24, max_size=24),
)
def test_the_order_of_answers_and_updates_makes_no_difference(
    events: list[tuple[int, int, bool]], weights: list[int]
) -> None:
    updates = [update_of(v, (0, v, weights[12 * v : 12 * v + 12])) for v in (0, 1)]
    ours = {(version, first) for version, first, _ in events}
    early = {(version, first) for version, first, is_early in events if is_early}
    found = counting_from(0)
    found.accepted([result_of(version, first, 1) for version, first in sorted(early)])
    for update in updates:
        found.update(update)
    found.accepted([result_of(version, first, 1) for version, first in sorted(ours - early)])
    used = [(version, first) for version, first in ours if weights[12 * version + first]]
    assert found.directions == len(used)
    assert found.updates == len({version for version, _ in used})
    assert found.of == int(np.count_nonzero(weights))


def test_a_session_tells_what_its_work_counted_for() -> None:
    desk = Desk(host_of())
    desk.welcomed()
    directions = desk.host.spec.directions
    desk.is_told(desk.host.task(first=0, count=4))
    desk.finishes()
    desk.is_told(messages.Acknowledge((1,), "accepted"))
    desk.host.grow(1)
    desk.hears_update(0)
    view = desk.session.view(desk.now)
    assert view.counted == 1
    assert 0.0 < view.share <= 4 / directions * 1.5, "the weights are random, some of them 0"
    desk.host.grow(1)
    desk.hears_update(1)
    assert desk.session.view(desk.now).counted == 1


# Why it is idle.


def test_who_waits_for_the_next_update_says_when_it_comes() -> None:
    desk = Desk(host_of())
    desk.welcomed()
    desk.host.grow(4)
    for version in range(3):
        assert desk.session.view(desk.now).idle_because == "waiting for a task"
        desk.hears_update(version)
        desk.pass_time(6.0)
    view = desk.session.view(desk.now)
    assert view.idle_because == "update 3 fully leased"
    assert view.next_in == pytest.approx(0.0, abs=0.2)
    desk.hears_update(3)
    assert desk.session.view(desk.now).idle_because == "waiting for a task", "one may come at once"
    desk.pass_time(2.0)
    view = desk.session.view(desk.now)
    assert view.idle_because == "update 4 fully leased"
    assert view.next_in == pytest.approx(4.0, abs=0.2)
    desk.pass_time(18.0)
    assert desk.session.view(desk.now).idle_because == "waiting for a task", "no pace is kept"
    desk.is_told(desk.host.task(first=0, version=4))
    assert desk.session.view(desk.now).next_in is None


@given(st.lists(st.floats(0.0, 100.0), max_size=30), st.floats(0.0, 1000.0))
def test_a_pace_is_never_a_time_past(waits: list[float], after: float) -> None:
    rhythm, now = Rhythm(), 0.0
    for wait in waits:
        now += wait
        rhythm.update(now)
    left = rhythm.next_in(now + after)
    assert left is None or 0.0 <= left <= 100.0
