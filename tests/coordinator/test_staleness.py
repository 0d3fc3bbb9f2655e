from __future__ import annotations

import pytest

from coordinator.pool.events import CloseBatch, Happened, SendTask, Updated
from tests.coordinator.driver import A, Driver, of
from tests.coordinator.simulation import spec

RUN = spec(16, pool={"max_staleness": 1, "stale_share": 0.25}, optimizer={"momentum": 0.7})


def updates(driver: Driver, number: int, stale: int, seconds: float = 0.1) -> None:
    """So many updates of 8 directions, of which so many were evaluated one version early."""
    for _ in range(number):
        version = driver.pool.version
        for unit in range(stale if version else 0, 8):
            driver.finish(SendTask(A, 1, "members", version, 8 * version + unit, 1), 0.0)
        assert driver.pool.updating
        for unit in range(stale):
            task = SendTask(A, 1, "members", version, 8 * (version + 1) + unit, 1)
            driver.finish(task, 0.0)
        driver.send(Updated(version + 1), seconds)


def lines(driver: Driver) -> list[str]:
    return [h.what for h in of(driver.said, Happened) if "stale" in h.what]


def test_the_pool_says_that_it_is_too_fast_for_its_batch() -> None:
    driver = Driver(RUN)
    updates(driver, 4, stale=3)
    assert not lines(driver)
    updates(driver, 1, stale=3)  # none of the first update's were: 12 of 40 directions
    (said,) = lines(driver)
    assert said.startswith("30% of the members of the last 5 updates were stale")
    assert "larger strategy.population (now 16)" in said
    assert "lower pool.stale_share (0.25)" in said
    assert "optimizer.momentum (0.7)" in said


def test_it_says_so_once_a_minute_at_most() -> None:
    driver = Driver(RUN)
    updates(driver, 40, stale=4, seconds=1.0)
    assert len(lines(driver)) == 1
    updates(driver, 30, stale=4, seconds=1.0)
    assert len(lines(driver)) == 2


@pytest.mark.parametrize("stale", [0, 2])
def test_a_quarter_is_fine(stale: int) -> None:
    driver = Driver(RUN)
    updates(driver, 20, stale=stale)
    assert len(of(driver.said, CloseBatch)) == 20
    assert not lines(driver)


def test_what_the_host_allowed_is_not_held_against_it() -> None:
    pool = {"max_staleness": 1, "stale_share": 0.5}
    driver = Driver(spec(16, pool=pool))
    updates(driver, 20, stale=4)
    assert not lines(driver)
    driver = Driver(spec(16, pool=pool))
    updates(driver, 20, stale=5)
    assert "more than 50% costs learning" in lines(driver)[0]
