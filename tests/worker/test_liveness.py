"""A worker that sleeps, whose connection flaps, or whose clock is wrong."""

from __future__ import annotations

from itertools import pairwise
from random import Random

from protocol import messages
from tests.worker.test_session import Desk, host_of
from worker.presence import HELLO_APART, Presence

HOUR = 3600.0


def test_a_laptop_that_sleeps_for_an_hour_comes_back_with_what_it_has() -> None:
    desk = Desk(host_of())
    desk.welcomed()
    for first in (0, 2):
        desk.is_told(desk.host.task(first=first))
    desk.finishes()
    (result,) = desk.told(messages.Result)
    desk.now += HOUR  # the lid is closed; the run goes on, and forgets it
    desk.host.grow(3)
    desk.pass_time(0.1, beats=False)
    assert "heard from the host for 3600 s; 1 result kept" in desk.warnings
    desk.obey(desk.session.disconnected(desk.now))
    desk.connected()
    desk.hears_beat()
    desk.hears_epoch()
    desk.pass_time(1.5)
    assert desk.left is None
    desk.is_welcomed()
    assert desk.host.hello is not None
    assert {held.task for held in desk.host.hello.held} == {1, 2}
    assert desk.told(messages.Result) == [result]
    assert [asked.version for asked in desk.told(messages.CatchUp)] == [0]
    desk.is_told(messages.Acknowledge((result.task,), "late", "its lease ran out"))
    desk.finishes()
    assert [result.task for result in desk.told(messages.Result)] == [2]
    for version in range(3):
        desk.hears(desk.host.inbox, desk.host.update(version))
    assert desk.session.view(desk.now).version == 3
    assert desk.session.view(desk.now).late == 1
    desk.is_told(desk.host.task(first=6))
    assert [job.task for job in desk.jobs] == [3], "it is a worker as before"


def test_a_connection_that_flaps_causes_no_more_than_a_hello_a_second() -> None:
    presence, now, hellos = Presence(Random(1)), 0.0, []
    for moment in range(6000):
        now = moment / 100.0
        if moment % 10 == 0:
            presence.disconnect()
            presence.connect(now)
            presence.beat(now)
        if presence.should_greet(now):
            presence.said_hello(now)
            hellos.append(now)
        if moment % 10 == 9 and hellos:
            presence.welcome(now)
    apart = [after - before for before, after in pairwise(hellos)]
    assert 20 < len(hellos) <= 61
    assert min(apart) >= HELLO_APART
