"""The pool: what counts in which update, and that it is a function of its events."""

from __future__ import annotations

import numpy as np
import pytest

from coordinator.pool.events import (
    CloseBatch,
    EndRun,
    Happened,
    Heard,
    Joined,
    Left,
    Refused,
    SendTask,
    SessionId,
    Tick,
    Updated,
)
from tests.coordinator.driver import (
    CENTRE,
    A,
    B,
    Driver,
    answers,
    finish_all,
    of,
    straggling,
    tasks,
    units,
)
from tests.coordinator.simulation import Simulation, counted, result, spec

# Batches.


def test_a_batch_is_leased_in_parts_and_closes_when_all_of_it_is_here() -> None:
    driver = Driver(spec(16))
    held = driver.join(A, credit=2)
    covered: set[int] = set()
    while not of(driver.said, CloseBatch):
        task = held.pop(0)
        assert not covered & units(task)
        covered |= units(task)
        held += tasks(driver.finish(task))
    (closed,) = of(driver.said, CloseBatch)
    assert closed.version == 0
    assert sorted(counted(closed)) == list(range(8)) == sorted(covered)
    assert driver.pool.progress == (0, 8)  # of the next batch, while the update is made
    assert driver.pool.quiet_because() == "the update is being made"
    fresh = tasks(driver.send(Updated(1)))
    assert [task.version for task in fresh] == [1, 1]
    assert fresh[0].first == 8


@pytest.mark.parametrize("speeds", [[1e4], [1e4, 3e3], [5e3, 5e3, 1e2], [9e3, 1e4, 2e4, 5e4]])
def test_a_synchronous_update_is_the_same_in_every_pool(speeds: list[float]) -> None:
    def returns(speeds: list[float]) -> list[list[list[float]]]:
        simulation = Simulation(spec(32))
        for number, speed in enumerate(speeds):
            simulation.join(f"worker{number}", speed=speed)
        assert simulation.run(lambda: len(simulation.record.closed) >= 5, 600.0)
        updates = []
        for _, closed in simulation.record.closed[:5]:
            assert counted(closed).tolist() == list(
                range(closed.version * 16, closed.version * 16 + 16)
            )
            assert {part.version for part in closed.contributions} == {closed.version}
            updates.append(np.concatenate([p.returns for p in closed.contributions]).tolist())
        return updates

    assert returns(speeds) == returns([1e4, 1e4])


def test_a_result_counts_once_however_often_it_comes() -> None:
    driver = Driver(spec(16))
    (task,) = driver.join(A)
    driver.finish(task)
    again = driver.finish(task)
    assert answers(again) == [((task.task,), "duplicate")]
    assert driver.pool.progress == (task.count, 8)


def test_work_leased_by_an_earlier_epoch_counts_without_a_lease() -> None:
    driver = Driver(spec(16), version=3)
    kept = SendTask(A, 12345, "members", 3, 24, 5)
    said = driver.finish(kept)
    assert answers(said) == [((12345,), "accepted")]
    (task,) = driver.join(B)
    assert task.first == 29


@pytest.mark.parametrize(
    ("first", "count", "version", "outcome"),
    [
        (6, 4, 0, "refused"),  # across two batches
        (0, 4, 1, "refused"),  # of a version that is not there yet
        (800, 4, 0, "refused"),  # of a batch that nobody has begun
        (8, 4, 0, "late"),  # one version early, where none may be stale
    ],
)
def test_ranges_that_were_never_leased_do_not_count(
    first: int, count: int, version: int, outcome: str
) -> None:
    driver = Driver(spec(16))
    said = driver.finish(SendTask(A, 1, "members", version, first, count))
    assert [a[1] for a in answers(said)] == [outcome]


# Quorum and staleness.


def test_a_straggler_does_not_hold_the_quorum_up_and_counts_in_the_next_update() -> None:
    driver, late, said = straggling()
    (closed,) = of(said, CloseBatch)
    assert not units(late) & set(counted(closed))
    assert len(counted(closed)) == 16 - late.count
    driver.send(Updated(1))
    said = driver.finish(late)
    assert not [a for a in answers(said) if a[1] != "accepted"]
    for _ in range(200):
        driver.tick(0.1)
        for task in [t for t in tasks(driver.said) if t.task in driver.pool.leases]:
            driver.finish(task, after=0.01)
        if len(of(driver.said, CloseBatch)) == 2:
            break
    closed = of(driver.said, CloseBatch)[1]
    stale = [part for part in closed.contributions if part.version == 0]
    assert {part.first for part in stale} == {late.first}
    assert units(late) <= set(counted(closed))


def test_a_straggler_that_misses_the_window_is_answered_as_late() -> None:
    driver, late, _ = straggling()
    driver.send(Updated(1))
    while driver.pool.version < 2:
        driver.tick(0.1)
        for task in [t for t in tasks(driver.said) if t.task in driver.pool.leases]:
            if task.first != late.first:
                driver.finish(task, after=0.01)
        if driver.pool.updating:
            driver.send(Updated(driver.pool.version + 1))
    assert answers(driver.finish(late)) == [((late.task,), "late")]


def test_a_batch_never_closes_while_a_part_of_it_was_not_even_leased() -> None:
    driver = Driver(spec(32, pool={"quorum": 0.5, "max_staleness": 1, "stale_share": 0.0}))
    driver.measured(A)
    while driver.pool.progress[0] < 10:
        driver.finish(next(t for t in tasks(driver.said) if t.task in driver.pool.leases))
        if driver.pool.updating:
            break
    driver.send(Left(A, "left"))
    driver.tick(60.0)
    assert not of(driver.said, CloseBatch)
    driver.join(B)
    finish_all(driver, updates=1)


def test_a_straggler_that_fails_late_is_dropped_from_no_update() -> None:
    driver, late, _ = straggling()
    driver.send(Updated(1))
    for worker in (A, A, A):
        stray = SendTask(worker, 900, "members", 0, late.first, late.count)
        said = driver.finish(stray, failed={late.first: "it raised"})
        assert not [h for h in of(said, Happened) if "dropped" in h.what]
        late = SendTask(A, late.task, "members", 0, late.first, 1)
    finish_all(driver, updates=1)
    assert of(driver.said, CloseBatch)[1].dropped == ()


def test_without_a_quorum_nothing_is_left_behind() -> None:
    driver = Driver(spec(32, pool={"quorum": 1.0, "max_staleness": 1}))
    (stuck,) = driver.join(A)
    driver.join(B)
    for _ in range(300):
        driver.send(Tick(), 0.1)
        driver.send(Heard(A))
        for task in [t for t in tasks(driver.said) if t.session == B]:
            if task.task in driver.pool.leases and task.first != stuck.first:
                driver.finish(task, after=0.01)
    assert not of(driver.said, CloseBatch)
    driver.finish(stuck)
    assert of(driver.said, CloseBatch)


@pytest.mark.parametrize(("share", "staleness", "ahead"), [(0.25, 1, 4), (1.0, 1, 16), (1.0, 0, 0)])
def test_work_ahead_stays_within_the_stale_share(share: float, staleness: int, ahead: int) -> None:
    pool = {"max_staleness": staleness, "stale_share": share}
    driver = Driver(spec(32, pool=pool))
    driver.measured(A, credit=4)
    while not driver.pool.updating:
        driver.finish(next(t for t in tasks(driver.said) if t.task in driver.pool.leases))
    for number in range(30):
        driver.join(SessionId(f"w{number}", "s"))
    early = {u for t in tasks(driver.said) for u in units(t) if u >= 16}
    assert early <= set(range(16, 16 + ahead))
    assert bool(early) == bool(ahead)
    for task in [t for t in tasks(driver.said) if t.task in driver.pool.leases]:
        driver.finish(task, after=0.01)
    assert len(early) <= driver.pool.progress[0] <= ahead


# Why is nothing happening?


def test_the_pool_says_why_nobody_is_fed() -> None:
    driver = Driver(spec(16))
    assert "no worker is here" in driver.pool.quiet_because()
    (task,) = driver.join(A)
    assert driver.pool.quiet_because() == ""
    driver.send(Refused(A, task.task, True, "it crashed"))
    assert driver.pool.quiet_because() == (
        "the only worker is at rest after failures: a/s is the next, after 2 s, because it crashed"
    )
    driver.send(Heard(A, credit=0))
    assert driver.pool.quiet_because() == (
        "the only worker is paused or catching up, until they say otherwise: a/s"
    )


def test_who_stands_by_is_no_worker() -> None:
    driver = Driver(spec(16, stop={"seconds": 5.0}, centre={"evaluate_every": 1}))
    driver.send(Joined(A, credit=0, speed=0.0, stands_by=True))
    driver.send(Joined(B, credit=0, speed=0.0))
    assert driver.pool.workers == 1
    driver.send(Left(B, "left"))
    assert driver.pool.workers == 0
    assert driver.pool.quiet_because() == "no worker is here: give the join line to somebody"
    driver.tick(6.0)
    assert driver.pool.ended, "nobody will ever judge the centre"
    driver.send(Left(A, "left"))
    assert driver.pool.workers == 0


# A function of its events.


def test_the_same_events_give_the_same_commands() -> None:
    def said() -> list[str]:
        simulation = Simulation(
            spec(64, centre=CENTRE, pool={"quorum": 0.8, "max_staleness": 2}),
        )
        for number in range(5):
            simulation.join(f"worker{number}", speed=2e3 * 3**number)
        simulation.run_for(20.0)
        assert len(simulation.record.closed) > 10
        return [repr(task) for task in simulation.record.tasks]

    assert said() == said()


def test_a_session_of_the_same_worker_may_finish_anothers_task() -> None:
    driver = Driver(spec(16))
    (task,) = driver.join(A)
    other = SessionId("a", "t")
    driver.send(Joined(other, 0, 0.0))
    driver.send(result(task, session=other), 1.0)
    assert driver.pool.progress[0] == task.count
    assert driver.pool.sessions[A].leases.keys() - {task.task}


@pytest.mark.parametrize(
    ("worker", "moved"), [("b", 0), ("b", 20), ("a", 20)], ids=["worker", "both", "range"]
)
def test_a_result_ends_no_lease_but_its_own(worker: str, moved: int) -> None:
    """An authentic result of an earlier epoch may have the number of a task of today."""
    driver = Driver(spec(64))
    (task,) = driver.join(A)
    count = task.count if not moved else 4
    stray = SendTask(SessionId(worker, "t"), task.task, "members", 0, task.first + moved, count)
    driver.send(Joined(stray.session, 0, 0.0))
    driver.finish(stray, after=0.5)
    assert driver.pool.leases[task.task].session == A
    assert driver.pool.progress[0] == count


def test_time_that_is_up_ends_a_run_without_workers() -> None:
    driver = Driver(spec(16, stop={"seconds": 5.0}, centre={"evaluate_every": 1}))
    driver.tick(4.0)
    (end,) = of(driver.tick(1.5), EndRun)
    assert end.version == 0
    assert not end.reached


def test_who_failed_some_work_takes_it_again_where_only_a_hoarder_could() -> None:
    driver = Driver(spec(64))
    (hoarded,) = driver.join(B)  # which never answers
    (failed,) = driver.join(A)
    driver.send(Refused(A, failed.task, True, "its evaluation process died"))
    done: set[int] = set()
    for _ in range(5):
        held = [t for t in tasks(driver.tick(1.0)) if t.session == A]
        while held:
            done |= units(held[-1])
            held = [t for t in tasks(driver.finish(held[-1], 0.1)) if t.session == A]
    assert units(failed) <= done
    assert not units(failed) & units(hoarded)
