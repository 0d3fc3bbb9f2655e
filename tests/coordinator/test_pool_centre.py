"""Evaluations of the centre, and how a run ends with them."""

from __future__ import annotations

import numpy as np
import pytest

from coordinator.pool import Pool
from coordinator.pool.confidence import lowest
from coordinator.pool.events import (
    CentreJudged,
    CloseBatch,
    Command,
    EndRun,
    Happened,
    Left,
    Refused,
    SendTask,
    SessionId,
    StopAsked,
    Tick,
    Updated,
)
from tests.coordinator.driver import CENTRE, A, B, Driver, finish_all, of, tasks
from tests.coordinator.simulation import Environment, Simulation, spec


def judged(speeds: list[float], seed: int, **stop: float) -> tuple[list[CentreJudged], EndRun]:
    """All verdicts of a run that reaches its target, in a pool with these workers."""
    levels = np.random.default_rng(seed).normal(np.arange(60) / 3.0, 2.0)
    run = spec(16, centre=CENTRE, stop={"target": 15.0, **stop})
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


@pytest.mark.parametrize(
    ("stop", "reason"),
    [
        ({"updates": 3}, "3 updates are made"),
        ({"episodes": 40}, "48 episodes are used"),
        ({"steps": 3000}, "4,441 steps are used"),
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


def test_a_target_that_only_the_mean_reaches_does_not_end_a_run_that_asks_for_confidence() -> None:
    found, by_mean = judged([1e4], 0)
    target = found[-1].mean  # reached to the last bit
    again, ended = judged([1e4], 0, target=target)
    assert ended.version == by_mean.version
    assert again[-1].deviation > 0.0
    surer, late = judged([1e4], 0, target=target, confidence=0.95)
    assert late.reached and late.version > ended.version
    sure = [lowest(j.mean, j.deviation, j.episodes, 0.95) for j in surer]
    assert [j.reached for j in surer] == [s >= target for s in sure]


@pytest.mark.parametrize(("every", "judgements"), [(0, 0), (1, 1)])
def test_a_run_that_is_over_at_its_start_says_so(every: int, judgements: int) -> None:
    driver = Driver(spec(16, centre={**CENTRE, "evaluate_every": every}, stop={"updates": 0}))
    driver.join(A)
    finish_all(driver)
    assert len(of(driver.said, EndRun)) == 1
    assert len(of(driver.said, CentreJudged)) == judgements
    assert not of(driver.said, CloseBatch)


def test_steps_of_updates_before_count_where_a_run_goes_on() -> None:
    run = spec(16, centre={**CENTRE, "evaluate_every": 0}, stop={"steps": 500})
    for steps, over in ((499, False), (500, True)):
        assert Pool(run, 3, 0.0, steps=steps).ended == over


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
