"""Tasks that take long: finished parts are results of their own, whatever comes of the rest."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol import messages, topics
from protocol.messages import Part
from protocol.normalizer import no_observations
from tests.worker.test_session import Desk, done, host_of, said_bye
from worker import leaving, outbox
from worker.commands import Evaluate
from worker.evaluation.jobs import Evaluation

LEASE = {"first": 10, "count": 6}


def desk_with_a_task(**changes: object) -> tuple[Desk, messages.Task]:
    desk = Desk(host_of())
    desk.welcomed()
    task = desk.host.task(**{**LEASE, **changes})
    desk.is_told(task)
    return desk, task


def piece(job: Evaluate, first: int, count: int) -> Evaluation:
    """What is known of these directions, the same in any piece."""
    directions = np.arange(first, first + count)
    returns = np.stack([directions + 0.5, -directions - 0.25], axis=1)
    lengths = np.stack([directions, directions + 1], axis=1)
    if job.job.kind == "centre":
        return Evaluation(first, returns[:, 0], lengths[:, 0])
    return Evaluation(first, returns, lengths, no_observations(4))


def evaluates(desk: Desk, first: int, count: int, task: int = 1) -> None:
    """A part of a task is finished."""
    job = next(job for job in desk.jobs if job.task == task)
    desk.obey(desk.session.evaluated(task, piece(job, first, count), desk.now))


def test_each_part_is_sent_when_it_is_there_and_kept_until_its_name_is_answered() -> None:
    desk, task = desk_with_a_task()
    evaluates(desk, 12, 2)
    evaluates(desk, 10, 1)
    middle, left = desk.told(messages.Result)
    assert (middle.first, middle.count, middle.part) == (12, 2, Part(2, 2))
    assert (left.first, left.count, left.part) == (10, 1, Part(0, 5))
    assert {part.token for part in (middle, left)} == {task.token}
    assert messages.result_arrays(middle)[0].tolist() == [[12.5, -12.25], [13.5, -13.25]]
    view = desk.session.view(desk.now)
    assert (view.running, view.done, view.unanswered, view.episodes) == (1, 0, 2, 6)
    desk.is_told(messages.Acknowledge(((1, 2),), "accepted"))
    desk.pass_time(14.0)
    assert desk.told(messages.Result) == [left]
    desk.is_told(desk.host.task(first=0, count=1, acknowledged=((1, 0), 1)))
    assert desk.session.view(desk.now).unanswered == 0
    evaluates(desk, 11, 1)
    evaluates(desk, 14, 2)
    second, last = desk.told(messages.Result)
    assert (second.part, last.part) == (Part(1, 4), Part(4, 0))
    view = desk.session.view(desk.now)
    assert (view.running, view.done, view.accepted, view.episodes) == (1, 1, 2, 12)
    assert desk.told(messages.Refusal) == []


def test_results_that_find_no_room_any_more_are_told_of_ever_more_rarely(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outbox, "MOST_BYTES", 1)
    desk, _ = desk_with_a_task()
    for first in range(10, 16):
        evaluates(desk, first, 1)
    told = [said.text for said in desk.said if said.warning]
    assert [text.split(" let go")[0] for text in told] == ["1 result", "2 results", "4 results"]


def test_parts_that_were_never_sent_may_be_called_late_and_twice() -> None:
    desk, task = desk_with_a_task(version=3)
    desk.is_told(messages.Acknowledge(((1, 0), (1, 2), (2, 0)), "late"))
    (refusal,) = desk.told(messages.Refusal)
    assert (refusal.task, refusal.cause) == (task.task, "handed-back")


def test_an_answer_for_the_whole_or_another_part_leaves_a_part_where_it_is() -> None:
    desk, _ = desk_with_a_task()
    evaluates(desk, 12, 2)
    for names in ((1,), ((1, 0),), ((2, 2),), (2,)):
        desk.is_told(messages.Acknowledge(names, "accepted"))
    assert desk.session.view(desk.now).unanswered == 1


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_cut_of_a_task_in_any_order_makes_up_the_whole(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(["members", "centre"]))
    desk, task = desk_with_a_task(kind=kind)
    whole = piece(desk.jobs[0], task.first, task.count)
    cuts = sorted(data.draw(st.sets(st.integers(1, task.count - 1))))
    edges = [0, *cuts, task.count]
    pieces = [(task.first + begin, end - begin) for begin, end in pairwise(edges)]
    order = data.draw(st.permutations(pieces))
    for first, count in order:
        assert desk.session.view(desk.now).running == 1
        evaluates(desk, first, count)
    results = sorted(desk.told(messages.Result), key=lambda result: result.first)
    assert len(results) == len(pieces)
    arrays = [messages.result_arrays(result) for result in results]
    assert np.array_equal(np.concatenate([returns for returns, _ in arrays]), whole.returns)
    assert np.array_equal(np.concatenate([lengths for _, lengths in arrays]), whole.lengths)
    for result in results:
        part = result.part or Part(0, 0)
        assert result.first - part.before == task.first
        assert part.before + result.count + part.after == task.count
    assert (results[0].part is None) == (len(results) == 1), "a whole result is no part"
    assert desk.session.view(desk.now).running == 0


def test_after_a_reconnect_a_hello_names_the_lease_once_and_every_part_is_sent_again() -> None:
    desk, task = desk_with_a_task()
    finished = desk.host.task(first=0, count=4)
    desk.is_told(finished)
    for first in (10, 12):
        evaluates(desk, first, 1)
    evaluates(desk, 0, 1, finished.task)
    evaluates(desk, 1, 3, finished.task)
    desk.is_told(messages.Acknowledge(((2, 0),), "accepted"))
    sent = [result for result in desk.told(messages.Result) if result.name != (2, 0)]
    desk.obey(desk.session.disconnected(desk.now))
    evaluates(desk, 14, 1)
    desk.pass_time(60.0, beats=False)
    assert desk.told(messages.Result) == []
    desk.connected()
    desk.is_welcomed()
    assert desk.host.hello is not None
    assert [held.task for held in desk.host.hello.held] == [task.task, finished.task]
    for held, lease in zip(desk.host.hello.held, (task, finished), strict=True):
        for name in messages.Held.__struct_fields__:
            assert getattr(held, name) == getattr(lease, name)
    again = {result.name: result for result in desk.told(messages.Result)}
    assert {result.name: result for result in sent}.items() <= again.items()
    assert set(again) == {(1, 0), (1, 2), (1, 4), (2, 1)}


def test_parts_outlive_a_coordinator_that_is_gone() -> None:
    desk, _ = desk_with_a_task()
    desk.hears_beat(desk.host.beat("lost"))
    desk.pass_time(5.0, beats=False)
    for first in range(10, 15):
        evaluates(desk, first, 1)
        desk.pass_time(5.0, beats=False)
    evaluates(desk, 15, 1)
    assert desk.told(messages.Result) == []
    desk.hears_beat()
    desk.pass_time(0.1)
    desk.is_welcomed()
    assert sorted(result.first for result in desk.told(messages.Result)) == list(range(10, 16))


# What comes of the rest.


def test_handing_back_sends_what_is_finished_then_the_rest_and_leaves() -> None:
    desk, task = desk_with_a_task()
    waiting = desk.host.task(first=0, version=1)
    desk.is_told(waiting)
    evaluates(desk, 10, 1)
    desk.told(messages.Result)
    already = len(desk.sent)
    desk.obey(desk.session.hand_back(desk.now))
    assert desk.abandoned == [task.task]
    assert desk.left is None
    assert desk.session.hand_back(desk.now) == []
    evaluates(desk, 12, 2)
    desk.obey(desk.session.abandoned(task.task, desk.now))
    credit, first, part, rest = (desk.host.unsealed(s.payload) for s in desk.sent[already:-1])
    assert credit == messages.Credit(0, 0, 1)
    assert isinstance(first, messages.Refusal) and first.task == waiting.task
    assert isinstance(part, messages.Result) and part.name == (task.task, 2)
    assert isinstance(rest, messages.Refusal)
    assert (rest.task, rest.token, rest.cause) == (task.task, task.token, "handed-back")
    assert desk.left is not None
    assert (desk.left.code, desk.left.text) == (0, "handed 2 tasks back and left")
    del desk.sent[already:-1]
    assert said_bye(desk) == "left"


def test_what_the_evaluation_does_not_hand_over_is_not_waited_for() -> None:
    desk, task = desk_with_a_task()
    desk.obey(desk.session.hand_back(desk.now))
    desk.pass_time(leaving.HAND_BACK_WITHIN - 0.1)
    assert desk.left is None
    desk.pass_time(0.2)
    assert desk.left is not None
    assert [refusal.task for refusal in desk.told(messages.Refusal)] == [task.task]
    assert desk.abandoned == [task.task]


def test_who_is_cut_off_hands_nothing_back_and_leaves_at_once() -> None:
    desk, task = desk_with_a_task()
    desk.obey(desk.session.disconnected(desk.now))
    desk.obey(desk.session.hand_back(desk.now))
    assert desk.abandoned == [task.task]
    assert desk.left is not None
    assert desk.sent == []


def test_a_task_that_ends_while_it_is_handed_back_is_no_refusal() -> None:
    desk, task = desk_with_a_task()
    evaluates(desk, 10, 3)
    desk.obey(desk.session.hand_back(desk.now))
    evaluates(desk, 13, 3)
    assert [result.part for result in desk.told(messages.Result)] == [Part(0, 3), Part(3, 0)]
    assert desk.told(messages.Refusal) == []
    assert desk.left is not None
    assert desk.session.abandoned(task.task, desk.now) == []


def test_the_first_stop_finishes_a_task_in_parts() -> None:
    desk, _ = desk_with_a_task()
    evaluates(desk, 10, 3)
    desk.obey(desk.session.finish(desk.now))
    desk.is_told(messages.Acknowledge(((1, 0),), "accepted"))
    assert desk.left is None
    evaluates(desk, 13, 3)
    assert desk.left is None
    desk.is_told(messages.Acknowledge(((1, 3),), "accepted"))
    assert desk.left is not None
    assert desk.abandoned == []


def test_a_failure_after_a_part_costs_the_rest_alone() -> None:
    desk, task = desk_with_a_task()
    evaluates(desk, 10, 3)
    desk.obey(desk.session.evaluation_failed(task.task, "the process was killed", desk.now))
    (refusal,) = desk.told(messages.Refusal)
    assert (refusal.task, refusal.cause) == (task.task, "worker")
    assert desk.session.view(desk.now).unanswered == 1
    desk.told(messages.Result)
    desk.begins_anew()
    assert desk.host.hello is not None
    assert desk.host.hello.held == (), "the rest of that lease will never come"
    assert [result.name for result in desk.told(messages.Result)] == [(task.task, 0)]


def test_a_late_part_ends_its_task_and_another_answer_does_not() -> None:
    desk, task = desk_with_a_task()
    for first in (10, 11, 12):
        evaluates(desk, first, 1)
    desk.is_told(messages.Acknowledge(((1, 0),), "duplicate", "another worker was first"))
    desk.is_told(messages.Acknowledge(((1, 1),), "refused", "nonsense"))
    assert desk.abandoned == []
    desk.is_told(messages.Acknowledge(((1, 2),), "late", "2 versions old"))
    desk.is_told(messages.Acknowledge(((1, 2),), "late", "2 versions old"))
    assert desk.abandoned == [task.task]
    assert desk.told(messages.Refusal) == []
    desk.told(messages.Result)
    evaluates(desk, 13, 1)
    desk.begins_anew()
    assert desk.host.hello is not None
    assert desk.host.hello.held == ()
    assert [result.name for result in desk.told(messages.Result)] == [(task.task, 3)]
    evaluates(desk, 14, 1)
    desk.obey(desk.session.abandoned(task.task, desk.now))
    assert [result.name for result in desk.told(messages.Result)] == [(task.task, 4)]
    (refusal,) = desk.told(messages.Refusal)
    assert (refusal.task, refusal.cause) == (task.task, "handed-back")
    assert "2 versions old" in refusal.reason
    assert desk.left is None


def test_a_whole_result_that_is_late_ends_nothing() -> None:
    desk, _ = desk_with_a_task()
    desk.is_told(desk.host.task(first=0))
    desk.finishes(2)
    desk.is_told(messages.Acknowledge((2, 1), "late", "2 versions old"))
    assert desk.abandoned == []


def test_parts_of_wrong_parameters_are_not_sent() -> None:
    desk, task = desk_with_a_task()
    job = desk.jobs[0]
    desk.is_told(desk.host.task(digest=b"x" * 16))
    assert desk.abandoned == [task.task]
    assert desk.session.evaluated(task.task, done(job), desk.now) == []
    assert desk.session.abandoned(task.task, desk.now) == []
    assert desk.told(messages.Result) == []
    assert desk.session.view(desk.now).unanswered == 0


def test_a_part_that_no_message_can_hold_ends_its_task() -> None:
    desk, task = desk_with_a_task(count=600)
    evaluates(desk, 10, 3)
    failing = Evaluation(
        20,
        np.full((300, 2), np.nan),
        np.zeros((300, 2), np.int64),
        no_observations(4),
        tuple((direction, "raised") for direction in range(20, 320)),
    )
    desk.obey(desk.session.evaluated(task.task, failing, desk.now))
    (refusal,) = desk.told(messages.Refusal)
    assert (refusal.task, refusal.cause) == (task.task, "spec")
    assert "300 of 300" in refusal.reason
    assert desk.abandoned == [task.task]
    assert len(desk.told(messages.Result)) == 1
    assert desk.session.view(desk.now).running == 0


def test_a_whole_result_costs_one_byte_for_not_being_a_part() -> None:
    desk, _ = desk_with_a_task()
    desk.finishes()
    (send,) = [send for send in desk.sent if "/results/" in send.topic]
    (result,) = desk.told(messages.Result)
    assert topics.parse(send.topic) is not None
    assert result.part is None
    assert messages.encode(result)[-1:] == b"\xc0"
    fields = len(messages.Result.__struct_fields__) + 1
    assert messages.encode(result)[0] == 0x90 + fields, "a longer head would cost more"
