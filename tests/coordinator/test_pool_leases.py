"""Leases: how large, for whom, how long, and what becomes of one that is not answered."""

from __future__ import annotations

import pytest

from coordinator.pool.events import (
    CloseBatch,
    Happened,
    Heard,
    Joined,
    Left,
    SessionId,
    Tick,
)
from coordinator.pool.machine import SILENT_AFTER
from tests.coordinator.driver import A, B, C, Driver, answers, of, tasks
from tests.coordinator.simulation import Simulation, result, spec

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
    driver = Driver(spec(16, pool={"copies": 1}))
    driver.measured(A)
    held = [t for t in tasks(driver.said) if t.task in driver.pool.leases]
    assert [t.session for t in held] == [A]
    driver.join(B)
    stuck = [t for t in tasks(driver.said) if t.session == A][-1]
    while mine := [
        h for h in tasks(driver.said) if h.session == B and h.task in driver.pool.leases
    ]:
        driver.finish(mine[0], after=0.2)  # B does all else
    driver.pool.sessions[B].pace.speed = 1e6
    lease = driver.pool.leases[stuck.task]
    driver.send(Tick(), after=lease.overdue - driver.now - 0.01)
    assert not driver.pool.sessions[B].leases
    driver.send(Tick(), after=lease.expected - lease.issued + 0.01)
    copies = [t for t in tasks(driver.said) if t.first == stuck.first and t.session == B]
    assert len(copies) == 1
    driver.join(C)
    driver.send(Tick())
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
    (gone,) = [h for h in of(driver.said, Happened) if h.what.startswith("gone")]
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
    assert not [h for h in of(driver.said, Happened) if h.what.startswith("gone")]


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
