"""Whatever keeps a worker from evaluating, the volunteer reads why, in the status line."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from protocol import messages
from tests.worker.test_session import Desk, host_of
from worker.console import status_line


def no_broker(desk: Desk) -> None:
    pass


def nobody_leads(desk: Desk) -> None:
    desk.connected()


def evaluation_starts(desk: Desk) -> None:
    desk.connected()
    desk.hears_epoch()


def no_welcome(desk: Desk) -> None:
    evaluation_starts(desk)
    desk.ready()


def nothing_to_do(desk: Desk) -> None:
    desk.welcomed()


def broker_lost(desk: Desk) -> None:
    desk.welcomed()
    desk.obey(desk.session.disconnected(desk.now))


def host_asleep(desk: Desk) -> None:
    desk.welcomed()
    desk.pass_time(15.0, beats=False)


def host_gone(desk: Desk) -> None:
    desk.welcomed()
    desk.hears_beat(desk.host.beat("lost"))
    desk.pass_time(5.0, beats=False)


def paused(desk: Desk) -> None:
    desk.welcomed()
    desk.hears_epoch(desk.host.epoch("paused", reason="a new disk is built in"))


def slowed(desk: Desk) -> None:
    desk.welcomed()
    desk.is_told(messages.Notice("slow-down", "the coordinator is 0.8 s behind", 20.0))


def behind(desk: Desk) -> None:
    desk.host.grow(4)
    desk.welcomed()


def updating(desk: Desk) -> None:
    desk.welcomed()
    desk.hears_beat(desk.host.beat("updating"))


def leaving(desk: Desk) -> None:
    desk.welcomed()
    desk.is_told(desk.host.task())
    desk.finishes()
    desk.obey(desk.session.finish(desk.now))


CAUSES: dict[Callable[[Desk], None], str] = {
    no_broker: "no connection to the broker",
    nobody_leads: "waiting for the host of {run} to announce itself",
    evaluation_starts: "starting evaluation (the first time on a machine: up to a minute)",
    no_welcome: "said hello, waiting for the welcome",
    nothing_to_do: "waiting for a task",
    broker_lost: "no connection to the broker",
    host_asleep: "nothing was heard from the host for 10 s",
    host_gone: "the host is gone",
    paused: "a new disk is built in",
    slowed: "slowed down by the host for 20 s",
    behind: "catching up from version 0 to 4",
    updating: "the update is being made",
    leaving: "waiting for answers to the last results",
}


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.__name__)
def test_every_cause_has_its_words(cause: Callable[[Desk], None]) -> None:
    desk = Desk(host_of())
    cause(desk)
    line = status_line(desk.session.view(desk.now), (0.0, 0.0))
    assert f" | idle: {CAUSES[cause].format(run=desk.host.run)}" in line


def test_a_slow_broker_is_named_where_its_answer_is_what_is_waited_for() -> None:
    desk = Desk(host_of())
    desk.welcomed()
    views = [desk.session.view(desk.now, broker).idle_because for broker in (0.4, 1.26)]
    assert views == [
        "waiting for a task",
        "waiting for a task, over a broker that answers after 1.3 s",
    ]
    desk.is_told(desk.host.task())
    assert desk.session.view(desk.now, 1.26).idle_because == "", "it has something to do"
