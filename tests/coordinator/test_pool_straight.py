"""The straight way of a usual result and the general one decide the same, event by event."""

from __future__ import annotations

from collections import Counter

import pytest

from coordinator.pool import Pool
from coordinator.pool.events import Command, Event, KeepResult
from coordinator.pool.presets import PRESETS
from coordinator.pool.work import Claim
from scripts.simulation.crowd import populate
from scripts.simulation.environments import Formula, spec
from scripts.simulation.population import Population
from scripts.simulation.shell import Name
from scripts.simulation.world import World
from tests.coordinator.test_pool_invariants import shown

POPULATION = Population(
    workers=24, startup=1.0, leaving=1.0, vanishing=0.5, stalling=0.5, late=0.05, twice=0.05
)
EVENTS = 1500


class Twin:
    """A pool that is told the same, and takes each result the general way."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pool = Pool(world.run_spec, 0, world.agenda.now)
        self.events: Counter[str] = Counter()
        self.straight = 0
        self._monkeypatch = monkeypatch

    def observe(self, now: float, event: Event, commands: list[Command]) -> None:
        with self._monkeypatch.context() as patch:
            patch.setattr(Claim, "is_exactly", self._never)
            again = self.pool.handle(event, now)
        assert list(map(shown, commands)) == list(map(shown, again))
        self.events["all"] += 1
        self.events["accepted"] += any(isinstance(command, KeepResult) for command in commands)

    def died(self, durable: set[Name]) -> None:
        """No coordinator dies here."""

    def _never(self, first: int, count: int) -> bool:
        self.straight += 1
        return False


@pytest.mark.parametrize("preset", PRESETS)
def test_a_usual_result_counts_as_it_would_the_general_way(
    preset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = spec(24 * 16, pool={**PRESETS[preset]}, centre={"evaluate_every": 2})
    world = World(run, Formula(100, 50, failing=frozenset(range(0, 4000, 37))), seed=3)
    twin = Twin(world, monkeypatch)
    world.shell.observers.append(twin)
    populate(world, POPULATION, 3)
    assert world.agenda.run(lambda: twin.events["all"] >= EVENTS, 600.0)
    assert twin.straight > twin.events["accepted"] / 4, "too few results that are usual"
