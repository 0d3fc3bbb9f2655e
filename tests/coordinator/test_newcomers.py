"""How much newcomers may hold together, as they return it or not."""

from __future__ import annotations

from coordinator.pool.events import Joined, Left, SendTask, SessionId
from coordinator.pool.newcomers import PAUSE, SHARE, Newcomers
from coordinator.pool.work import Lease, Work
from tests.coordinator.driver import A, B, C, Driver, tasks
from tests.coordinator.simulation import spec

BATCH = 128
MOST = BATCH // SHARE


def lease(task: int, count: int, overdue: float) -> Lease:
    work = Work(0, BATCH)
    claim = work.claim(count, "a", {"a"})
    assert claim is not None
    made = Lease(task, A, "members", 0, 0, count, work, claim, 0.0)
    made.overdue = overdue
    return made


def test_they_hold_a_small_part_of_a_batch() -> None:
    newcomers = Newcomers(BATCH)
    assert newcomers.room(0.0) == MOST
    first, second = lease(1, 3, 10.0), lease(2, MOST - 3, 10.0)
    newcomers.hold(first)
    assert newcomers.room(0.0) == MOST - 3
    newcomers.hold(second)
    assert (newcomers.room(9.0), len(newcomers)) == (0, 2)
    newcomers.returned(first)
    assert (newcomers.room(9.0), len(newcomers)) == (3, 1)


def test_what_is_overdue_makes_room_for_others_but_less_each_time() -> None:
    newcomers = Newcomers(BATCH)
    rooms = []
    for task in range(2, 12, 2):
        newcomers.hold(lease(task, newcomers.room(task), task + 0.5))
        rooms.append(newcomers.room(task + 0.5))
        assert rooms[-1] or newcomers.room(task + 0.5 + PAUSE) == 1
    assert rooms == [MOST // 2, MOST // 4, 1, 0, 0]


def test_whatever_comes_back_late_or_not_makes_more_room_up_to_the_most() -> None:
    newcomers = Newcomers(BATCH)
    late = [lease(task, 1, 1.0) for task in range(1, 6)]
    for each in late:
        newcomers.hold(each)
    rooms = [newcomers.room(1.0)]
    assert rooms == [0], "a pause, which the first that comes back ends"
    for each in late:
        newcomers.returned(each)
        rooms.append(newcomers.room(1.0))
    assert rooms == [0, 2, 4, MOST, MOST, MOST]


def test_the_smallest_batch_has_room_for_one() -> None:
    assert Newcomers(1).room(0.0) == 1


def crowd_of(driver: Driver, size: int) -> list[SendTask]:
    """What so many newcomers are given, who join in one moment."""
    said = [driver.send(Joined(SessionId(f"n{k}", "s"), 4, 1e12)) for k in range(size)]
    return [task for commands in said for task in tasks(commands)]


def test_a_crowd_gets_all_where_nobody_is_known_and_little_beside_who_is() -> None:
    alone = Driver(spec(2 * BATCH))
    assert sum(task.count for task in crowd_of(alone, 200)) == BATCH

    driver = Driver(spec(2 * BATCH, pool={"max_staleness": 0}))
    driver.measured(A, credit=2)
    given = crowd_of(driver, 200)
    assert 0 < sum(task.count for task in given) <= MOST


def test_who_was_cut_off_and_comes_back_is_no_newcomer_as_often_as_its_results_counted() -> None:
    driver = Driver(spec(2 * BATCH, pool={"max_staleness": 0}))
    driver.measured(A, credit=2)
    known = [task for id in (B, C) for task in driver.measured(id)]
    assert {task.session for task in known} == {B, C}
    for id in (B, C):
        driver.send(Left(id, "lost"))
    given = [driver.join(id, credit=2) for id in (B, C)]
    assert [len(tasks) for tasks in given] == [2, 2]
    assert sum(task.count for tasks in given for task in tasks) > MOST
    for id in (B, C):
        driver.send(Left(id, "lost"))
    driver.tick(5.0)  # they rest: a second time they lost what they had
    again = [task for id in (B, C) for task in driver.join(id, credit=2)]
    assert 0 < sum(task.count for task in again) <= MOST
