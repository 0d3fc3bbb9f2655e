"""Simulated workers do what they are said to do, and nothing is lost however they behave."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from coordinator.pool.events import (
    Arrived,
    Command,
    Event,
    Heard,
    Joined,
    Left,
    SendTask,
    SessionId,
)
from coordinator.pool.presets import PRESETS
from scripts.simulation.agenda import Agenda
from scripts.simulation.environments import BLOCK, Formula, spec
from scripts.simulation.meter import Meter
from scripts.simulation.population import Group, Population, lives
from scripts.simulation.scenario import Scenario, Stage, compare
from scripts.simulation.shell import Name, Timing
from scripts.simulation.worker import Traits, Worker
from scripts.simulation.world import World

A = SessionId("a", "s")
CONSTANT = Formula(mean=100, lengths="constant")
"""a direction takes 200 steps"""


class Bench:
    """One worker alone, and what it says to the coordinator and when."""

    def __init__(self, **traits: object) -> None:
        self.agenda = Agenda()
        self.meter = Meter(0.0)
        self.said: list[tuple[float, Event]] = []
        self.worker = Worker(
            A,
            Traits(speed=100.0, latency=0.0, **traits),  # type: ignore[arg-type]
            self.agenda,
            CONSTANT,
            self.meter,
            lambda event: self.said.append((self.agenda.now, event)),
            seed=1,
        )
        self.worker.hello()

    def task(self, count: int, number: int = 1) -> None:
        self.worker.take(SendTask(A, number, "members", 0, 0, count))

    def go_on(self, seconds: float) -> None:
        self.agenda.run(lambda: False, seconds)

    def results(self) -> list[tuple[float, int, int]]:
        """(when, first, count)"""
        return [(when, e.first, e.count) for when, e in self.said if isinstance(e, Arrived)]


def test_a_worker_takes_its_tasks_one_after_the_other() -> None:
    bench = Bench()
    bench.task(2, number=1)
    bench.task(1, number=2)
    bench.go_on(6.5)
    assert bench.results() == [(4.0, 0, 2), (6.0, 0, 1)]
    assert bench.meter.read(6.5) == pytest.approx((650.0, 600.0))


def test_a_change_of_pace_takes_effect_in_the_middle_of_a_task() -> None:
    bench = Bench()
    bench.task(3)
    bench.go_on(1.0)
    bench.worker.change_pace(0.0)
    bench.go_on(10.0)
    bench.worker.change_pace(10.0)
    bench.go_on(1.0)
    assert bench.results() == [(11.5, 0, 3)]
    assert bench.meter.read(12.0) == pytest.approx((100.0 + 1000.0, 600.0))


def test_of_a_long_task_what_is_finished_is_sent_every_few_seconds() -> None:
    bench = Bench(part_seconds=5.0)
    bench.task(6)
    bench.go_on(13.0)
    assert bench.results() == [(5.0, 0, 2), (10.0, 2, 3), (12.0, 5, 1)]
    parts = [e.part for _, e in bench.said if isinstance(e, Arrived)]
    assert [(p.before, p.after) for p in parts if p is not None] == [(0, 4), (2, 1), (5, 0)]


def test_who_leaves_hands_in_what_is_finished() -> None:
    bench = Bench(part_seconds=5.0)
    bench.task(6)
    bench.go_on(2.5)
    assert bench.worker.leave() == Left(A, "left")
    bench.go_on(20.0)
    assert bench.results() == [(2.5, 0, 1)]


def test_who_vanishes_says_nothing_any_more() -> None:
    bench = Bench()
    bench.task(1)
    bench.go_on(1.0)
    bench.worker.vanish()
    bench.go_on(100.0)
    assert bench.said == []
    assert bench.meter.read(101.0) == pytest.approx((100.0, 100.0))


def test_a_result_is_sent_again_every_ten_seconds_until_it_is_answered() -> None:
    bench = Bench()
    bench.task(1)
    bench.go_on(25.0)
    assert [when for when, *_ in bench.results()] == [2.0, 12.0, 22.0]
    bench.worker.answered([1])
    bench.go_on(50.0)
    assert len(bench.results()) == 3


def test_an_idle_worker_says_every_ten_seconds_that_it_lives() -> None:
    bench = Bench()
    bench.go_on(100.0)
    heard = [when for when, event in bench.said if isinstance(event, Heard)]
    assert 8 <= len(heard) <= 11
    assert len({round(when % 1.0, 3) for when in heard}) > 5, "no jitter"


def test_episodes_are_the_same_however_they_are_cut() -> None:
    formula = Formula(mean=300, spread=100, failing=frozenset({BLOCK}))
    returns, lengths = formula.play("members", 3, BLOCK - 2, 5)
    for row in range(5):
        one, steps = Formula(mean=300, spread=100).play("members", 3, BLOCK - 2 + row, 1)
        assert np.array_equal(lengths[row], steps[0])
        assert np.all(np.isnan(returns[row])) if row == 2 else np.array_equal(returns[row], one[0])


@pytest.mark.parametrize("lengths", ["constant", "uniform", "geometric", "heavy"])
def test_episodes_have_the_mean_length_they_should(lengths: str) -> None:
    formula = Formula(mean=200, spread=100, lengths=lengths, returns="short")  # type: ignore[arg-type]
    returns, steps = formula.play("members", 1, 0, 20_000)
    assert steps.mean() == pytest.approx(200, rel=0.05)
    assert np.array_equal(returns, 1.0 - steps)


def test_the_same_places_are_taken_by_the_same_workers() -> None:
    population = Population(workers=5, flapping=0.5, stalling=1.0, changing=1.0)

    def drawn(seed: int) -> list[object]:
        return [next(sessions) for sessions in lives(population, seed) for _ in range(4)]

    assert drawn(1) == drawn(1) != drawn(2)
    for sessions in lives(population, 1):
        before = next(sessions)
        for _ in range(3):
            after = next(sessions)
            assert after.arrives == before.leaves
            before = after


# Whole runs.

ROUGH = Population(
    workers=60,
    leaving=2.0,
    vanishing=1.0,
    stalling=1.0,
    stall_seconds=5.0,
    changing=2.0,
    late=0.05,
    twice=0.05,
    liars=0.1,
    hoarders=0.05,
    flapping=0.1,
    reorders=True,
)
"""Everybody stays 20 s on average; three in four leave in the middle of a task."""


def rough(preset: str, **changes: object) -> Scenario:
    scenario = Scenario(
        population=ROUGH,
        preset=preset,
        directions_per_worker=10,
        settings={"pool": {"task_seconds": 1.0}},
        warm_up=2,
        updates=8,
        seconds=600.0,
    )
    return dataclasses.replace(scenario, **changes)


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_nothing_counts_twice_and_nothing_is_lost_whatever_workers_do(preset: str) -> None:
    stage = Stage(rough(preset))
    stage.run()
    found = stage.report()
    assert (found.applied_twice, found.lost) == (0, 0)
    assert found.updates == 8
    assert found.messages["bye"] > 20
    assert found.duplicate_share > 0.0
    assert found.leased_again_share > 0.0


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_nothing_is_lost_with_a_coordinator_that_dies_again_and_again(preset: str) -> None:
    stage = Stage(rough(preset, restart_every=4.0))
    stage.run()
    found = stage.report()
    assert (found.applied_twice, found.lost) == (0, 0)
    assert stage.world.shell.epoch > 2


def test_nothing_is_lost_with_a_coordinator_slower_than_its_results() -> None:
    stage = Stage(rough("quorum", timing=Timing(tick=0.05, update=0.05, service=0.01), updates=2))
    most = 0

    class Watch:
        def observe(self, now: float, event: Event, commands: list[Command]) -> None:
            nonlocal most
            most = max(most, stage.world.shell.backlog)

        def died(self, durable: set[Name]) -> None: ...

    stage.world.shell.observers.append(Watch())
    stage.run()
    found = stage.report()
    assert (found.applied_twice, found.lost) == (0, 0)
    assert most > 20


def test_a_failing_direction_is_dropped_and_not_lost() -> None:
    stage = Stage(rough("sync", environment=Formula(mean=1000, failing=frozenset({3, 1300}))))
    dropped: list[int] = []
    stage.world.shell.observers.append(_Dropped(dropped))
    stage.run()
    assert dropped == [3, 1300]
    assert (stage.ledger.applied_twice, stage.ledger.lost) == (0, 0)


class _Dropped:
    def __init__(self, dropped: list[int]) -> None:
        self._dropped = dropped

    def observe(self, now: float, event: Event, commands: list[Command]) -> None:
        self._dropped += [d for command in commands for d in getattr(command, "dropped", ())]

    def died(self, durable: set[Name]) -> None: ...


def figures(scenario: Scenario) -> dict[str, object]:
    """Of a run, rounded, but for the time that the pool really took."""
    stage = Stage(scenario)
    stage.run()
    found = dataclasses.asdict(stage.report())
    return {
        name: round(value, 9) if isinstance(value, float) else value
        for name, value in found.items()
        if name not in ("events_per_second", "slowest_event_seconds")
    }


def test_the_same_seed_gives_the_same_figures_and_clocks_do_not_matter() -> None:
    once = figures(rough("async", updates=2))
    assert once == figures(rough("async", updates=2))
    assert once != figures(rough("async", updates=2, seed=2))
    wrong = dataclasses.replace(ROUGH, clock=4096.0)
    assert once == figures(rough("async", updates=2, population=wrong))


@pytest.mark.parametrize("returns", ["long", "short"])
@pytest.mark.parametrize("preset", ["quorum", "async"])
def test_short_episodes_count_no_more_than_long_ones_among_equal_workers(
    preset: str, returns: str
) -> None:
    equal = Population(groups=(Group(20, 10_000.0),), leaving=0.0, vanishing=0.0)
    episodes = Formula(mean=1000, lengths="geometric", returns=returns)  # type: ignore[arg-type]
    stage = Stage(Scenario(population=equal, preset=preset, environment=episodes, updates=8))
    stage.run()
    found = stage.report()
    assert abs(found.length_weight_correlation) <= 0.05
    assert found.efficiency > 0.5


def test_a_learner_says_how_long_its_update_takes() -> None:
    closed = []

    def learn(command: object) -> float:
        closed.append(command)
        return 2.0

    world = World(spec(16), CONSTANT, learn=learn)
    world.enter(A, Traits(speed=1e6))
    world.agenda.run(lambda: len(closed) == 2, 60.0)
    assert world.shell.pool.version == 1
    assert world.agenda.now > 2.0


def test_the_baselines_come_with_the_report() -> None:
    stage = Stage(Scenario(population=Population(workers=10, vanishing=0.0), updates=3, warm_up=1))
    stage.run()
    found = compare(stage)
    assert found.wait_for_all_efficiency is not None
    assert found.static_split_efficiency is not None
    assert 0.0 < found.wait_for_all_efficiency < found.efficiency
    assert found.static_split_efficiency < found.efficiency


def test_hellos_name_the_leases_that_are_held() -> None:
    bench = Bench()
    bench.task(5, number=7)
    bench.go_on(1.0)
    said = bench.worker.hello()
    assert isinstance(said, Joined)
    assert [(lease.task, lease.count) for lease in said.held] == [(7, 5)]
    assert math.isinf(bench.worker.traits.part_seconds)
