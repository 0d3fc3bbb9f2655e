"""What a worker says again is no second word for it, and a task is one however it is cut."""

from __future__ import annotations

import dataclasses

import pytest

from coordinator.pool.events import (
    Arrived,
    CloseBatch,
    Command,
    HeldLease,
    Joined,
    KeepResult,
    Left,
    SendAcknowledge,
    SendTask,
)
from coordinator.trust.trust import PROBATION
from tests.coordinator.driver import of, piece, units
from tests.coordinator.test_pool_audits import CLASS, Crowd, Observers, session


def pieces(task: SendTask) -> list[Arrived]:
    """The result of a task, direction by direction."""
    return [piece(task, unit, 1) for unit in sorted(units(task))]


def held_back(said: list[Command]) -> bool:
    """Whether a result did not count."""
    return not of(said, KeepResult) and "duplicate" in [
        each.outcome for each in of(said, SendAcknowledge)
    ]


def checks(crowd: Crowd) -> int:
    """How many wait for somebody to do them."""
    assert crowd.pool._auditing is not None
    return len(crowd.pool._auditing.checks.waiting)


def holds(crowd: Crowd) -> int:
    """How many results are held back."""
    assert crowd.pool._auditing is not None
    batches = crowd.pool._auditing._held._held.values()
    return len({id(held) for places in batches for near in places.values() for held in near})


@pytest.mark.parametrize("established", ["", "b", "bcd"])
def test_a_newcomers_result_does_not_count_by_being_sent_again(established: str) -> None:
    crowd = Crowd(established=established)
    crowd.enter("ab")
    mine = crowd.held("a")[0]
    crowd.enter("cd")
    for _ in range(5):
        assert held_back(crowd.answer(mine))
        assert holds(crowd) == 1 and not checks(crowd)


def test_a_part_of_a_lease_that_is_out_does_not_count_by_being_sent_again() -> None:
    crowd = Crowd()
    crowd.enter("abc")
    mine = next(task for task in crowd.held("a") if task.count > 1)
    for _ in range(5):
        assert held_back(crowd.send(piece(mine, mine.first, 1), after=0.05))
        assert holds(crowd) == 1 and not checks(crowd)


def test_a_result_does_not_count_by_being_sent_again_after_a_hello_that_names_its_lease() -> None:
    crowd = Crowd()
    crowd.enter("abc")
    mine = crowd.held("a")[0]
    assert held_back(crowd.answer(mine))
    lease = HeldLease(mine.task, mine.kind, mine.version, mine.first, mine.count)
    crowd.send(Joined(mine.session, 4, 1000.0, held=(lease,), numeric=CLASS))
    assert mine in crowd.held("a"), "it is leased once more"
    assert held_back(crowd.answer(mine))
    assert holds(crowd) == 1 and not checks(crowd)


def test_what_a_newcomer_was_tried_with_neither_counts_nor_is_checked_by_being_sent_again() -> None:
    crowd = Crowd(share=1e-9, established="bcd")
    crowd.enter("bcda")
    crowd.answer(crowd.held("b")[0])
    crowd.tick(0.1)
    (trial,) = crowd.held("a")
    crowd.answer(trial)
    assert crowd.trust.record("a").audits == 1
    for _ in range(5):
        assert held_back(crowd.answer(trial))
        assert not holds(crowd) and not checks(crowd)
    assert crowd.trust.record("a").audits == 1


def test_of_what_is_held_back_nothing_is_kept_twice() -> None:
    """Though nobody is known to be the session of it."""
    crowd = Observers("a")
    crowd.run(1)
    while not crowd.held("a") or crowd.held("a")[0].version == 0:
        next(crowd.go_on(4))
    far = crowd.says(crowd.held("a")[0])
    crowd.send(Left(session("a"), "lost"))
    before = holds(crowd)
    for _ in range(5):
        crowd.send(far, after=0.05)
    assert holds(crowd) <= before + 1


def test_a_task_that_came_in_parts_is_one_that_others_confirmed() -> None:
    crowd = Crowd(share=1e-9, established="b")
    crowd.enter("ab")
    mine = next(task for task in crowd.held("a") if task.count > 1)
    for part in pieces(mine):
        assert held_back(crowd.send(part, after=0.05))
    todo = units(mine)
    for _ in range(400):
        if not todo:
            break
        if held := crowd.held("b"):
            crowd.answer(held[0])
            todo -= units(held[0])
        else:
            crowd.tick(0.1)
    assert not todo and crowd.trust.record("a").confirmed == 1


def test_nobody_is_established_sooner_by_returning_parts() -> None:
    """A task may be confirmed twice: when it comes, and as what somebody is tried with."""
    crowd = Crowd()
    crowd.enter("ab")
    returned: dict[str, set[int]] = {"a": set(), "b": set()}

    def answer(task: SendTask) -> list[Command]:
        returned[task.session.worker].add(task.task)
        return [command for part in pieces(task) for command in crowd.send(part, after=0.01)]

    crowd.answer = answer  # type: ignore[method-assign]
    for _ in crowd.go_on(40):
        for worker, done in returned.items():
            assert 2 * len(done) >= PROBATION or not crowd.trust.is_believed(worker)
    assert all(crowd.trust.is_believed(worker) for worker in "ab")


def test_a_trial_in_parts_is_one() -> None:
    crowd = Crowd(share=1e-9, established="bcd")
    crowd.enter("bcd")
    crowd.enter("a", b"numeric class 02")
    crowd.answer(max(crowd.held("b"), key=lambda task: task.count))
    crowd.tick(0.1)
    (trial,) = crowd.held("a")
    first, *rest = pieces(trial)
    assert rest
    for part in (first, first, *rest):
        assert not crowd.trust.record("a").audits
        crowd.send(part, after=0.05)
    record = crowd.trust.record("a")
    assert record.audits == 1 and record.alike + record.unlike == trial.count


@pytest.mark.parametrize("again", ["its result", "its hello"])
def test_who_only_says_again_what_it_said_holds_up_no_newcomer(again: str) -> None:
    crowd = Crowd()
    crowd.enter("ax")
    said = crowd.says(crowd.held("x")[0])
    crowd.send(said)
    for _ in range(400):
        if crowd.pool.version or crowd.pool.updating:
            break
        crowd.send(said) if again == "its result" else crowd.enter("x")
        held = crowd.held("a")
        crowd.answer(held[0]) if held else crowd.tick(1.0, step=0.5)
    assert of(crowd.said, CloseBatch)


def test_newcomers_who_claim_far_frames_make_those_of_nobody_else_count() -> None:
    crowd = Observers("aefg")
    crowd.enter("efg")
    while not crowd.held("a") or crowd.held("a")[0].version == 0:
        next(crowd.go_on(4))
    mine = crowd.held("a")[0]
    for newcomer in "efg":
        far = dataclasses.replace(crowd.says(mine), session=session(newcomer))
        assert held_back(crowd.send(far, after=0.05))
    assert held_back(crowd.answer(mine))
