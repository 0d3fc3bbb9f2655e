"""A worker whose coordinator asks it to slow down says nothing that can wait."""

from __future__ import annotations

import pytest

from protocol import messages, topics
from protocol.envelope import plain
from tests.worker.test_session import Desk, host_of


def slow_down(seconds: float = 20.0) -> messages.Notice:
    return messages.Notice("slow-down", "5,120 workers wait for a welcome", seconds)


def desk_of(**options: int) -> Desk:
    desk = Desk(host_of(), **options)
    desk.welcomed()
    desk.pass_time(0.5)
    desk.sent.clear()
    return desk


def test_the_volunteer_reads_one_line_and_sees_for_how_long() -> None:
    desk = desk_of()
    for _ in range(3):
        desk.is_told(slow_down())
        desk.pass_time(4.0)
    assert desk.warnings.count("slowed down by the host") == 1
    assert "for 20 s: 5,120 workers wait for a welcome" in desk.warnings
    assert desk.session.view(desk.now).idle_because == "slowed down by the host for 16 s"
    desk.pass_time(17.0)
    assert desk.session.view(desk.now).idle_because == "waiting for a task"
    desk.is_told(slow_down())
    assert desk.warnings.count("slowed down by the host") == 2


def test_signs_of_life_are_rarer_but_come_before_we_are_thought_gone() -> None:
    desk = desk_of()
    desk.is_told(slow_down(60.0))
    desk.pass_time(17.0)
    assert desk.told(messages.Status) == []
    desk.pass_time(3.0)
    assert len(desk.told(messages.Status)) == 1


def test_a_new_result_is_sent_and_one_that_was_sent_is_not_sent_again() -> None:
    desk = desk_of()
    desk.is_told(desk.host.task())
    desk.is_told(slow_down())
    desk.finishes()
    assert len(desk.told(messages.Result)) == 1
    desk.pass_time(19.0)
    assert desk.told(messages.Result) == []
    desk.pass_time(2.0)
    assert len(desk.told(messages.Result)) == 1


def test_nobody_who_was_asked_to_slow_down_thinks_itself_forgotten() -> None:
    desk = desk_of(credit=4)
    desk.is_told(desk.host.task())
    desk.finishes()
    desk.pass_time(27.0)
    assert len(desk.told(messages.Result)) == 3, "once more and it would say hello"
    desk.is_told(desk.host.task(first=2))
    desk.is_told(slow_down())
    desk.finishes()
    desk.pass_time(15.0)
    assert [result.first for result in desk.told(messages.Result)] == [2]
    assert desk.hellos() == []


def test_missed_updates_are_not_asked_for_before_the_time_is_up() -> None:
    desk = desk_of()
    desk.is_told(slow_down())
    desk.host.grow(3)
    desk.hears_update(2)
    desk.pass_time(19.0)
    assert desk.told(messages.CatchUp) == []
    desk.pass_time(20.0)
    assert desk.told(messages.CatchUp)


def test_credit_is_lowered_at_once_but_raised_only_afterwards() -> None:
    desk = Desk(host_of(), credit=3)
    desk.host.grow(3)
    desk.welcomed()
    assert desk.session.replica is not None and desk.session.replica.behind
    desk.is_told(slow_down())
    for version in range(3):
        desk.hears(desk.host.inbox, desk.host.update(version))
    desk.pass_time(19.0)
    assert desk.session.replica.version == 3
    assert desk.told(messages.Credit) == []
    desk.pass_time(2.0)
    assert [credit.credit for credit in desk.told(messages.Credit)] == [3]
    desk.is_told(desk.host.task())
    desk.is_told(slow_down())
    desk.obey(desk.session.finish(desk.now))
    assert [credit.credit for credit in desk.told(messages.Credit)] == [0]


@pytest.mark.parametrize("reason", ["reconnected", "asked to"])
def test_hello_waits_too_unless_somebody_else_leads(reason: str) -> None:
    desk = desk_of()
    desk.is_told(slow_down())
    if reason == "asked to":
        desk.is_told(messages.Notice("hello-again", ""))
    else:
        desk.obey(desk.session.disconnected(desk.now))
        desk.connected()
    desk.pass_time(19.0)
    assert desk.hellos() == []
    desk.pass_time(2.0)
    assert len(desk.hellos()) == 1
    other = desk.host.other(2)
    desk.is_told(slow_down())
    desk.hears(topics.epoch(desk.host.run), other.epoch())
    assert len(desk.hellos()) == 1


def test_only_the_coordinator_can_slow_us_down() -> None:
    desk = desk_of()
    desk.hears(desk.host.inbox, plain(slow_down(600.0)))
    forged = desk.host.other(1)
    forged.key = b"k" * 32
    desk.hears(desk.host.inbox, forged.sealed(slow_down(600.0)))
    assert "slowed" not in desk.warnings
    assert desk.session.view(desk.now).idle_because == "waiting for a task"
