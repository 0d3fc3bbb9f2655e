"""A whole simulation: a pool with a population for so many updates, its baselines, its report."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from coordinator.pool.events import CloseBatch, Command, Event
from coordinator.pool.presets import PRESETS
from protocol import spec as run_spec
from protocol.errors import ShoalError
from protocol.spec import RunSpec
from scripts.simulation.baselines import declared, equal, wait_for_all
from scripts.simulation.crowd import populate
from scripts.simulation.environments import Environment, Formula, spec
from scripts.simulation.ledger import Ledger
from scripts.simulation.meter import Meter, Reading
from scripts.simulation.population import Population
from scripts.simulation.report import Report, report
from scripts.simulation.shell import Name, Timing
from scripts.simulation.wire import Wire
from scripts.simulation.world import World

LARGEST_POPULATION = 131_072


@dataclass(frozen=True)
class Scenario:
    """What is simulated."""

    population: Population = field(default_factory=Population)
    preset: str = "quorum"
    settings: Mapping[str, Any] = field(default_factory=dict)
    """of the run spec, over those of the preset"""
    directions_per_worker: int = 50
    environment: Environment = field(default_factory=lambda: Formula(mean=1000, spread=500))
    timing: Timing = field(default_factory=lambda: Timing(tick=0.05, update=0.05))
    warm_up: int = 5
    """updates before anything is measured"""
    updates: int = 15
    """that are measured"""
    seconds: float = 3600.0
    """of virtual time at most"""
    seed: int = 1

    def run_spec(self) -> RunSpec:
        """Of the run that is simulated. Raises `ShoalError`."""
        members = 2 * self.population.size * self.directions_per_worker
        if members > LARGEST_POPULATION:
            most = LARGEST_POPULATION // (2 * self.population.size)
            raise ShoalError(
                f"{self.population.size:,} workers with {self.directions_per_worker} directions "
                f"each make {members:,} members, and {LARGEST_POPULATION:,} are the most: "
                f"use --directions-per-worker {max(1, most)}"
            )
        raw = {"pool": dict(PRESETS[self.preset]), "seed": self.seed}
        return spec(members, **run_spec.merge(raw, self.settings))


class Stage:
    """A scenario that can be run: the world, and who looks at it."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.run_spec = scenario.run_spec()
        self.world = World(self.run_spec, scenario.environment, scenario.timing, seed=scenario.seed)
        shell = self.world.shell
        self.ledger = Ledger(self.run_spec, lambda: shell.pool.leases)
        self.wire = Wire(self.run_spec)
        self.gauge = Gauge(self.world.meter)
        shell.observers += [self.ledger, self.wire, self.gauge]
        populate(self.world, scenario.population, scenario.seed)

    def run(self) -> None:
        """Until so many updates are made. Raises `ShoalError` where the time is too short."""
        scenario = self.scenario
        wanted = scenario.warm_up + scenario.updates
        agenda = self.world.agenda
        agenda.run(lambda: len(self.ledger.closed) >= wanted, scenario.seconds)
        self.ledger.conclude(agenda.now)
        made = len(self.ledger.closed)
        if made <= scenario.warm_up:
            raise ShoalError(
                f"{made} updates in {scenario.seconds:g} simulated seconds, and the first "
                f"{scenario.warm_up} are not measured: use --seconds {2 * scenario.seconds:g}, or "
                "smaller batches"
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


def simulate(scenario: Scenario) -> Report:
    """Run a scenario and what simpler schedulers would make of the same workers."""
    stage = Stage(scenario)
    stage.run()
    waiting, static = (
        wait_for_all(
            scenario.population,
            scenario.seed,
            scenario.environment,
            stage.run_spec.directions,
            split,
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
