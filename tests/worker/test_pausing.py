"""A session that is paused by its volunteer, that may do so much and no more, and that leaves."""

from __future__ import annotations

from protocol import messages
from tests.worker.test_session import Desk, host_of
from worker import session
from worker.session import Session

YOU = "paused by you"


def desk_at_work() -> Desk:
    desk = Desk(host_of())
    desk.welcomed()
    desk.is_told(desk.host.task())
    return desk


def test_a_pause_takes_nothing_new_finishes_what_runs_and_stays() -> None:
    desk = desk_at_work()
    desk.host.grow(1)
    desk.is_told(desk.host.task(first=2, version=1))
    already = len(desk.sent)
    desk.obey(desk.session.pause(YOU, desk.now))
    # No credit first: else what is handed back would come again at once.
    credit, refusal = (desk.host.unsealed(send.payload) for send in desk.sent[already:])
    assert credit == messages.Credit(0, 0, 1)
    assert isinstance(refusal, messages.Refusal)
    assert (refusal.task, refusal.cause) == (2, "handed-back")
    view = desk.session.view(desk.now)
    assert (view.running, view.paused, view.idle_because) == (1, YOU, "")
    desk.is_told(desk.host.task(first=4))
    assert {refusal.cause for refusal in desk.told(messages.Refusal)} == {"handed-back"}
    desk.finishes()
    assert [result.task for result in desk.told(messages.Result)] == [1]
    desk.hears_update(0)
    assert desk.session.view(desk.now).idle_because == YOU
    desk.told(messages.Credit)
    desk.pass_time(600.0)
    assert desk.left is None
    assert desk.told(messages.Credit) == []
    assert {status.state for status in desk.told(messages.Status)} == {"paused"}


def test_who_is_paused_follows_the_run_keeps_its_results_and_goes_on_when_told() -> None:
    desk = desk_at_work()
    desk.obey(desk.session.pause(YOU, desk.now))
    desk.host.grow(3)
    for version in range(3):
        desk.hears_update(version)
    view = desk.session.view(desk.now)
    assert (view.version, view.running) == (3, 1)
    desk.finishes()
    assert desk.session.view(desk.now).unanswered == 1
    desk.told(messages.Credit)
    desk.obey(desk.session.pause("", desk.now))
    assert [credit.credit for credit in desk.told(messages.Credit)] == [2]
    desk.is_told(desk.host.task(first=6, version=3))
    assert desk.session.view(desk.now).running == 1
    assert [line.text for line in desk.said if "paused" in line.text or "goes on" in line.text] == [
        YOU,
        "goes on: takes tasks again",
    ]


def test_a_pause_that_changes_its_reason_is_one_pause() -> None:
    desk = desk_at_work()
    desk.finishes()
    for degrees in (95, 94, 93):
        desk.obey(desk.session.pause(f"paused: too hot ({degrees} C)", desk.now))
    assert [credit.credit for credit in desk.told(messages.Credit)] == [0]
    assert desk.session.view(desk.now).idle_because == "paused: too hot (93 C)"
    assert len([line for line in desk.said if "too hot" in line.text]) == 1


def test_who_is_paused_says_so_to_whoever_leads_next() -> None:
    desk = desk_at_work()
    desk.finishes()
    desk.obey(desk.session.pause(YOU, desk.now))
    desk.begins_anew()
    assert desk.host.hello is not None
    assert desk.host.hello.credit == 0
    desk.told(messages.Credit)
    desk.pass_time(5.0)
    assert desk.told(messages.Credit) == []


def test_a_pause_from_the_start_is_told_in_the_hello() -> None:
    desk = Desk(host_of())
    desk.obey(desk.session.pause(YOU, desk.now))
    desk.welcomed()
    assert desk.host.hello is not None
    assert desk.host.hello.credit == 0
    assert desk.session.view(desk.now).idle_because == YOU


def test_no_connection_is_told_before_a_pause() -> None:
    desk = desk_at_work()
    desk.finishes()
    desk.obey(desk.session.pause(YOU, desk.now))
    desk.obey(desk.session.disconnected(desk.now))
    assert desk.session.view(desk.now).idle_because == "no connection to the broker"


# So many tasks and no more.


def desk_for(tasks: int) -> Desk:
    desk = Desk(host_of())
    chosen = session.Settings(2, "tester", "cpu x1", False, most_tasks=tasks)
    desk.session = Session(desk.session.handshake, chosen, desk.session._random)
    desk.welcomed()
    return desk


def test_no_more_tasks_are_taken_than_the_volunteer_wants() -> None:
    desk = desk_for(3)
    for first in range(5):
        desk.is_told(desk.host.task(first=first, count=1))
    assert len(desk.jobs) == 3
    assert len(desk.told(messages.Refusal)) == 2
    for left in (2, 1, 0):
        desk.finishes()
        view = desk.session.view(desk.now)
        assert (view.done, view.running) == (3 - left, left)
    assert [credit.credit for credit in desk.told(messages.Credit)] == [1, 0]


def test_a_task_that_came_to_nothing_is_made_up_for() -> None:
    desk = desk_for(1)
    desk.is_told(desk.host.task())
    desk.obey(desk.session.evaluation_failed(1, "it broke", desk.now))
    desk.told(messages.Refusal)
    desk.is_told(desk.host.task(first=3))
    assert len(desk.jobs) == 2
    assert desk.told(messages.Refusal) == []


# The countdown.


def test_who_finishes_says_how_long_that_takes() -> None:
    desk = desk_at_work()
    desk.pass_time(4.0)
    desk.finishes()  # 4 s a task
    for first in (4, 8):
        desk.is_told(desk.host.task(first=first))
    desk.pass_time(1.0)
    desk.obey(desk.session.finish(desk.now))
    assert "finishing 2 tasks, about 7 s left; Ctrl-C again hands them back" in desk.warnings
    desk.pass_time(3.0)
    assert desk.session.view(desk.now).leaving.startswith("finishing 2 tasks, about 4 s left")
    desk.finishes()
    desk.pass_time(3.8)
    said = desk.session.view(desk.now).leaving
    assert said == "finishing 1 task, a moment left; Ctrl-C again hands it back"
    desk.finishes()
    said = desk.session.view(desk.now).leaving
    assert said == "waiting for the answer to 3 results; Ctrl-C again leaves at once"


def test_of_a_first_task_nobody_knows_how_long_it_takes() -> None:
    desk = desk_at_work()
    desk.obey(desk.session.finish(desk.now))
    assert "finishing 1 task; Ctrl-C again hands it back" in desk.warnings


def test_who_leaves_for_another_reason_than_a_key_says_which() -> None:
    desk = desk_at_work()
    desk.obey(desk.session.finish(desk.now, "--max-tasks 1 is reached"))
    assert "--max-tasks 1 is reached: finishing 1 task" in desk.warnings
    assert "Ctrl-C" not in desk.warnings
    desk.finishes()
    desk.is_told(messages.Acknowledge((1,), "accepted"))
    assert desk.left is not None
    assert desk.left.code == 0
    assert desk.left.text == "--max-tasks 1 is reached: left; every result is answered for"
