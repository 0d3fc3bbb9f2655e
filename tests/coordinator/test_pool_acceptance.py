"""A pool judges candidates before it leases members around them, and has failed ones reverted."""

from __future__ import annotations

import pytest

from coordinator.pool import Pool
from coordinator.pool.acceptance import Evidence, Standing
from coordinator.pool.events import (
    CentreJudged,
    CloseBatch,
    Command,
    EndRun,
    SendTask,
    StopAsked,
    Updated,
)
from tests.coordinator.driver import CENTRE, A, B, Driver, finish_all, of, tasks
from tests.coordinator.simulation import Environment, Simulation, spec

CLIMBING = {"kind": "hill-climbing"}
SGD = {"kind": "sgd", "learning_rate": 1.0, "momentum": 0.0}
LEVELS = [0.0, 10.0, 5.0, 10.0, 20.0, 15.0, 20.0, 12.0, 20.0, 30.0]
"""Of the versions: 1, 4 and 9 are better than what they came from, 2, 5 and 7 are not; 3, 6 and 8
are what is accepted once more."""
REVERTED = [2, 5, 7]


def climbing(**sections: object):
    return spec(16, strategy=CLIMBING, optimizer=SGD, centre=CENTRE, **sections)


def level(version: int) -> float:
    return LEVELS[version]


def closings(commands: list[Command]) -> list[tuple[int, bool]]:
    return [(closed.version, closed.reverts) for closed in of(commands, CloseBatch)]


def climb(speeds: list[float], updates: int = 9) -> Simulation:
    simulation = Simulation(climbing(stop={"updates": updates}), Environment(level=level))
    for number, speed in enumerate(speeds):
        simulation.join(f"worker{number}", speed=speed)
    assert simulation.run(lambda: simulation.record.ended is not None, 4000.0)
    return simulation


@pytest.mark.parametrize("speeds", [[1e4], [1e4, 1e2], [1e5] * 5])
def test_every_pool_keeps_the_better_candidates_and_reverts_the_others(speeds: list[float]) -> None:
    record = climb(speeds).record
    assert [c.version for _, c in record.closed if c.reverts] == REVERTED
    for _, closed in record.closed:
        assert bool(closed.contributions) is not closed.reverts
    assert record.ended is not None and record.ended.version == 9
    assert [judged.version for judged in record.judged] == list(range(10))


def test_no_member_is_leased_before_the_verdict() -> None:
    driver = Driver(climbing())
    driver.join(A, credit=2)
    driver.join(B, credit=2)
    environment = Environment(level=level)
    leased: dict[int, list[str]] = {}
    verdicts: set[int] = set()
    for _ in range(400):
        if driver.pool.version == 8:
            break
        if driver.pool.updating:
            said = driver.send(Updated(driver.pool.version + 1))
        else:
            held = [t for t in tasks(driver.said) if t.task in driver.pool.leases]
            if held:
                said = driver.finish(held[0], after=0.05, environment=environment)
            else:
                said = driver.tick(0.1)
        # A verdict comes before what is leased because of it.
        verdicts |= {judged.version for judged in of(said, CentreJudged)}
        for task in of(said, SendTask):
            leased.setdefault(task.version, []).append(task.kind)
            if task.kind == "members" and task.version not in (0, 3, 6, 8):
                assert task.version in verdicts
    for version in REVERTED:
        assert set(leased[version]) == {"centre"}
    for version in (1, 4):
        assert leased[version][0] == "centre" and "members" in leased[version]


def test_a_run_that_stops_at_a_candidate_returns_what_is_accepted() -> None:
    stopped = Driver(climbing())
    stopped.join(A)
    while stopped.pool.version < 1:
        finish_all(stopped, 1)
    (end,) = of(stopped.send(StopAsked("enough")), EndRun)
    assert end.version == 0


def test_a_last_candidate_that_fails_is_reverted_and_the_accepted_one_judged_in_full() -> None:
    record = climb([1e4], updates=2).record
    assert [(c.version, c.reverts) for _, c in record.closed][-1] == (2, True)
    assert record.ended is not None
    assert (record.ended.version, record.ended.reason) == (3, "2 updates are made")
    last = record.judged[-1]
    assert (last.version, last.full, last.episodes) == (3, True, 20)


@pytest.mark.parametrize(
    ("standing", "reverts"),
    [
        (Standing(True, Evidence(5, 1.0), Evidence(5, 0.5)), True),
        (Standing(True, Evidence(5, 1.0), Evidence(5, 2.0)), False),
        (Standing(False, Evidence(5, 1.0)), False),
    ],
)
def test_a_pool_that_goes_on_from_a_verdict_obeys_it(standing: Standing, reverts: bool) -> None:
    driver = Driver(climbing())
    driver.pool = Pool(climbing(), 3, driver.now, unjudged=(), standing=standing)
    said = driver.join(A)
    assert closings(driver.said) == ([(3, True)] if reverts else [])
    assert [task.kind for task in said] == ([] if reverts else ["members"])


def test_a_pool_that_goes_on_without_a_verdict_asks_for_the_centre_again() -> None:
    driver = Driver(climbing())
    standing = Standing(True, Evidence(5, 1.0))
    driver.pool = Pool(climbing(), 3, driver.now, unjudged=(3,), standing=standing)
    (task,) = driver.join(A)
    assert (task.kind, task.version) == ("centre", 3) and not of(driver.said, CloseBatch)
    said = driver.finish(task, environment=Environment(level=lambda version: -9.0))
    while not closings(said):
        (task,) = tasks(said)
        said = driver.finish(task, environment=Environment(level=lambda version: -9.0))
    assert closings(said) == [(3, True)]


def test_a_candidate_whose_episodes_fail_is_reverted() -> None:
    driver = Driver(climbing())
    driver.join(A)
    while driver.pool.version < 1:
        finish_all(driver, 1)
    while not closings(driver.said) or closings(driver.said)[-1][0] == 0:
        held = [t for t in tasks(driver.said) if t.task in driver.pool.leases]
        if not held:
            driver.tick(0.1)
            continue
        task = held[0]
        raised = {task.first: "it raised"} if task.kind == "centre" and task.version == 1 else {}
        driver.finish(task, after=0.05, failed=raised)
    assert closings(driver.said)[-1] == (1, True)
    judged = [judged.version for judged in of(driver.said, CentreJudged)]
    assert 1 not in judged


def test_where_no_strategy_needs_it_members_are_leased_before_the_centre() -> None:
    driver = Driver(spec(16, centre=CENTRE))
    driver.join(A)
    finish_all(driver, 1)
    version = driver.pool.version
    said = [task for task in tasks(driver.said) if task.version == version]
    assert version == 1 and said[0].kind == "members"
    assert not any(closed.reverts for closed in of(driver.said, CloseBatch))
