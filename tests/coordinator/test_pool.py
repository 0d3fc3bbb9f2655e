from __future__ import annotations

import numpy as np
import pytest

from coordinator.pool import Pool
from coordinator.pool.events import (
    CentreJudged,
    CloseBatch,
    Command,
    EndRun,
    Happened,
    Heard,
    HeldLease,
    Joined,
    KeepResult,
    Kept,
    Left,
    Refused,
    SendAcknowledge,
    SendTask,
    SessionId,
    StopAsked,
    Tick,
    Updated,
)
from coordinator.pool.machine import SILENT_AFTER
from coordinator.pool.roster import MOST_TASKS
from protocol.spec import RunSpec
from tests.coordinator.driver import A, B, C, Driver, answers, of, tasks, units
from tests.coordinator.simulation import Environment, Simulation, counted, result, spec

CENTRE = {"evaluate_every": 1, "episodes": 20, "screening": 5}


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


# Sharing.


def test_a_new_session_gets_one_task_until_its_speed_is_measured() -> None:
    driver = Driver(spec(1024))
    (task,) = driver.join(A, credit=4)
    assert len(driver.pool.sessions[A].leases) == 1
    driver.finish(task)
    assert len(driver.pool.sessions[A].leases) == 4


def test_a_declared_speed_buys_no_more_than_an_equal_share() -> None:
    driver = Driver(spec(512))
    for number in range(7):
        driver.measured(SessionId(f"w{number}", "s"))
    (task,) = driver.join(A, credit=64, speed=1e12)
    assert task.count <= 256 / 8


def test_a_liar_that_never_answers_is_found_out_by_its_first_lease() -> None:
    driver = Driver(spec(512))
    (task,) = driver.join(A, credit=64, speed=1e12)
    driver.tick(70.0)
    session = driver.pool.sessions[A]
    assert session.limit <= 32
    assert session.speed < 2 * 100 * 2 * task.count / 60.0
    assert max(lease.count for lease in session.leases.values()) <= task.count // 16


def test_tasks_follow_a_worker_that_slows_down_a_hundredfold() -> None:
    simulation = Simulation(spec(4096))
    worker = simulation.join("a", speed=100_000.0, credit=1)
    simulation.run_for(5.0)
    before = simulation.record.tasks[-1][1].count
    worker.speed /= 100.0
    start = len(simulation.record.tasks)
    simulation.run(lambda: len(simulation.record.tasks) >= start + 4, 3000.0)
    after = simulation.record.tasks[-1][1].count
    assert after < before / 20


def test_results_held_back_and_sent_at_once_do_not_make_a_worker_fast() -> None:
    driver = Driver(spec(16_384))
    held = driver.measured(A, credit=2)
    for _ in range(6):
        first, second = held[:2]
        one = driver.finish(first, after=2.0)
        two = driver.finish(second, after=0.0001)
        steps = result(first).lengths.sum() + result(second).lengths.sum()
        held = [t for t in tasks(one + two) if t.session == A]
        assert driver.pool.sessions[A].speed < 3 * steps / 2.0


# Leases.


def test_a_lease_that_runs_out_goes_to_another_and_costs_half_the_credit() -> None:
    driver = Driver(spec(4096))
    held = driver.measured(A, credit=8)
    assert len(held) == 8
    driver.pool.sessions[A].credit = 4  # it takes no other task meanwhile
    while not [h for h in of(driver.said, Happened) if "ran out" in h.what]:
        driver.tick(0.1)
    assert driver.pool.sessions[A].limit == 2
    (lost, *_) = [task for task in held if task.task not in driver.pool.leases]
    (taken,) = driver.join(B)
    assert taken.first == lost.first


def test_a_late_result_of_a_lease_that_ran_out_still_counts_if_it_is_first() -> None:
    driver = Driver(spec(16))
    (task,) = driver.join(A)
    driver.tick(61.0)
    assert task.task not in driver.pool.leases
    said = driver.finish(task)
    assert ((task.task,), "duplicate") not in answers(said)
    assert driver.pool.progress[0] == task.count


def test_the_first_lease_of_a_session_leaves_time_to_start() -> None:
    driver = Driver(spec(256))
    driver.measured(A)
    driver.join(B, speed=1e9)
    (lease,) = driver.pool.sessions[B].leases.values()
    assert lease.deadline - lease.issued == 60.0


def test_credit_is_regained_one_by_one() -> None:
    driver = Driver(spec(2048))
    driver.measured(A, credit=8)
    driver.pool.sessions[A].limit = 2
    for expected in (3, 4, 5):
        task = next(iter(driver.pool.sessions[A].leases.values()))
        given = next(t for t in tasks(driver.said) if t.task == task.task)
        driver.finish(given)
        assert driver.pool.sessions[A].limit == expected


def test_the_deadline_of_a_range_doubles_with_each_lease_that_ran_out() -> None:
    driver = Driver(spec(2))
    driver.join(A)
    lengths = []
    for _ in range(3):
        (lease,) = driver.pool.leases.values()
        lengths.append(lease.deadline - lease.issued)
        driver.tick(lengths[-1] + 2.5)  # from the second on A rests for 2 s
    assert lengths == pytest.approx([60.0, 120.0, 240.0])


def test_an_overdue_lease_gets_one_copy_and_the_first_result_counts() -> None:
    driver = Driver(spec(16))
    driver.measured(A)
    held = [t for t in tasks(driver.said) if t.task in driver.pool.leases]
    assert [t.session for t in held] == [A]
    driver.join(B)
    stuck = [t for t in tasks(driver.said) if t.session == A][-1]
    while True:  # B finishes all else
        mine = [t for t in tasks(driver.said) if t.session == B and t.task in driver.pool.leases]
        if not mine or mine[0].first == stuck.first:
            break
        driver.finish(mine[0], after=0.2)
        driver.tick(0.5)
    copies = [t for t in tasks(driver.said) if t.first == stuck.first and t.session == B]
    assert len(copies) == 1
    driver.join(C)
    driver.tick(0.2)
    assert not [t for t in tasks(driver.said) if t.first == stuck.first and t.session == C]
    said = driver.finish(copies[0], after=0.1)
    assert of(said, CloseBatch)
    assert answers(driver.finish(stuck))[-1] == ((stuck.task,), "late")


def test_a_copy_is_not_made_before_all_else_is_leased() -> None:
    driver = Driver(spec(512))
    driver.join(A)
    driver.measured(B)
    driver.tick(20.0)  # A's lease is overdue, but there is fresh work
    firsts = [t.first for t in tasks(driver.said)]
    assert len(set(firsts)) == len(firsts)


def test_what_a_session_held_is_leased_again_at_once_when_it_leaves() -> None:
    driver = Driver(spec(4))
    (task,) = driver.join(A)
    (rest,) = driver.join(B)
    driver.finish(rest, after=0.01)
    said = driver.send(Left(A, "left"))
    assert [t.first for t in tasks(said) if t.session == B] == [task.first]


def test_a_silent_session_is_gone_and_a_word_keeps_it() -> None:
    driver = Driver(spec(64))
    driver.join(A)
    driver.join(B)
    for _ in range(50):
        driver.send(Tick(), 1.0)
        driver.send(Heard(B))
    assert list(driver.pool.sessions) == [B]
    (gone,) = [h for h in of(driver.said, Happened) if h.what.startswith("left")]
    assert gone.session == A
    assert "silent" in gone.what
    assert driver.now - 100.0 > SILENT_AFTER


def test_a_session_that_says_hello_again_gets_fresh_tasks_and_keeps_its_record() -> None:
    driver = Driver(spec(256))
    driver.measured(A, credit=2)
    held = set(driver.pool.sessions[A].leases)
    driver.pool.sessions[A].limit = 1
    speed = driver.pool.sessions[A].speed
    driver.send(Joined(A, 2, 1e12))
    session = driver.pool.sessions[A]
    assert not held & set(session.leases)
    assert (session.limit, session.speed) == (1, speed)
    assert not [h for h in of(driver.said, Happened) if h.what.startswith("left")]


def test_after_an_hour_asleep_the_pool_goes_on() -> None:
    simulation = Simulation(spec(64))
    for name in "abc":
        simulation.join(name)
    simulation.run_for(3.0)
    closed = len(simulation.record.closed)
    simulation.now += 3600.0
    simulation.send(Tick())
    for name in "abc":
        simulation.join(name)
    assert simulation.run(lambda: len(simulation.record.closed) > closed + 2, 30.0)


def test_one_worker_a_thousand_times_slower_does_not_hold_the_others_up() -> None:
    def seconds(speeds: list[float]) -> float:
        simulation = Simulation(spec(256))
        for number, speed in enumerate(speeds):
            simulation.join(f"worker{number}", speed=speed)
        assert simulation.run(lambda: len(simulation.record.closed) >= 20, 3000.0)
        return simulation.record.closed[-1][0] - simulation.record.closed[4][0]

    assert seconds([1e4] * 4 + [1e1]) < 2.0 * seconds([1e4] * 4)


# Quorum and staleness.


def straggling(**pool: object) -> tuple[Driver, SendTask, list[Command]]:
    """A holds a task while B does all else of the batch; what was said when the batch closed."""
    driver = Driver(spec(32, pool={"quorum": 0.5, "max_staleness": 1, "stale_share": 0.0, **pool}))
    driver.measured(A)
    driver.join(B, credit=2)
    (lease,) = driver.pool.sessions[A].leases.values()
    late = next(t for t in tasks(driver.said) if t.task == lease.task)
    for _ in range(2000):
        said = driver.tick(0.1)
        for task in tasks(driver.said):
            if task.session == B and task.task in driver.pool.leases and task.first != late.first:
                said += driver.finish(task, after=0.01)
        if of(said, CloseBatch):
            return driver, late, said
    raise AssertionError("the batch did not close")


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


# Failures.


def test_a_worker_that_fails_rests_longer_each_time_and_its_range_goes_to_another() -> None:
    driver = Driver(spec(64))
    (task,) = driver.join(A)
    for rest in (2.0, 4.0, 8.0):
        driver.send(Refused(A, task.task, True, "its child crashed"))
        assert not driver.pool.sessions[A].leases
        driver.tick(rest - 0.2)
        assert not driver.pool.sessions[A].leases
        driver.tick(0.4)
        (lease,) = driver.pool.sessions[A].leases.values()
        task = next(t for t in tasks(driver.said) if t.task == lease.task)
    driver.send(Refused(A, task.task, True, "its child crashed"))
    (taken,) = driver.join(B)
    assert taken.first == task.first
    driver.tick(60.1)
    assert driver.pool.sessions[A].failures == 4
    driver.finish(taken)
    (lease,) = driver.pool.sessions[A].leases.values()
    driver.finish(next(t for t in tasks(driver.said) if t.task == lease.task))
    assert driver.pool.sessions[A].failures == 0


def test_a_worker_that_hands_back_is_not_blamed() -> None:
    driver = Driver(spec(64))
    (task,) = driver.join(A)
    driver.join(B)
    driver.send(Refused(A, task.task, False, "handed back"))
    assert driver.pool.sessions[A].failures == 0
    assert not [h for h in of(driver.said, Happened) if "failed" in h.what]
    driver.tick(1.2)
    (lease,) = driver.pool.sessions[A].leases.values()
    assert lease.first != task.first


def test_giving_the_same_work_back_again_and_again_is_no_busy_loop() -> None:
    driver = Driver(spec(64))
    driver.join(A)
    refused = 0
    for _ in range(100):
        for lease in list(driver.pool.sessions[A].leases.values()):
            driver.send(Refused(A, lease.task, False, "gone"))
            refused += 1
        driver.send(Tick(), 0.1)
    assert refused <= 11


def fail_once(driver: Driver, id: SessionId, direction: int) -> list[Command]:
    """The session finishes what it holds, this direction failing; it must hold it."""
    task = next(
        t
        for t in tasks(driver.said)
        if t.session == id and t.task in driver.pool.leases and direction in units(t)
    )
    return driver.finish(task, failed={direction: "NaN reward"})


def test_a_failed_direction_goes_to_another_worker_and_is_dropped_when_it_fails_there() -> None:
    driver = Driver(spec(2))
    driver.join(A)
    driver.join(B)
    fail_once(driver, A, 0)
    assert [t.session for t in tasks(driver.said)] == [A, B]
    said = fail_once(driver, B, 0)
    (closed,) = of(said, CloseBatch)
    assert closed.dropped == (0,)
    assert closed.contributions == ()
    assert [h for h in of(said, Happened) if "direction 0 dropped" in h.what]


def test_a_direction_that_failed_once_and_then_returns_counts() -> None:
    driver = Driver(spec(2))
    driver.join(A)
    driver.join(B)
    fail_once(driver, A, 0)
    said = driver.finish(tasks(driver.said)[-1])
    (closed,) = of(said, CloseBatch)
    assert counted(closed).tolist() == [0]


def test_a_single_worker_confirms_its_own_failure() -> None:
    driver = Driver(spec(2))
    driver.join(A)
    fail_once(driver, A, 0)
    said = fail_once(driver, A, 0)
    assert of(said, CloseBatch)[0].dropped == (0,)


def test_a_paused_second_worker_does_not_keep_a_failed_direction_open() -> None:
    driver = Driver(spec(2))
    driver.join(A)
    driver.join(B, credit=0)
    fail_once(driver, A, 0)
    said = fail_once(driver, A, 0)
    assert of(said, CloseBatch)


def test_a_second_worker_that_never_answers_does_not_keep_a_failed_direction_open() -> None:
    driver = Driver(spec(2))
    driver.join(A)
    fail_once(driver, A, 0)
    driver.join(B)
    for _ in range(3000):
        driver.tick(0.1)
        if any(lease.session == A for lease in driver.pool.leases.values()):
            fail_once(driver, A, 0)
        if of(driver.said, CloseBatch):
            break
    assert of(driver.said, CloseBatch)[0].dropped == (0,)


def test_the_rest_of_a_task_with_a_failed_direction_counts() -> None:
    driver = Driver(spec(16))
    (task,) = driver.join(A)
    assert task.count > 1
    driver.finish(task, failed={task.first: "it raised"})
    assert driver.pool.progress[0] == task.count - 1


# The centre.


def judged(speeds: list[float], seed: int) -> tuple[list[CentreJudged], EndRun]:
    """All verdicts of a run that reaches its target, in a pool with these workers."""
    levels = np.random.default_rng(seed).normal(np.arange(60) / 3.0, 2.0)
    run = spec(16, centre=CENTRE, stop={"target": 15.0})
    simulation = Simulation(
        run, Environment(level=lambda version: float(levels[version])), update_seconds=0.02
    )
    for number, speed in enumerate(speeds):
        simulation.join(f"worker{number}", speed=speed)
    assert simulation.run(lambda: simulation.record.ended is not None, 2000.0)
    assert simulation.record.ended is not None
    assert [j.version for j in simulation.record.judged] == list(
        range(simulation.record.ended.version + 1)
    )
    return simulation.record.judged, simulation.record.ended


@pytest.mark.parametrize("seed", range(3))
def test_every_pool_ends_at_the_lowest_version_that_reaches_the_target(seed: int) -> None:
    alone, ended = judged([1e4], seed)
    assert ended.reached
    assert [j.version for j in alone if j.reached] == [ended.version]
    for speeds in ([1e4, 1e4], [1e4, 1e2], [2e4, 5e3, 7e3], [1e5] * 6):
        assert judged(speeds, seed) == (alone, ended)


def test_the_rest_of_the_centres_episodes_runs_only_where_it_may_reach_the_target() -> None:
    verdicts, ended = judged([1e4], 0)
    for verdict in verdicts:
        if verdict.full:
            assert verdict.episodes == 20
        else:
            assert verdict.episodes == 5
            assert verdict.mean + 3 * verdict.deviation / 5**0.5 < 15.0
    assert any(not verdict.full for verdict in verdicts)
    assert ended.version == verdicts[-1].version


def finish_all(driver: Driver, updates: int = 1 << 30) -> None:
    """Everybody finishes what they hold, updates follow at once: until the run ends, or so many."""
    for _ in range(5000):
        if driver.pool.ended or not updates:
            return
        if driver.pool.updating:
            driver.send(Updated(driver.pool.version + 1))
            updates -= 1
        held = [t for t in tasks(driver.said) if t.task in driver.pool.leases]
        if held:
            driver.finish(held[0], after=0.05)
        else:
            driver.tick(0.1)
    raise AssertionError(f"the run does not end: {driver.pool.quiet_because()}")


@pytest.mark.parametrize(
    ("stop", "reason"),
    [
        ({"updates": 3}, "3 updates are made"),
        ({"episodes": 40}, "48 episodes are used"),
        ({"seconds": 3.0}, "3 s have passed"),
    ],
)
def test_a_run_that_stops_evaluates_its_last_centre_in_full(
    stop: dict[str, object], reason: str
) -> None:
    driver = Driver(spec(16, centre=CENTRE, stop={**stop, "target": 1000.0}))
    driver.join(A)
    driver.join(B)
    finish_all(driver)
    (end,) = of(driver.said, EndRun)
    last = of(driver.said, CentreJudged)[-1]
    assert end == EndRun(driver.pool.version, False, reason)
    assert (last.version, last.full, last.episodes) == (end.version, True, 20)
    assert len(of(driver.said, CloseBatch)) == end.version


def test_the_last_evaluation_may_still_reach_the_target() -> None:
    driver = Driver(
        spec(16, centre={**CENTRE, "evaluate_every": 100}, stop={"updates": 3, "target": 2.0})
    )
    driver.join(A)
    finish_all(driver)
    assert of(driver.said, EndRun) == [EndRun(3, True, "the target is reached")]


@pytest.mark.parametrize(("every", "judgements"), [(0, 0), (1, 1)])
def test_a_run_that_is_over_at_its_start_says_so(every: int, judgements: int) -> None:
    driver = Driver(spec(16, centre={**CENTRE, "evaluate_every": every}, stop={"updates": 0}))
    driver.join(A)
    finish_all(driver)
    assert len(of(driver.said, EndRun)) == 1
    assert len(of(driver.said, CentreJudged)) == judgements
    assert not of(driver.said, CloseBatch)


def test_the_host_may_stop_a_run_at_once() -> None:
    driver = Driver(spec(16))
    driver.join(A)
    said = driver.send(StopAsked("the host stopped it"))
    assert of(said, EndRun) == [EndRun(0, False, "the host stopped it")]
    assert driver.send(Tick()) == []
    assert driver.pool.quiet_because() == "the run has ended"


def centre_tasks(driver: Driver, id: SessionId) -> list[SendTask]:
    return [
        t
        for t in tasks(driver.said)
        if t.session == id and t.kind == "centre" and t.task in driver.pool.leases
    ]


def test_who_still_holds_a_task_gets_one_of_the_new_version_at_once() -> None:
    driver = Driver(spec(8, centre=CENTRE))
    driver.measured(A, credit=2)
    while not (driver.pool.updating and centre_tasks(driver, A)):
        held = [t for t in tasks(driver.said) if t.task in driver.pool.leases]
        driver.finish(min(held, key=lambda t: t.kind == "centre"), after=0.05)
    assert len(driver.pool.sessions[A].leases) == 1
    assert [t.kind for t in tasks(driver.send(Updated(1)))] == ["members"]


def test_members_wait_for_a_centre_that_workers_are_about_to_forget() -> None:
    run = spec(4, centre=CENTRE)
    driver = Driver(run)
    for number in range(9):
        driver.join(SessionId(f"w{number}", "s"))
    for _ in range(200):
        for task in [t for t in tasks(driver.said) if t.task in driver.pool.leases]:
            if task.kind == "members" or task.version > 0:
                driver.finish(task, after=0.001)
        if driver.pool.updating:
            driver.send(Updated(driver.pool.version + 1))
    # Version 0 is still among the versions that every worker keeps, but not for long.
    assert driver.pool.version == run.versions_kept - 1 - run.pool.max_staleness


def test_a_centre_whose_version_is_gone_everywhere_is_given_up_and_training_goes_on() -> None:
    driver = Driver(spec(4, centre=CENTRE))
    driver.join(A)
    while not driver.pool.updating:
        held = [
            t for t in tasks(driver.said) if t.task in driver.pool.leases and t.kind != "centre"
        ]
        driver.finish(held[0], after=0.05) if held else driver.tick(0.1)
    driver.send(Left(A, "left"))
    driver.send(Updated(1))
    driver.join(B)
    for _ in range(50):
        for old in [t for t in centre_tasks(driver, B) if t.version == 0]:
            driver.send(Refused(B, old.task, False, "gone"))
        driver.tick(0.1)
    given_up = [h for h in of(driver.said, Happened) if "version 0 given up" in h.what]
    assert len(given_up) == 1
    assert any(t.version == 1 for t in tasks(driver.said))


def test_a_failing_centre_episode_is_tried_elsewhere_before_it_is_given_up() -> None:
    driver = Driver(spec(4, centre={**CENTRE, "screening": 1}))
    driver.join(A)
    driver.join(B)
    said: list[Command] = []
    failed_by = []
    for _ in range(500):
        held = [t for t in tasks(driver.said) if t.task in driver.pool.leases]
        if not held:
            driver.tick(0.1)
            continue
        task = held[0]
        if task.kind == "centre" and task.version == 0:
            failed_by.append(task.session)
            said = driver.finish(task, failed={0: "it raised"})
            if len(failed_by) == 2:
                break
        else:
            driver.finish(task, after=0.05)
        if driver.pool.updating:
            driver.send(Updated(driver.pool.version + 1))
    assert sorted(failed_by) == [A, B]
    assert [h for h in of(said, Happened) if "given up" in h.what]


# Acknowledgements.


def test_an_acknowledgement_rides_on_the_next_task() -> None:
    driver = Driver(spec(64))
    (task,) = driver.join(A)
    (second,) = tasks(driver.finish(task))
    said = driver.finish(second)
    assert tasks(said)[0].acknowledged == (task.task,)
    assert not of(said, SendAcknowledge)


def test_an_acknowledgement_goes_alone_when_no_task_comes() -> None:
    driver = Driver(spec(2))
    (task,) = driver.join(A)
    said = driver.finish(task)
    assert not tasks(said)
    assert not answers(driver.tick(1.0))
    assert answers(driver.tick(1.1)) == [((task.task,), "accepted")]


def test_who_takes_no_more_is_answered_at_once() -> None:
    driver = Driver(spec(16))
    (task,) = driver.join(A)
    driver.send(Heard(A, credit=0))
    assert answers(driver.finish(task)) == [((task.task,), "accepted")]


def test_everybody_is_told_at_the_end() -> None:
    driver = Driver(spec(2))
    (task,) = driver.join(A)
    driver.finish(task)
    assert answers(driver.send(StopAsked("enough"))) == [((task.task,), "accepted")]


def test_a_session_that_is_gone_is_answered_at_once() -> None:
    driver = Driver(spec(16))
    (task,) = driver.join(A)
    driver.send(Left(A, "lost"))
    assert ((task.task,), "accepted") in answers(driver.finish(task))


# Keeping results.


def test_a_result_is_acknowledged_once_it_is_kept() -> None:
    driver = Driver(spec(64))
    driver.keeps = False
    (task,) = driver.join(A)
    said = driver.finish(task)
    (keep,) = of(said, KeepResult)
    assert keep.arrived.task == task.task
    assert not [t for t in tasks(said + driver.tick(5.0)) if t.acknowledged]
    assert not of(driver.said, SendAcknowledge)
    driver.send(Kept(((A, task.task),)))
    assert answers(driver.tick(2.1)) == [((task.task,), "accepted")]


def test_a_result_is_needed_until_the_update_that_uses_it_is_made() -> None:
    driver, late, _ = straggling(stale_share=1.0)
    assert driver.pool.updating
    keeps = {keep.arrived.first: keep.until for keep in of(driver.said, KeepResult)}
    assert {until for first, until in keeps.items() if first < 16} == {0}
    assert {until for first, until in keeps.items() if first >= 16} == {1}
    (keep,) = of(driver.finish(late), KeepResult)
    assert keep.until == 1  # it missed update 0


def test_a_result_of_the_centre_is_needed_until_its_version_is_judged() -> None:
    driver = Driver(spec(16, centre=CENTRE), version=7)
    said = driver.finish(SendTask(A, 1, "centre", 7, 0, 2))
    assert [keep.until for keep in of(said, KeepResult)] == [7]


def test_who_was_second_keeps_its_result_until_the_first_is_kept() -> None:
    driver = Driver(spec(64))
    driver.keeps = False
    (task,) = driver.join(A)
    driver.finish(task)
    assert not answers(driver.finish(task))
    copy = SendTask(B, 900, "members", 0, task.first, 1)
    assert not answers(driver.finish(copy))
    apart = SendTask(B, 901, "members", 0, task.first + task.count, 1)
    assert of(driver.finish(apart), KeepResult)
    said = driver.send(Kept(((A, task.task),)))
    assert answers(said) == [((task.task,), "duplicate"), ((900,), "duplicate")]
    assert answers(driver.finish(copy)) == [((900,), "duplicate")]


def test_who_was_second_to_two_results_waits_for_both() -> None:
    driver = Driver(spec(64))
    driver.keeps = False
    for task, first in ((1, 0), (2, 4)):
        driver.finish(SendTask(A, task, "members", 0, first, 4))
    assert not answers(driver.finish(SendTask(B, 3, "members", 0, 2, 4)))
    assert answers(driver.send(Kept(((A, 1),)))) == [((1,), "accepted")]
    assert answers(driver.send(Kept(((A, 2),)))) == [((2,), "accepted"), ((3,), "duplicate")]


def test_who_has_too_much_that_is_not_kept_gets_no_more_until_it_is() -> None:
    driver = Driver(spec(65_536))
    driver.measured(A, credit=8)
    driver.keeps = False
    unkept = []
    while held := [t for t in tasks(driver.said) if t.task in driver.pool.leases]:
        unkept.append((A, held[0].task))
        driver.finish(held[0])
        assert len(unkept) + len(driver.pool.leases) <= MOST_TASKS
    assert len(unkept) == MOST_TASKS
    assert driver.pool.quiet_because().startswith("64 results wait for the disk")
    driver.send(Kept(tuple(unkept[:3])))
    driver.tick(0.1)
    assert len(driver.pool.leases) == 3
    assert driver.pool.progress[0] < 32_768


def test_what_is_kept_after_its_session_left_or_the_run_ended_is_answered_at_once() -> None:
    driver = Driver(spec(64))
    driver.keeps = False
    (first,) = driver.join(A)
    (second,) = tasks(driver.finish(first))
    driver.send(Left(A, "lost"))
    assert answers(driver.send(Kept(((A, first.task),)))) == [((first.task,), "accepted")]
    driver.join(A)
    driver.finish(second)
    assert not answers(driver.send(StopAsked("enough")))
    assert answers(driver.send(Kept(((A, second.task),)))) == [((second.task,), "accepted")]


# Going on from where another pool was lost.


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
        "the only worker is paused, until they say otherwise: a/s"
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
