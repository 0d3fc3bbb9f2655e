"""What the pool does while nobody can be heard, or while the coordinator can't keep up."""

from __future__ import annotations

import pytest

from coordinator.pool.events import (
    Deaf,
    Event,
    Happened,
    Heard,
    Hearing,
    Paused,
    Relaxed,
    Resumed,
    Strained,
    Tick,
)
from coordinator.pool.machine import HEARD_WITHIN, SILENT_AFTER
from tests.coordinator.simulation import spec
from tests.coordinator.test_pool import A, B, Driver, of, tasks


def ticks(driver: Driver, seconds: float) -> list[str]:
    """What the host is told while time passes and nobody speaks."""
    said: list[Happened] = []
    for _ in range(round(seconds / 0.5)):
        said += of(driver.send(Tick(), 0.5), Happened)
    return [happened.what for happened in said]


def away(driver: Driver, seconds: float) -> list[str]:
    began = driver.now
    driver.send(Deaf())
    said = ticks(driver, seconds)
    driver.send(Hearing(began))
    return said


def test_nobody_is_blamed_while_nobody_can_be_heard() -> None:
    driver = Driver(spec())
    driver.measured(A)
    limit = driver.pool.sessions[A].limit
    assert away(driver, 3600.0) == []
    assert ticks(driver, HEARD_WITHIN - 1.0) == []
    assert driver.pool.leases and driver.pool.sessions[A].limit == limit


def test_who_stays_silent_after_that_is_judged_as_ever() -> None:
    driver = Driver(spec())
    driver.measured(A)
    away(driver, 100.0)
    said = ticks(driver, SILENT_AFTER + 6.0)
    assert any("ran out" in line for line in said)
    assert any("silent for" in line for line in said)


def test_a_stall_of_our_own_counts_as_being_deaf() -> None:
    driver = Driver(spec())
    driver.measured(A)
    driver.now += 600.0
    driver.send(Hearing(driver.now - 600.0))
    assert ticks(driver, HEARD_WITHIN - 1.0) == []


def test_a_lease_that_has_more_time_left_keeps_it() -> None:
    driver = Driver(spec(pool={"lease_floor": 60.0}))
    driver.measured(A)
    (lease,) = driver.pool.leases.values()
    left = lease.deadline - driver.now
    assert left > 2 * HEARD_WITHIN
    away(driver, 100.0)
    assert lease.deadline - driver.now == pytest.approx(left)


def test_an_outage_says_nothing_about_the_speed_of_who_worked_through_it() -> None:
    driver = Driver(spec())
    (task,) = driver.measured(A)
    speed = driver.pool.sessions[A].speed
    away(driver, 100.0)
    driver.finish(task)
    assert driver.pool.sessions[A].speed == speed


@pytest.mark.parametrize(
    ("held", "released"),
    [
        (Deaf(), Hearing(0.0)),
        (Strained("the broker is slow"), Relaxed()),
        (Paused("the host paused it"), Resumed()),
    ],
)
def test_nothing_is_leased_meanwhile_and_all_goes_on_afterwards(
    held: Event, released: Event
) -> None:
    driver = Driver(spec(4096))
    (task,) = driver.measured(A)
    driver.send(held)
    assert driver.join(B) == []
    assert tasks(driver.finish(task)) == []
    assert tasks(driver.send(Heard(A, 2)) + driver.send(Tick(), 0.1)) == []
    leased = tasks(driver.send(released) + driver.send(Tick(), 0.1))
    assert {task.session for task in leased} == {A, B}


def test_the_host_is_told_why_nothing_is_leased() -> None:
    driver = Driver(spec())
    driver.join(A)
    driver.send(Strained("the broker has 3.0 MB to take"))
    assert driver.pool.quiet_because() == "nothing new is leased: the broker has 3.0 MB to take"
    driver.send(Relaxed())
    assert driver.pool.quiet_because() == ""


def test_what_the_host_paused_goes_on_by_its_word_alone() -> None:
    driver = Driver(spec())
    driver.join(A)
    driver.send(Strained("the broker has 3.0 MB to take"))
    driver.send(Paused("the host paused it"))
    driver.send(Relaxed())
    assert driver.pool.paused
    assert driver.pool.quiet_because() == "nothing new is leased: the host paused it"
    driver.send(Resumed())
    assert not driver.pool.paused and driver.pool.quiet_because() == ""
