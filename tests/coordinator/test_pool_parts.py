"""Parts of results: they count at once, and the lease keeps the rest."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from coordinator.pool import Pool
from coordinator.pool.events import (
    Arrived,
    CloseBatch,
    Command,
    Happened,
    HeldLease,
    Joined,
    KeepResult,
    Left,
    Refused,
    SendTask,
    SessionId,
    Updated,
)
from protocol import normalizer
from protocol.spec import RunSpec
from tests.coordinator.driver import A, B, C, Driver, answers, of, piece, tasks, units
from tests.coordinator.simulation import counted, spec

OBSERVED = normalizer.to_bytes(normalizer.no_observations(4))


def send_part(
    driver: Driver, task: SendTask, first: int, count: int, after: float = 1.0, **how: object
) -> list[Command]:
    """Units `first .. first + count` of a task, counted from its first one, come back."""
    return driver.send(piece(task, task.first + first, count, **how), after)  # type: ignore[arg-type]


def observed(arrived: Arrived) -> Arrived:
    """The same with observation sums: it counts as a whole or not at all."""
    return dataclasses.replace(arrived, observed=OBSERVED)


def task_of(driver: Driver, least: int) -> SendTask:
    """The first task of A, of at least so many units."""
    (task,) = driver.join(A)
    assert task.count >= least
    return task


def test_a_part_counts_at_once_and_the_last_one_ends_the_lease() -> None:
    driver = Driver(spec(32))
    task = task_of(driver, 6)
    said = send_part(driver, task, 2, 2)
    assert [keep.arrived.part for keep in of(said, KeepResult)] == [piece(task, 2, 2).part]
    assert not tasks(said)
    assert driver.pool.progress[0] == 2
    assert driver.pool.leases[task.task].left == task.count - 2
    send_part(driver, task, 0, 2)
    said = send_part(driver, task, 4, task.count - 4)
    assert driver.pool.progress[0] == task.count
    assert task.task not in driver.pool.leases
    assert [t.session for t in tasks(said)] == [A]


def test_parts_are_acknowledged_by_their_names() -> None:
    driver = Driver(spec(32))
    task = task_of(driver, 4)
    send_part(driver, task, 1, 2)
    send_part(driver, task, 0, 1)
    assert answers(driver.tick(2.1)) == [(((task.task, 1), (task.task, 0)), "accepted")]


def test_a_part_that_comes_twice_counts_once_and_does_not_end_the_lease_early() -> None:
    driver = Driver(spec(32))
    task = task_of(driver, 4)
    send_part(driver, task, 0, 2)
    for _ in range(2):
        assert ((task.task, 0),) in [a[0] for a in answers(send_part(driver, task, 0, 2))]
    assert driver.pool.leases[task.task].left == task.count - 2
    assert driver.pool.progress[0] == 2


def test_parts_count_after_their_lease_has_ended() -> None:
    driver = Driver(spec(32))
    task = task_of(driver, 4)
    driver.send(Left(A, "lost"))
    send_part(driver, task, 0, 2)
    assert driver.pool.progress[0] == 2


def test_a_part_is_timed_anew_and_tells_the_speed() -> None:
    driver = Driver(spec(4096))
    (task,) = [t for t in driver.measured(A) if t.count >= 4]
    lease = driver.pool.leases[task.task]
    before, overdue = lease.deadline, lease.overdue
    half = task.count // 2
    send_part(driver, task, 0, half, after=10.0)  # a hundredth as fast as before
    speed = driver.pool.sessions[A].speed
    assert speed < 40 * half
    assert (lease.deadline, lease.overdue) > (before, overdue)
    assert lease.expected == pytest.approx(driver.now + (task.count - half) * 200 / speed, rel=0.2)
    driver.tick(lease.deadline - driver.now + 0.2)
    assert task.task not in driver.pool.leases, "the rest runs out by its own deadline"
    assert driver.pool.progress[0] >= half


def test_trickling_the_same_part_does_not_hold_a_lease_for_ever() -> None:
    driver = Driver(spec(32))
    task = task_of(driver, 4)
    driver.join(B, credit=0)
    for _ in range(130):
        send_part(driver, task, 0, 1, after=1.0)
        driver.tick(0.1)
        if task.task not in driver.pool.leases:
            break
    assert task.task not in driver.pool.leases


def test_parts_undo_no_limit_and_the_whole_of_them_does() -> None:
    driver = Driver(spec(4096))
    (task,) = driver.measured(A)
    session = driver.pool.sessions[A]
    session.limit, session.failures, session.losses = 3, 2, 2
    send_part(driver, task, 0, task.count - 1)
    assert (session.limit, session.failures, session.losses) == (3, 2, 2)
    send_part(driver, task, task.count - 1, 1)
    assert (session.limit, session.failures, session.losses) == (4, 0, 1)


def test_what_is_handed_back_after_a_part_is_only_the_rest() -> None:
    driver = Driver(spec(32))
    task = task_of(driver, 6)
    send_part(driver, task, 0, 4)
    driver.send(Refused(A, task.task, False, "handed back"))
    (other,) = driver.join(B)
    assert other.first == task.first + 4
    assert driver.pool.progress[0] == 4


@pytest.mark.parametrize("end", ["left", "lost", "run out"])
def test_a_lease_that_ends_after_a_part_frees_only_the_rest(end: str) -> None:
    driver = Driver(spec(32))
    task = task_of(driver, 6)
    send_part(driver, task, 2, 2)
    if end == "run out":
        driver.send(Joined(B, 0, 0.0))
        while task.task in driver.pool.leases:
            driver.tick(0.5)
            for again in tasks(driver.said)[1:]:
                assert not units(again) & {task.first + 2, task.first + 3}
        return
    driver.send(Left(A, end))
    free = {unit for part in driver.pool._batches.open.work.unleased for unit in range(*part.span)}
    assert free == set(range(16)) - {task.first + 2, task.first + 3}


def test_a_failed_direction_of_a_part_goes_to_another_worker() -> None:
    driver = Driver(spec(32))
    task = task_of(driver, 4)
    driver.join(C, credit=0)
    send_part(driver, task, 0, 3, failed={task.first + 1: "it raised"})
    assert driver.pool.progress[0] == 2
    (other,) = driver.join(B)
    assert (other.first, other.count) == (task.first + 1, 1)
    said = driver.finish(other, failed={task.first + 1: "it raised"})
    assert [h for h in of(said, Happened) if f"direction {task.first + 1} dropped" in h.what]


def test_parts_of_the_centre_count_too() -> None:
    driver = Driver(
        spec(4, centre={"evaluate_every": 1, "episodes": 40, "screening": 40}, stop={"updates": 0})
    )
    task = task_of(driver, 4)
    assert task.kind == "centre"
    send_part(driver, task, 2, 2)
    evaluation = driver.pool._evaluations.of(0)
    assert evaluation is not None
    assert evaluation.work.missing == 38
    assert driver.pool.leases[task.task].left == task.count - 2
    driver.finish(task)
    assert evaluation.work.missing == 40 - task.count
    assert task.task not in driver.pool.leases


def test_a_late_part_counts_in_the_next_update() -> None:
    driver = Driver(spec(8, pool={"quorum": 0.5, "max_staleness": 2, "patience": 0.0}))
    task = task_of(driver, 1)
    for first in range(4):
        if first not in units(task):
            driver.finish(SendTask(B, 900 + first, "members", 0, first, 1), 0.1)
    (closed,) = of(driver.said, CloseBatch)
    assert not units(task) & set(counted(closed).tolist())
    driver.send(Updated(1))
    send_part(driver, task, task.count - 1, 1)
    for first in range(4, 8):
        driver.finish(SendTask(B, 900 + first, "members", 1, first, 1), 0.1)
    second = of(driver.said, CloseBatch)[1]
    assert task.first + task.count - 1 in counted(second)


# Results that overlap.


def test_without_observation_sums_a_result_counts_for_what_is_still_open() -> None:
    driver = Driver(spec(32))
    driver.finish(SendTask(B, 900, "members", 0, 4, 4))
    (keep,) = of(driver.finish(SendTask(C, 901, "members", 0, 2, 4)), KeepResult)
    assert keep.arrived.count == 4
    assert driver.pool.progress[0] == 6
    said = driver.finish(SendTask(C, 902, "members", 0, 2, 6))
    assert [a[1] for a in answers(said)] == ["duplicate"]
    driver.finish(SendTask(B, 903, "members", 0, 0, 2))
    driver.finish(SendTask(B, 904, "members", 0, 8, 8))
    (closed,) = of(driver.said, CloseBatch)
    assert sorted(counted(closed).tolist()) == list(range(16))
    (partial,) = [part for part in closed.contributions if part.first == 2]
    assert np.isnan(partial.returns[:, 0]).tolist() == [False, False, True, True]


def test_with_observation_sums_a_result_counts_as_a_whole_or_not_at_all() -> None:
    driver = Driver(spec(32, normalizer={"enabled": True}))
    driver.send(observed(piece(SendTask(B, 900, "members", 0, 4, 4), 4, 4)))
    said = driver.send(observed(piece(SendTask(C, 901, "members", 0, 2, 4), 2, 4)))
    assert [a[1] for a in answers(said)] == ["duplicate"]
    assert driver.pool.progress[0] == 4


def test_a_result_that_comes_late_counts_as_a_whole_or_not_at_all() -> None:
    """A pool that goes on could not know which part of it an update has used."""
    driver = Driver(spec(8, pool={"quorum": 0.5, "max_staleness": 2, "patience": 0.0}))
    driver.finish(SendTask(B, 900, "members", 0, 0, 2))
    driver.send(Updated(1))
    said = driver.finish(SendTask(C, 901, "members", 0, 1, 3))
    assert [a[1] for a in answers(said)] == ["duplicate"]
    assert of(driver.finish(SendTask(C, 902, "members", 0, 2, 2)), KeepResult)


def test_a_result_that_adds_nothing_is_kept_once() -> None:
    driver = Driver(spec(32))
    failed = SendTask(B, 900, "members", 0, 0, 2)
    assert of(driver.finish(failed, failed={0: "it raised"}), KeepResult)
    again = driver.finish(failed, failed={0: "it raised"})
    assert not of(again, KeepResult)
    assert [a[1] for a in answers(again)] == ["duplicate"]


# Taken up again.


def restarted(run: RunSpec) -> Driver:
    driver = Driver(run)
    driver.pool = Pool(run, 0, driver.now, first_task=1 << 32)
    return driver


def test_a_lease_that_is_partly_done_is_taken_up_for_the_rest() -> None:
    driver = restarted(spec(64))
    held = HeldLease(7, "members", 0, 4, 10)
    task = SendTask(A, 7, "members", 0, 4, 10)
    send_part(driver, task, 0, 3)
    driver.send(Joined(A, 2, 1000.0, (held,)))
    lease = driver.pool.leases[7]
    assert (lease.named, lease.left, lease.claim.range.span) == (held, 7, (7, 14))
    send_part(driver, task, 3, 4)
    assert driver.pool.leases[7].left == 3
    send_part(driver, task, 7, 3)
    assert 7 not in driver.pool.leases
    assert driver.pool.progress[0] == 10


def test_a_lease_of_which_two_ranges_are_left_is_not_taken_up() -> None:
    driver = restarted(spec(64))
    task = SendTask(A, 7, "members", 0, 4, 10)
    send_part(driver, task, 3, 3)
    driver.send(Joined(A, 2, 1000.0, (HeldLease(7, "members", 0, 4, 10),)))
    assert 7 not in driver.pool.leases


def test_the_rest_of_a_centre_task_is_taken_up_too() -> None:
    run = spec(64, centre={"evaluate_every": 1, "episodes": 20, "screening": 20})
    driver = restarted(run)
    task = SendTask(A, 7, "centre", 0, 0, 10)
    send_part(driver, task, 4, 6)
    driver.send(Joined(A, 2, 1000.0, (HeldLease(7, "centre", 0, 0, 10),)))
    assert driver.pool.leases[7].left == 4


def test_a_session_that_vanished_with_a_lease_takes_it_up_again() -> None:
    driver = Driver(spec(32))
    task = task_of(driver, 4)
    send_part(driver, task, 0, 2)
    held = driver.pool.leases[task.task].named
    driver.send(Left(A, "lost"))
    driver.send(Joined(A, 1, 1000.0, (held,)))
    assert driver.pool.leases[task.task].left == task.count - 2
    assert driver.pool.sessions[A].losses == 0


def test_two_sessions_of_one_worker_may_send_the_parts_of_one_lease() -> None:
    driver = Driver(spec(32))
    task = task_of(driver, 4)
    other = SessionId("a", "t")
    driver.send(Joined(other, 0, 0.0))
    send_part(driver, task, 0, 2, session=other)
    assert driver.pool.leases[task.task].left == task.count - 2
    send_part(driver, task, 2, task.count - 2, session=other)
    assert task.task not in driver.pool.leases
    assert driver.pool.sessions[A].leases
