"""Failures: they cost workers their standing, the pool little, and the work nothing."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest

from coordinator.pool.events import (
    CentreJudged,
    CloseBatch,
    Command,
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
from coordinator.pool.presets import PRESETS
from protocol.spec import RunSpec
from tests.coordinator.driver import CENTRE, A, B, C, Driver, of, tasks, units
from tests.coordinator.simulation import Environment, Simulation, counted, spec


class Fleet(Driver):
    """Workers that crash on some directions and finish all others, one task after the other."""

    def __init__(self, run: RunSpec, poison: set[int], workers: int) -> None:
        super().__init__(run)
        self.poison = poison
        self.crashes: list[tuple[SessionId, SendTask]] = []
        self.fleet = [SessionId(f"w{number}", "s") for number in range(workers)]
        for id in self.fleet:
            self.join(id)

    def work(self, seconds: float, crash: bool = True) -> None:
        """Go on for so long; updates follow at once. Who crashes says so, or is just gone."""
        end = self.now + seconds
        while self.now < end:
            out = [t for t in tasks(self.said) if t.task in self.pool.leases]
            self.said = [c for c in self.said if not isinstance(c, SendTask)]
            self.said += out
            for task in out:
                if task.kind == "members" and units(task) & self.poison:
                    self.crashes.append((task.session, task))
                    if crash:
                        self.send(Refused(task.session, task.task, True, "its child crashed"))
                    else:
                        self.send(Left(task.session, "lost"))
                        self.send(Joined(task.session, 1, 0.0))
                else:
                    self.finish(task, after=0.001)
            if self.pool.updating:
                self.send(Updated(self.pool.version + 1))
            for id in list(self.pool.sessions):
                self.send(Heard(id))
            self.send(Tick(), 0.1)


@pytest.mark.parametrize("crash", [True, False], ids=["crash", "vanish"])
def test_a_poison_direction_is_isolated_and_does_not_travel_through_the_fleet(crash: bool) -> None:
    driver = Fleet(spec(400), {150}, workers=30)
    driver.work(12.0, crash)
    sizes = [task.count for _, task in driver.crashes]
    assert sizes[0] > 1
    assert sizes[-1] == 1
    assert len(sizes) <= 16, "it goes to no more than 16 workers"
    assert max(Counter(session for session, _ in driver.crashes).values()) == 1
    assert driver.pool.progress == (199, 200)


def test_a_quorum_leaves_a_poison_direction_behind() -> None:
    driver = Fleet(spec(200, pool=PRESETS["quorum"]), {50}, workers=24)
    driver.work(8.0)
    assert 1 <= len(driver.crashes) <= 16
    closed = of(driver.said, CloseBatch)
    assert len(closed) > 5
    assert 50 not in counted(closed[0])
    assert len(counted(closed[0])) >= 0.9 * 100


def test_a_poison_direction_has_one_holder_at_a_time_and_no_copies() -> None:
    driver = Driver(spec(2, pool={"copies": 4}))
    for id in (A, B, C):
        driver.join(id)
    for id in (A, B):
        (lease,) = driver.pool.leases.values()
        assert lease.session == id
        driver.send(Refused(id, lease.task, True, "its child crashed"))
    driver.join(SessionId("d", "s"))
    driver.tick(50.0)
    (lease,) = driver.pool.leases.values()
    assert lease.overdue < driver.now
    assert lease.session == C


def test_directions_that_end_the_processes_of_workers_do_not_hold_a_batch_up_for_long() -> None:
    """Two starts of 2 s each for each direction on each of two workers, while leases of what never
    failed last 2 s: four such directions take two workers 16 s."""
    poison = frozenset(128 * batch + at for batch in range(4) for at in (10, 60, 61, 100))
    run = spec(256, pool=PRESETS["sync"])
    simulation = Simulation(run, Environment(mean=200, spread=100, failing=poison))
    for name in ("a", "b"):
        simulation.join(name, speed=20_000.0, restarts=4.0, part_seconds=5.0)
    for version in range(1, 5):
        assert simulation.run(partial(reached, simulation, version), 25.0)
    dropped = [unit for _, closed in simulation.record.closed for unit in closed.dropped]
    assert dropped == sorted(poison)


def reached(simulation: Simulation, version: int) -> bool:
    return simulation.pool.version >= version


def test_a_synchronous_run_that_cannot_go_on_says_so_and_goes_on_with_another_worker() -> None:
    driver = Fleet(spec(16), {3}, workers=2)
    driver.work(40.0)
    assert driver.pool.progress == (7, 8)
    (said,) = [h.what for h in of(driver.said, Happened) if "tried again" in h.what]
    quiet = driver.pool.quiet_because()
    for line in (said, quiet):
        assert "direction 3 failed" in line
        assert "on 2 workers" in line
        assert "its child crashed" in line
        assert "in 60 s, or when another worker comes" in line
    assert quiet.startswith("the run waits: ")
    before = len(driver.crashes)
    driver.poison = set()
    driver.work(1.0)
    assert driver.pool.version == 0, "nobody is asked again"
    driver.join(A)
    driver.work(1.0)
    assert driver.pool.version > 0
    assert len(driver.crashes) == before


def test_what_is_stuck_is_tried_once_more_after_a_minute() -> None:
    driver = Fleet(spec(16), {3}, workers=1)
    driver.work(30.0)
    before = len(driver.crashes)
    driver.work(65.0)
    assert len(driver.crashes) == before + 1
    driver.poison = set()
    driver.work(65.0)
    assert driver.pool.version > 0


def test_a_quorum_closes_without_what_is_stuck() -> None:
    driver = Fleet(spec(32, pool={"quorum": 0.9, "max_staleness": 1}), {3}, workers=2)
    driver.work(100.0)
    assert driver.pool.version > 0
    (first, *_) = of(driver.said, CloseBatch)
    assert sorted(counted(first).tolist()) == [0, 1, 2, *range(4, 16)]


def test_a_centre_episode_that_breaks_its_workers_does_not_stop_training() -> None:
    driver = Driver(spec(4, centre=CENTRE))
    driver.join(A)
    driver.join(B)
    for _ in range(900):
        for task in [t for t in tasks(driver.said) if t.task in driver.pool.leases]:
            if task.kind == "centre" and task.version == 0 and 2 in units(task):
                driver.send(Refused(task.session, task.task, True, "its child crashed"))
            else:
                driver.finish(task, after=0.01)
        if driver.pool.updating:
            driver.send(Updated(driver.pool.version + 1))
        driver.tick(0.1)
        if driver.pool.version > 12:
            break
    assert driver.pool.version > 12
    assert len([h for h in of(driver.said, Happened) if "version 0 given up" in h.what]) == 1
    assert {j.version for j in of(driver.said, CentreJudged)} >= set(range(1, 12))


def test_a_lone_worker_with_two_sessions_is_not_starved_by_its_own_failures() -> None:
    driver = Driver(spec(16))
    one, two = SessionId("a", "1"), SessionId("a", "2")
    (task,) = driver.join(one)
    driver.join(two)
    driver.send(Refused(one, task.task, True, "its child crashed"))
    driver.tick(0.1)
    done: set[int] = set()
    for _ in range(60):
        for held in [t for t in tasks(driver.said) if t.task in driver.pool.leases]:
            done |= units(held)
            driver.finish(held, after=0.01)
        driver.tick(0.1)
    assert units(task) <= done
    assert of(driver.said, CloseBatch)


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_a_failing_episode_is_confirmed_by_a_second_worker_and_dropped_in_every_mode(
    preset: str,
) -> None:
    driver = Driver(spec(2, pool=PRESETS[preset]))
    driver.join(A)
    driver.join(B)
    for id in (A, B):
        task = next(
            t for t in tasks(driver.said) if t.session == id and t.task in driver.pool.leases
        )
        assert not of(driver.said, CloseBatch)
        driver.finish(task, failed={0: "NaN reward"})
    (closed,) = of(driver.said, CloseBatch)
    assert closed.dropped == (0,)


def test_the_pool_names_who_rests_and_for_how_long() -> None:
    driver = Driver(spec(16))
    driver.join(A)
    driver.join(B)
    for id, reason in ((A, "no gymnasium"), (B, "out of memory")):
        (lease,) = driver.pool.sessions[id].leases.values()
        driver.send(Refused(id, lease.task, True, reason))
    assert driver.pool.quiet_because() == (
        "all 2 workers are at rest after failures: a/s is the next, after 2 s, because no gymnasium"
    )
    driver.tick(1.0)
    assert "after 2 s, because no gymnasium" in driver.pool.quiet_because(), "it stays the same"


# Workers that come and go.


def flap(driver: Driver, id: SessionId, times: int, apart: float) -> list[int]:
    """A worker comes, takes what it gets, and is lost: how many directions it got each time."""
    got = []
    for number in range(times):
        session = SessionId(id.worker, f"{id.session}{number}")
        driver.send(Joined(session, 4, 1e6))
        driver.tick(apart, step=0.5)
        lease_counts = [lease.count for lease in driver.pool.sessions[session].leases.values()]
        got.append(sum(lease_counts))
        driver.send(Left(session, "lost"))
    return got


def test_a_flapping_worker_gets_less_each_time_and_rests_in_between() -> None:
    driver = Driver(spec(4096))
    got = flap(driver, A, times=30, apart=1.0)
    assert got[0] > 100
    assert got[2] == 0, "it rests"
    assert sum(1 for count in got if count) <= 6
    assert sum(got[1:]) < 1.5 * got[0]


def test_a_flapping_worker_that_waits_for_its_rest_to_end_gets_small_tasks() -> None:
    driver = Driver(spec(4096))
    got = flap(driver, A, times=12, apart=61.0)
    assert all(got)
    assert max(got[7:]) <= got[0] / 16


def test_a_worker_that_only_comes_and_goes_gets_less_each_time() -> None:
    driver = Driver(spec(4096))
    for number in range(4):
        id = SessionId("a", str(number))
        driver.send(Joined(id, 1, 1e6), after=10.0)
        driver.send(Left(id, "left"))
    counts = [task.count for task in tasks(driver.said)]
    assert counts == [counts[0] >> number for number in range(4)]
    assert counts[0] > 100


def test_a_result_that_comes_after_its_lease_ran_out_undoes_the_loss() -> None:
    driver = Driver(spec(4096))
    (task,) = driver.join(A)
    driver.tick(61.0, step=1.0)
    assert driver.pool.sessions[A].losses == 1
    driver.finish(task)
    assert driver.pool.sessions[A].losses == 0


def test_a_worker_earns_its_standing_back_by_results() -> None:
    driver = Driver(spec(4096))
    flap(driver, A, times=4, apart=40.0)
    assert not driver.join(A)
    driver.tick(8.2)
    assert driver.pool.sessions[A].losses == 4
    for expected in (3, 2, 1, 0):
        (task, *_) = [t for t in tasks(driver.said) if t.task in driver.pool.leases]
        driver.finish(task)
        assert driver.pool.sessions[A].losses == expected
    driver.send(Left(A, "left"))
    driver.join(A)
    assert driver.pool.sessions[A].losses == 0


def test_failures_outlive_a_session_and_are_forgotten_after_an_hour() -> None:
    driver = Driver(spec(64))
    driver.join(A)
    for _ in range(4):
        (lease,) = driver.pool.sessions[A].leases.values()
        driver.send(Refused(A, lease.task, True, "its child crashed"))
        rests = driver.pool.sessions[A].rests_until - driver.now
        if rests < 16.0:
            driver.tick(rests + 0.2)
    driver.send(Left(A, "left"))
    again = SessionId("a", "t")
    assert not driver.join(again)
    assert driver.pool.sessions[again].failures == 4
    driver.send(Left(again, "left"))
    driver.now += 3601.0
    assert driver.join(A)
    assert driver.pool.sessions[A].failures == 0


def test_a_hello_again_without_its_tasks_is_a_loss() -> None:
    driver = Driver(spec(4096))
    for _ in range(5):
        driver.send(Joined(A, 4, 0.0), after=0.1)
    assert driver.pool.sessions[A].losses == 2
    assert not driver.pool.sessions[A].leases, "it rests"


def test_a_hoarder_holds_one_task_at_a_time() -> None:
    driver = Driver(spec(4096))
    driver.join(B)
    driver.send(Joined(A, 64, 1e12))
    most = 0
    for _ in range(250):
        driver.tick(2.0, step=2.0)
        most = max(most, len(driver.pool.sessions[A].leases))
    assert most == 1
    assert driver.pool.sessions[A].losses >= 3


# One failure after the other.


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
