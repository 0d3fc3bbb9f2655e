"""A pool that goes on from where another one was lost, step by step."""

from __future__ import annotations

import pytest

from coordinator.pool import Pool
from coordinator.pool.events import (
    CentreJudged,
    CloseBatch,
    Command,
    EndRun,
    Happened,
    HeldLease,
    Joined,
    KeepResult,
    Left,
    SendTask,
    SessionId,
)
from protocol.spec import RunSpec
from tests.coordinator.driver import (
    CENTRE,
    A,
    B,
    C,
    Driver,
    answers,
    finish_all,
    of,
    straggling,
    tasks,
)
from tests.coordinator.simulation import result, spec


def held(task: SendTask) -> HeldLease:
    return HeldLease(task.task, task.kind, task.version, task.first, task.count)


def restarted(run: RunSpec, version: int = 0, **how: object) -> Driver:
    """A second epoch's pool, whose workers had their time to say what they hold."""
    driver = Driver(run)
    driver.pool = Pool(run, version, driver.now, first_task=1 << 32, **how)  # type: ignore[arg-type]
    back(driver, SessionId("z", "s"), credit=0)
    driver.send(Left(SessionId("z", "s"), "left"))
    driver.tick(0.3)
    driver.said.clear()
    return driver


def back(driver: Driver, id: SessionId, *leases: HeldLease, credit: int = 2) -> list[Command]:
    return driver.send(Joined(id, credit, 1000.0, leases))


def test_a_hello_keeps_the_leases_that_it_names_and_ends_the_others() -> None:
    driver = Driver(spec(1024))
    first, second, third = driver.measured(A, credit=3)
    lease = driver.pool.leases[second.task]
    said = back(driver, A, held(second), credit=3)
    assert driver.pool.leases[second.task] is lease
    assert first.task not in driver.pool.leases
    assert third.task not in driver.pool.leases
    assert len(driver.pool.sessions[A].leases) == 3
    assert tasks(said)[0].first == first.first
    assert not [h for h in of(said, Happened) if "taken up" in h.what]


def test_a_hello_that_names_a_lease_wrongly_does_not_keep_it() -> None:
    driver = Driver(spec(1024))
    (task,) = driver.join(A)
    back(driver, A, HeldLease(task.task, "members", 0, task.first, task.count - 1), credit=1)
    (lease,) = driver.pool.sessions[A].leases.values()
    assert lease.count == task.count - 1  # leased anew


def test_a_restarted_pool_takes_up_the_leases_of_an_earlier_epoch() -> None:
    driver = restarted(spec(64), version=3)
    first, second = HeldLease(7, "members", 3, 96, 5), HeldLease(8, "members", 3, 104, 5)
    said = back(driver, A, first, second)
    assert not tasks(said)
    assert {lease.named for lease in driver.pool.leases.values()} == {first, second}
    assert [h.what for h in of(said, Happened)] == ["joined", "2 leases taken up again"]
    assert driver.pool.quiet_because() == ""
    said = driver.finish(SendTask(A, 7, "members", 3, 96, 5))
    assert [t.task for t in tasks(said)] == [1 << 32]
    assert [t.first for t in tasks(said)] == [101]
    assert not driver.pool.sessions[A].pace.measured, "nobody saw when it began"


def test_a_restarted_pool_hears_what_all_hold_before_it_leases_what_is_free() -> None:
    driver = Driver(spec(64))
    driver.pool = Pool(spec(64), 0, driver.now, first_task=1 << 32)
    driver.tick(5.0)
    assert not tasks(back(driver, A))
    assert driver.pool.quiet_because() == "the workers say what they still work on"
    driver.tick(0.1)
    back(driver, B, HeldLease(7, "members", 0, 2, 5), credit=1)
    assert 7 in driver.pool.leases
    (task,) = tasks(driver.tick(0.2))
    assert (task.session, task.first, task.count) == (A, 0, 2)


def test_one_lease_is_said_to_be_one() -> None:
    said = back(restarted(spec(64)), A, HeldLease(7, "members", 0, 4, 5))
    assert of(said, Happened)[-1] == Happened("1 lease taken up again", A)


@pytest.mark.parametrize(
    "lease",
    [
        HeldLease(7, "members", 2, 96, 5),  # stale
        HeldLease(7, "members", 4, 96, 5),  # of a version to come
        HeldLease(7, "members", 3, 92, 5),  # across two batches
        HeldLease(7, "members", 3, 128, 5),  # of the next batch, where nothing may be stale
        HeldLease(7, "members", 3, 40, 5),  # of a batch that is over
        HeldLease(7, "members", 3, 1 << 50, 5),
        HeldLease(7, "members", 3, 96, 0),
        HeldLease(7, "members", 3, -5, 5),
        HeldLease(7, "centre", 3, 18, 5),  # more episodes than there are
        HeldLease(7, "centre", 2, 0, 5),  # not open
        HeldLease(0, "members", 3, 96, 5),
        HeldLease(1 << 32, "members", 3, 96, 5),  # a number to come
    ],
)
def test_a_lease_whose_result_could_not_count_is_not_taken_up(lease: HeldLease) -> None:
    driver = restarted(spec(64, centre=CENTRE), version=3, unjudged=(3,))
    said = back(driver, A, lease)
    assert not [h for h in of(said, Happened) if "taken up" in h.what]
    assert lease.task not in driver.pool.leases or lease.task == 1 << 32


def test_a_lease_is_taken_up_only_where_nobody_has_any_of_its_range() -> None:
    driver = restarted(spec(64))
    driver.finish(SendTask(B, 3, "members", 0, 8, 2))
    (other,) = driver.join(C)
    back(driver, A, HeldLease(7, "members", 0, other.count - 1, 3))
    back(driver, A, HeldLease(7, "members", 0, 7, 2))
    assert 7 not in driver.pool.leases
    back(driver, A, HeldLease(7, "members", 0, 10, 2), HeldLease(9, "members", 0, 11, 2))
    assert driver.pool.leases[7].session == A
    assert 9 not in driver.pool.leases


def test_a_number_that_is_anothers_lease_is_not_taken() -> None:
    driver = restarted(spec(64))
    back(driver, A, HeldLease(7, "members", 0, 10, 2))
    back(driver, B, HeldLease(7, "members", 0, 20, 2))
    assert driver.pool.leases[7].session == A


def test_nobody_takes_up_more_than_it_may_hold() -> None:
    leases = [HeldLease(7 + n, "members", 0, 2 * n, 2) for n in range(8)]
    for credit in (0, 1, 3):
        driver = restarted(spec(64))
        back(driver, A, *leases, credit=credit)
        assert len(driver.pool.leases) == credit


def test_who_had_two_tasks_before_gets_two_again_before_it_is_measured() -> None:
    driver = restarted(spec(512))
    back(driver, A, HeldLease(7, "members", 0, 0, 2), HeldLease(8, "members", 0, 2, 2), credit=4)
    driver.finish(SendTask(A, 7, "members", 0, 0, 2))
    assert len(driver.pool.sessions[A].leases) == 2
    back(driver, B, HeldLease(9, "members", 0, 20, 2), credit=4)
    assert len(driver.pool.sessions[B].leases) == 1


def test_what_a_session_let_run_out_it_does_not_take_up_again() -> None:
    driver = Driver(spec(64))
    (task,) = driver.join(A)
    driver.tick(61.0)
    said = back(driver, A, held(task), credit=1)
    assert not [h for h in of(said, Happened) if "taken up" in h.what]


def test_a_lease_taken_up_again_has_a_deadline_of_its_own() -> None:
    driver = Driver(spec(64))
    (task,) = driver.join(A)
    driver.tick(30.0)
    driver.send(Left(A, "lost"))
    back(driver, A, held(task), credit=1)
    driver.tick(31.0)
    assert driver.pool.leases[task.task].deadline == pytest.approx(driver.now + 29.0)
    driver.tick(30.0)
    assert task.task not in driver.pool.leases


def test_a_lease_may_be_taken_up_at_the_moment_it_was_given() -> None:
    driver = Driver(spec(2))
    (task,) = driver.join(A)
    driver.send(Left(A, "lost"))
    back(driver, A, held(task), credit=1)
    driver.join(B)
    driver.tick(200.0)
    assert [t for t in tasks(driver.said) if t.session == B]


def test_work_ahead_is_taken_up_within_the_stale_share() -> None:
    run = spec(64, pool={"max_staleness": 1, "stale_share": 0.25})
    driver = restarted(run)
    back(driver, A, HeldLease(7, "members", 0, 32, 9))
    assert 7 not in driver.pool.leases
    back(driver, A, HeldLease(7, "members", 0, 32, 8))
    assert 7 in driver.pool.leases


def test_the_open_batch_takes_up_what_was_leased_one_version_early() -> None:
    driver = restarted(spec(64, pool={"max_staleness": 1}), version=1)
    back(driver, A, HeldLease(7, "members", 0, 32, 8))
    assert 7 in driver.pool.leases


def test_nothing_of_a_batch_that_is_closed_is_taken_up() -> None:
    driver, late, _ = straggling()
    driver.send(Left(A, "lost"))
    back(driver, A, held(late))
    assert late.task not in driver.pool.leases


def test_members_are_not_taken_up_after_the_last_update() -> None:
    driver = restarted(spec(64, centre=CENTRE, stop={"updates": 3}), version=3)
    back(driver, A, HeldLease(7, "members", 3, 96, 8))
    assert 7 not in driver.pool.leases


def test_results_that_were_kept_close_a_batch_before_anybody_is_here() -> None:
    before = Driver(spec(16))
    before.join(A, credit=2)
    arrived = []
    while not of(before.said, CloseBatch):
        task = next(t for t in tasks(before.said) if t.task in before.pool.leases)
        arrived.append(result(task))
        before.send(arrived[-1], 0.1)
    driver = restarted(spec(16))
    for event in arrived:
        driver.send(event)
    (one,), (other,) = of(before.said, CloseBatch), of(driver.said, CloseBatch)
    assert [(p.first, p.returns.tolist()) for p in one.contributions] == [
        (p.first, p.returns.tolist()) for p in other.contributions
    ]
    assert driver.pool.quiet_because() == "no worker is here: give the join line to somebody"


def test_evaluations_that_are_owed_are_opened_again_in_order() -> None:
    run = spec(16, centre=CENTRE, stop={"target": 1000.0})
    driver = restarted(run, version=4, unjudged=(2, 4))
    driver.join(A)
    finish_all(driver, updates=1)
    assert [j.version for j in of(driver.said, CentreJudged)][:2] == [2, 4]
    none = restarted(run, version=4, unjudged=())
    none.join(A)
    assert {t.kind for t in tasks(none.said)} == {"members"}
    default = restarted(run, version=4)
    default.join(A)
    assert default.pool._evaluations.of(4) is not None


def test_episodes_beyond_the_screening_that_come_first_prove_that_it_was_passed() -> None:
    driver = restarted(spec(16, centre=CENTRE, stop={"target": 3.0}), version=2, unjudged=(2,))
    driver.finish(SendTask(A, 7, "centre", 2, 5, 15))
    said = driver.finish(SendTask(B, 8, "centre", 2, 0, 5))
    (verdict,) = of(said, CentreJudged)
    assert (verdict.episodes, verdict.full) == (20, True)


def test_seconds_of_earlier_epochs_count_and_workers_may_come_back_for_the_last_centre() -> None:
    run = spec(16, centre=CENTRE, stop={"seconds": 60.0, "target": 1000.0})
    driver = restarted(run, version=2, unjudged=(2,), elapsed=58.0)
    assert not of(driver.tick(4.0), EndRun)
    driver.join(A)
    finish_all(driver)
    assert of(driver.said, EndRun)[0].reason == "60 s have passed"
    assert of(driver.said, CentreJudged)[-1].full
    alone = restarted(run, version=2, unjudged=(2,), elapsed=58.0)
    assert not of(alone.tick(9.0), EndRun)
    assert of(alone.tick(1.5), EndRun)


def test_a_late_result_counts_after_a_restart_unless_an_update_has_used_it() -> None:
    run = spec(64, pool={"max_staleness": 1, "quorum": 0.5})
    driver = restarted(run, version=1, used=[(0, 20), (25, 7)])
    assert answers(driver.finish(SendTask(A, 7, "members", 0, 18, 4))) == [((7,), "duplicate")]
    (keep,) = of(driver.finish(SendTask(A, 8, "members", 0, 20, 5)), KeepResult)
    assert keep.until == 1
    unknowing = restarted(run, version=1)
    assert answers(unknowing.finish(SendTask(A, 8, "members", 0, 20, 5))) == [((8,), "late")]


def test_a_failure_that_was_kept_is_one_failure_when_it_is_sent_again() -> None:
    driver = restarted(spec(2))
    failed = SendTask(A, 7, "members", 0, 0, 1)
    for _ in range(4):
        driver.finish(failed, failed={0: "it raised"})
    (task,) = driver.join(A)
    assert of(driver.finish(task, failed={0: "it raised"}), CloseBatch)[0].dropped == (0,)


def test_nobody_is_alone_before_the_others_are_back() -> None:
    driver = restarted(spec(2))
    for task in (7, 8):
        driver.finish(SendTask(A, task, "members", 0, 0, 1), failed={0: "it raised"})
    assert not of(driver.said, CloseBatch)
