"""Workers whose lanes step together: what they are given, and how their speed is measured."""

from __future__ import annotations

from coordinator.pool.events import Joined, SendTask, SessionId, Updated
from coordinator.pool.sizing import EMPTY, NOTHING
from tests.coordinator.driver import A, B, Driver, tasks
from tests.coordinator.simulation import Environment, spec

EVEN = Environment(mean=100, spread=0)
"""Episodes of one length: 200 steps a direction."""
LANES = 256
FILL = LANES // 2
PASS = 0.001
"""Seconds of a step of all lanes."""


def takes(count: int) -> float:
    """Seconds of a task that comes alone, in lanes that step together."""
    return 100 * PASS * max(count / FILL, EMPTY + (1.0 - EMPTY) * count / FILL)


def joined(driver: Driver, id: SessionId, lanes: int = LANES) -> list[SendTask]:
    return tasks(driver.send(Joined(id, 2, 0.0, lanes=lanes)))


def batch(driver: Driver) -> list[SendTask]:
    """Each session plays what it has, one task after the other, until a batch is closed and the
    next one given: the tasks of the one that closed."""
    given: list[SendTask] = []
    ends: dict[SessionId, float] = {}
    while not driver.pool.updating:
        out = [task for task in tasks(driver.said) if task.task in driver.pool.leases]
        for task in out:
            if task not in given:
                given.append(task)
                ends[task.session] = max(ends.get(task.session, 0.0), driver.now)
                ends[task.session] += takes(task.count)
        next_task = min(out, key=lambda task: ends[task.session])
        driver.finish(
            next_task, after=max(0.0, ends[next_task.session] - driver.now), environment=EVEN
        )
    driver.send(Updated(driver.pool.version + 1), 0.01)
    return given


def sizes(given: list[SendTask]) -> list[tuple[SessionId, int]]:
    return sorted((task.session, task.count) for task in given)


def test_batches_come_in_tasks_that_fill_the_lanes_of_all() -> None:
    driver = Driver(spec(4 * FILL, pool={"max_staleness": 0}))
    joined(driver, A)
    joined(driver, B)
    for _ in range(4):
        batch(driver)
    full = [(A, FILL), (B, FILL)]
    assert sizes(batch(driver)) == full
    # Once its share is small, few of its lanes are in use.
    for speed, times in ((1e5, 1), (2e4, 1)):
        pace = driver.pool.sessions[A].pace
        pace.speed, pace._last, pace._last_but_one = speed, (speed, float(times)), NOTHING
        driver.pool._roster.reweigh(driver.pool.sessions[A])
        for _ in range(5):
            given = sizes(batch(driver))
        assert given == full


def test_a_newcomer_finds_work_beside_lanes_that_could_take_all() -> None:
    driver = Driver(spec(4 * FILL, pool={"max_staleness": 0}))
    joined(driver, A)
    for _ in range(3):
        batch(driver)
    assert joined(driver, B) == []
    given = batch(driver) + batch(driver) + batch(driver)
    assert B in {task.session for task in given}
