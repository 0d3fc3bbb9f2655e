"""Whatever keeps a run from going on, the host reads why."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from coordinator.pool.events import (
    CloseBatch,
    Deaf,
    Hearing,
    Left,
    Refused,
    SessionId,
    StopAsked,
    Strained,
)
from tests.coordinator.driver import A, B, Driver, of, tasks
from tests.coordinator.simulation import spec


def nobody(driver: Driver) -> None:
    pass


def the_broker_is_away(driver: Driver) -> None:
    driver.join(A)
    driver.send(Deaf())


def tasks_would_reach_nobody(driver: Driver) -> None:
    driver.join(A)
    driver.send(Strained("the broker has yet to take 3.0 MB"))


def all_pause(driver: Driver) -> None:
    for id in (A, B):
        driver.join(id, credit=0)


def the_update_is_made(driver: Driver) -> None:
    driver.join(A)
    while not of(driver.said, CloseBatch):
        (lease,) = driver.pool.sessions[A].leases.values()
        driver.finish(next(t for t in tasks(driver.said) if t.task == lease.task))


def all_failed(driver: Driver) -> None:
    for id in (A, B):
        (task,) = driver.join(id)
        driver.send(Refused(id, task.task, True, "no gymnasium"))


def one_direction_fails(driver: Driver) -> None:
    driver.join(A)
    for _ in range(200):
        for lease in list(driver.pool.sessions[A].leases.values()):
            task = next(t for t in tasks(driver.said) if t.task == lease.task)
            if 0 in range(task.first, task.first + task.count):
                driver.send(Refused(A, task.task, True, "it crashed"))
            else:
                driver.finish(task)
        driver.tick(1.0, 0.5)
        if "the run waits" in driver.pool.quiet_because():
            return


def the_disk_is_slow(driver: Driver) -> None:
    driver.measured(A, credit=8)
    driver.keeps = False
    while held := [t for t in tasks(driver.said) if t.task in driver.pool.leases]:
        driver.finish(held[0])


def newcomers_wait(driver: Driver) -> None:
    """Who is known rests, and those who came then are gone with all that newcomers may hold."""
    (task,) = driver.measured(A)
    driver.send(Refused(A, task.task, True, "it crashed"))
    for number in range(8):
        driver.join(SessionId(f"n{number}", "s"))
    for number in range(8):
        driver.send(Left(SessionId(f"n{number}", "s"), "lost"))
    driver.join(B)


def the_run_is_over(driver: Driver) -> None:
    driver.send(StopAsked("enough"))


CAUSES: dict[Callable[[Driver], None], str] = {
    nobody: "no worker is here: give the join line to somebody",
    the_broker_is_away: "no connection to the broker: nobody is heard, and no lease runs out",
    tasks_would_reach_nobody: "nothing new is leased: the broker has yet to take 3.0 MB",
    all_pause: "all 2 workers are paused or catching up, until they say otherwise: a/s, b/s",
    the_update_is_made: "the update is being made",
    all_failed: "all 2 workers are at rest after failures: a/s is the next, after 2 s, because no",
    one_direction_fails: "the run waits: direction 0 failed",
    newcomers_wait: "newcomers wait for their turn, b/s: those before them returned nothing yet",
    the_disk_is_slow: "64 results wait for the disk: see that it is not full or too slow",
    the_run_is_over: "the run has ended",
}


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.__name__)
def test_every_cause_has_its_words(cause: Callable[[Driver], None]) -> None:
    size = 65_536 if cause is the_disk_is_slow else 16
    driver = Driver(spec(size, pool={"max_staleness": 0}))
    cause(driver)
    assert driver.pool.quiet_because().startswith(CAUSES[cause])


def test_nothing_is_said_while_work_is_out_and_after_the_broker_is_back() -> None:
    driver = Driver(spec(16))
    driver.join(A)
    assert driver.pool.quiet_because() == ""
    driver.send(Deaf())
    driver.send(Hearing(driver.now), 1.0)
    assert driver.pool.quiet_because() == ""
