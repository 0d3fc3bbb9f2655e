"""A whole simulation: a pool with a population for so many updates, its baselines, its report."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from coordinator.pool.events import CloseBatch, Command, Event
from coordinator.pool.presets import PRESETS
from protocol import spec as run_spec
from protocol.errors import ShoalError
from protocol.spec import MAX_POPULATION, RunSpec
from scripts.simulation.baselines import declared, equal, wait_for_all
from scripts.simulation.crowd import populate
from scripts.simulation.environments import Environment, Formula, spec
from scripts.simulation.ledger import Ledger
from scripts.simulation.meter import Meter, Reading
from scripts.simulation.population import Population, lives
from scripts.simulation.report import Report, report
from scripts.simulation.shell import Name, Timing
from scripts.simulation.wire import Wire
from scripts.simulation.world import World

DIRECTIONS_PER_WORKER = 50
"""In each batch, where nobody says how many and as many fit the largest population."""


def directions_that_fit(workers: int) -> int:
    """For each worker in a batch, `DIRECTIONS_PER_WORKER` at most. Raises `ShoalError`."""
    most = MAX_POPULATION // (2 * workers)
    if not most:
        raise ShoalError(
            f"{workers:,} workers make {2 * workers:,} members with one direction each, and "
            f"{MAX_POPULATION:,} are the most: use fewer workers"
        )
    return min(DIRECTIONS_PER_WORKER, most)


@dataclass(frozen=True)
class Scenario:
    """What is simulated."""

    population: Population = field(default_factory=Population)
    preset: str = "quorum"
    settings: Mapping[str, Any] = field(default_factory=dict)
    """of the run spec, over those of the preset"""
    directions_per_worker: int = DIRECTIONS_PER_WORKER
    """in each batch"""
    environment: Environment = field(default_factory=lambda: Formula(mean=1000, spread=500))
    timing: Timing = field(default_factory=lambda: Timing(tick=0.05, update=0.05))
    warm_up: int = 5
    """updates before anything is measured"""
    updates: int = 15
    """that are measured"""
    seconds: float = 3600.0
    """of virtual time at most"""
    restart_every: float = 0.0
    """seconds after which the coordinator dies, again and again, to come back a second later;
    0: never"""
    seed: int = 1

    def run_spec(self) -> RunSpec:
        """Of the run that is simulated. Raises `ShoalError`."""
        workers, each = self.population.size, self.directions_per_worker
        members = 2 * workers * each
        if members > MAX_POPULATION:
            most = directions_that_fit(workers)
            raise ShoalError(
                f"{workers:,} workers with {each:,} directions each make {members:,} members, and "
                f"{MAX_POPULATION:,} are the most: use --directions-per-worker {most}"
            )
        pool = {"pool": dict(PRESETS[self.preset]), "seed": self.seed}
        return spec(members, **run_spec.merge(pool, self.settings))


class Gauge:
    """Reads the meter whenever a batch closes."""

    def __init__(self, meter: Meter) -> None:
        self.readings: list[Reading] = []
        self._meter = meter

    def observe(self, now: float, event: Event, commands: list[Command]) -> None:
        """The pool was told of this event, and this is what it wants done."""
        if any(isinstance(command, CloseBatch) for command in commands):
            self.readings.append(self._meter.read(now))

    def died(self, durable: set[Name]) -> None:
        """The workers go on."""


class Stage:
    """A scenario that can be run: the world, and who looks at it."""

    def __init__(
        self, scenario: Scenario, learn: Callable[[CloseBatch], float] | None = None
    ) -> None:
        """`learn`: as `World` has it. Raises `ShoalError`."""
        self.scenario = scenario
        self.run_spec = scenario.run_spec()
        self.world = World(
            self.run_spec, scenario.environment, scenario.timing, learn, seed=scenario.seed
        )
        self.ledger = Ledger(self.run_spec, lambda: self.world.shell.pool.leases)
        self.wire = Wire(self.run_spec)
        self.gauge = Gauge(self.world.meter)
        self.world.shell.observers += [self.ledger, self.wire, self.gauge]
        populate(self.world, scenario.population, scenario.seed)
        if scenario.restart_every:
            self.world.agenda.after(scenario.restart_every, self._restart)

    def run(self) -> None:
        """Until so many updates are made, or the run has ended.

        Raises `ShoalError` where there was nothing to measure.
        """
        scenario, shell = self.scenario, self.world.shell
        wanted = scenario.warm_up + scenario.updates
        self.world.agenda.run(
            lambda: len(self.ledger.closed) >= wanted or shell.ended is not None, scenario.seconds
        )
        self.ledger.conclude(self.world.agenda.now)
        made = len(self.ledger.closed)
        if made <= scenario.warm_up:
            raise ShoalError(
                f"{made} updates in {self.world.agenda.now:g} simulated seconds, and the first "
                f"{scenario.warm_up} are not measured: allow more --seconds or use fewer "
                "--directions-per-worker"
            )

    def report(self) -> Report:
        """Of what was run."""
        return report(
            self.world.shell,
            self.ledger,
            self.wire,
            self.gauge.readings,
            self.scenario.environment,
            self.scenario.warm_up,
            len(self.world.workers),
        )

    def _restart(self) -> None:
        self.world.kill_coordinator(downtime=1.0)
        self.world.agenda.after(self.scenario.restart_every, self._restart)


def compare(stage: Stage) -> Report:
    """The report of a scenario that was run, with what simpler schedulers would make of it."""
    scenario = stage.scenario
    waiting, static = (
        wait_for_all(
            lives(scenario.population, scenario.seed),
            scenario.environment,
            stage.run_spec.directions,
            split,
            start=scenario.population.startup,
            between=scenario.timing.update,
        )
        for split in (equal, declared)
    )
    return dataclasses.replace(
        stage.report(),
        wait_for_all_efficiency=waiting.efficiency,
        static_split_efficiency=static.efficiency,
        wait_for_all_update_seconds=waiting.seconds,
        static_split_update_seconds=static.seconds,
    )
