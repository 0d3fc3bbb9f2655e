"""Who is given what: copies of what is overdue, the next batch early, nothing for who is slow."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from coordinator.pool.dispatch import INSURED_EVERY, MOST_HOLDERS, Dispatch
from coordinator.pool.events import CloseBatch, Heard, Joined, SendTask, SessionId, Tick, Updated
from coordinator.pool.work import Work
from tests.coordinator.driver import A, B, Driver, of, piece, tasks, units
from tests.coordinator.simulation import Environment, spec

EVEN = Environment(mean=100, spread=0)
"""Episodes of one length, so that predictions are exact: 200 steps a direction."""


def paced(driver: Driver, id: SessionId, unit: float, credit: int = 1) -> None:
    """A session joins and shows that it takes so many seconds for a direction; it holds a task."""
    (task,) = tasks(driver.send(Joined(id, credit, 200.0 / unit)))
    driver.finish(task, after=task.count * unit, environment=EVEN)


def held(driver: Driver, id: SessionId) -> list[SendTask]:
    leases = driver.pool.leases
    return [t for t in tasks(driver.said) if t.session == id and t.task in leases]


def finish_all(driver: Driver, id: SessionId, unit: float, but: SendTask | None = None) -> None:
    """The session goes on for as long as it is given something of the open batch."""
    left = but.first if but else -1
    while mine := [t for t in held(driver, id) if t.first != left and t.first < 256]:
        driver.finish(mine[0], after=mine[0].count * unit, environment=EVEN)


def overdue_in(driver: Driver, task: SendTask, seconds: float) -> None:
    """The pool's mind is made up anew on when this lease is overdue."""
    lease = driver.pool.leases[task.task]
    lease.overdue = lease.expected = driver.now + seconds
    lease.deadline = driver.now + 1000.0
    lease.work.await_again(lease)


def straggler(copies: int, waiting: tuple[float, ...]) -> tuple[Driver, SendTask]:
    """A holds the end of a batch, and does not return it; others wait, of these paces."""
    driver = Driver(spec(256, pool={"copies": copies, "max_staleness": 0}))
    ids = [SessionId(f"w{number}", "s") for number in range(len(waiting))]
    (stuck,) = driver.join(A)
    overdue_in(driver, stuck, 1000.0)
    for id in ids:
        driver.join(id)
    while driver.pool._batches.open.work.missing > stuck.count:
        for id in ids:
            finish_all(driver, id, 0.1, but=stuck)
        driver.send(Tick(), 0.1)
    assert len(driver.pool.leases) == 1
    for id, unit in zip(ids, waiting, strict=True):  # here they worked one after the other
        driver.pool.sessions[id].pace.speed = 200.0 / unit
    return driver, stuck


def copied(driver: Driver, task: SendTask, seconds: float) -> list[SessionId]:
    """Who is given that range again within so many seconds."""
    before = len(driver.said)
    driver.tick(seconds)
    return [t.session for t in tasks(driver.said[before:]) if t.first == task.first]


@pytest.mark.parametrize("copies", [0, 1, 2, 3])
def test_an_overdue_lease_gets_as_many_copies_as_the_run_spec_says(copies: int) -> None:
    driver, stuck = straggler(copies, (0.001,) * 4)
    assert not copied(driver, stuck, 1.0)
    overdue_in(driver, stuck, 0.05)
    got = copied(driver, stuck, 0.1)
    assert len(set(got)) == len(got) == copies
    assert A not in got


def test_no_more_than_a_few_are_at_the_same_units_at_once() -> None:
    """Copies that are overdue, too, may be broken by what they are of."""
    driver, stuck = straggler(2, (0.001,) * 9)
    overdue_in(driver, stuck, 0.05)
    assert len(copied(driver, stuck, 1.5)) == MOST_HOLDERS - 1 == 3


def test_no_result_is_held_up_by_copies_of_others() -> None:
    """What an event costs is what it changes: copies are made with the next tick."""
    driver, stuck = straggler(1, (0.001, 0.001))
    overdue_in(driver, stuck, 0.1)
    driver.now += 1.0
    before = len(driver.said)
    (other,) = [s for s in driver.pool.sessions if s.worker == "w0"]
    driver.send(Heard(other, 1))
    assert not tasks(driver.said[before:])
    driver.send(Tick())
    assert [t.first for t in tasks(driver.said[before:])] == [stuck.first]


def test_a_copy_goes_to_the_fastest_that_waits() -> None:
    driver, stuck = straggler(1, (0.001, 0.001, 0.0002, 0.001))
    overdue_in(driver, stuck, 0.05)
    assert copied(driver, stuck, 0.1) == [SessionId("w2", "s")]


def test_a_copy_goes_past_who_may_not_have_it() -> None:
    """As who still has to prove itself may wait at the head of all."""
    driver, stuck = straggler(1, (0.001, 0.0004, 0.0002, 0.001))
    driver.pool._dispatch._auditing = SimpleNamespace(  # type: ignore[assignment]
        has_checks=False,
        checks=SimpleNamespace(waiting=0),
        has_established=True,
        check_for=lambda session: None,
        trial_for=lambda session: None,
        stands_behind=lambda worker: worker == "w2",
    )
    overdue_in(driver, stuck, 0.05)
    assert copied(driver, stuck, 0.1) == [SessionId("w1", "s")]


def test_no_copy_is_made_that_is_not_expected_twice_as_soon() -> None:
    """Who is late is expected no sooner than after being as late again."""
    driver, stuck = straggler(1, (0.001,))
    driver.pool.sessions[SessionId("w0", "s")].pace.speed = 200.0 * stuck.count / 0.2
    overdue_in(driver, stuck, 1.0)
    assert not copied(driver, stuck, 1.3)
    assert copied(driver, stuck, 0.3) == [SessionId("w0", "s")]


def test_what_is_too_much_for_one_goes_to_all_who_wait_in_parts() -> None:
    driver, stuck = straggler(1, (0.1,) * 4)
    overdue_in(driver, stuck, 0.1)
    before = len(driver.said)
    driver.tick(1.0)
    parts = tasks(driver.said[before:])
    assert [part.count for part in parts] == [2] * 4, "0.2 s for each, the shortest task there is"
    for part in parts:
        driver.finish(part, after=0.2, environment=EVEN)
        driver.tick(0.1)
    done = [t for t in tasks(driver.said[before:]) if t.task not in driver.pool.leases]
    assert len(set.union(*map(units, done))) == sum(part.count for part in done)
    driver.finish(stuck, environment=EVEN)
    assert driver.pool.updating, "its own result is as good"


def test_the_last_units_are_copied_before_they_are_overdue() -> None:
    driver, stuck = straggler(1, (0.001,))
    overdue_in(driver, stuck, 100.0)
    assert not copied(driver, stuck, 1.0)
    driver.send(piece(stuck, stuck.first, stuck.count - 2, environment=EVEN))
    overdue_in(driver, stuck, 100.0)
    assert 2 <= 0.02 * 128 < 3
    before = len(driver.said)
    driver.tick(0.5)
    assert [t.count for t in tasks(driver.said[before:])] == [2]


def quorum_there(patience: float) -> tuple[Driver, SendTask]:
    """The quorum is here, and A still has a lease."""
    pool = {"quorum": 0.5, "max_staleness": 1, "patience": patience, "stale_share": 0.0}
    driver = Driver(spec(64, pool={**pool, "copies": 0, "lease_floor": 60.0}))
    (first,) = driver.join(A)
    (other,) = driver.join(B, speed=20_000.0)
    driver.finish(first, after=0.1 * first.count, environment=EVEN)
    (stuck,) = held(driver, A)
    driver.finish(other, after=0.0, environment=EVEN)
    finish_all(driver, B, 0.001)
    return driver, stuck


def test_without_patience_a_batch_closes_with_its_quorum() -> None:
    driver, _ = quorum_there(0.0)
    assert driver.pool.updating
    (closed,) = of(driver.said, CloseBatch)
    assert 16 <= sum(len(part.returns) for part in closed.contributions) < 32


@pytest.mark.parametrize("patience", [0.5, 1.0, 2.0])
def test_what_is_missing_is_waited_for_as_long_as_patience_says(patience: float) -> None:
    driver, stuck = quorum_there(patience)
    lease = driver.pool.leases[stuck.task]
    until = lease.issued + patience * (lease.overdue - lease.issued)
    assert not driver.pool.updating
    driver.tick(until - driver.now - 0.05, step=0.01)
    assert not driver.pool.updating
    driver.tick(0.1, step=0.01)
    assert driver.pool.updating


def test_only_the_time_until_the_next_version_is_filled_early() -> None:
    """The last update took 0.5 seconds: somebody who takes 0.05 for a direction can do ten."""
    driver = Driver(spec(512, pool={"max_staleness": 1, "stale_share": 1.0}))
    paced(driver, A, 0.05)
    finish_all(driver, A, 0.05)
    driver.send(Updated(1), 0.5)
    while not driver.pool.updating:
        (task,) = held(driver, A)
        driver.finish(task, after=0.05 * task.count, environment=EVEN)
    (early,) = held(driver, A)
    assert early.first >= 512 and 10 <= early.count <= 11


def slow_at_the_end(**pool: object) -> Driver:
    """B, 40 times slower than A, asks for work when A is about to finish the batch."""
    driver = Driver(spec(512, pool={"lease_floor": 60.0, **pool}))
    paced(driver, A, 0.02, credit=2)
    (task,) = driver.join(B, speed=250.0)
    while driver.pool._batches.open.work.unleased.total > 8:
        mine = held(driver, A)[0]
        driver.finish(mine, after=0.02 * mine.count, environment=EVEN)
    driver.finish(task, after=0.0, environment=EVEN)
    assert driver.pool._batches.open.work.unleased.total > 0
    return driver


def test_who_is_too_slow_for_the_end_of_a_batch_begins_the_next() -> None:
    driver = slow_at_the_end(max_staleness=2, stale_share=1.0)
    assert all(t.first >= 256 for t in held(driver, B))


def test_who_is_too_slow_waits_in_a_synchronous_run_while_others_are_expected() -> None:
    driver = slow_at_the_end(max_staleness=0)
    assert not held(driver, B)
    finish_all(driver, A, 0.02)
    assert of(driver.said, CloseBatch)


def test_who_is_too_slow_goes_on_where_nobody_else_does() -> None:
    driver = slow_at_the_end(max_staleness=0)
    assert not held(driver, B)
    driver.tick(10.0)  # A does not return what it holds
    assert held(driver, B)


@pytest.mark.parametrize(
    ("quorum", "share", "early"), [(1.0, 0.25, 8), (0.75, 0.25, 0), (0.75, 1.0, 24)]
)
def test_early_work_leaves_room_for_what_may_come_late(
    quorum: float, share: float, early: int
) -> None:
    pool = {"quorum": quorum, "max_staleness": 1, "stale_share": share}
    driver = Driver(spec(64, pool=pool))
    driver.join(A)
    assert driver.pool._batches.early_room(updating=False) == early


def test_what_a_worker_still_did_when_its_lease_ran_out_is_no_time_of_its_next_task() -> None:
    driver = Driver(spec(256))
    paced(driver, A, 0.1)
    (old,) = held(driver, A)
    while old.task in driver.pool.leases:
        driver.tick(0.1)
    (new,) = held(driver, A)
    driver.finish(old, after=1.0, environment=EVEN)
    driver.finish(new, after=0.1 * new.count, environment=EVEN)
    assert driver.pool.sessions[A].speed == pytest.approx(2000.0)


def test_what_is_to_be_copied_is_looked_for_at_intervals_however_often_the_clock_ticks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[float] = []
    driver = Driver(spec(32, pool={"copies": 1}))

    def look(_: Dispatch) -> Iterator[Work]:
        looks.append(driver.now)
        return iter(())

    monkeypatch.setattr(Dispatch, "_awaited", look)
    for _ in range(10 * round(INSURED_EVERY / 0.001)):
        driver.send(Tick(), after=0.001)
    assert 9 <= len(looks) <= 10
