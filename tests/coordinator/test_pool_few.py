"""Few workers and small batches: newcomers are tried, liars found, and the run goes on."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from coordinator.pool import Pool
from coordinator.pool.events import Command, Event, KeepResult
from coordinator.pool.presets import PRESETS
from coordinator.trust import Trust
from scripts.simulation.liars import swapped
from tests.coordinator.simulation import Simulation, Worker, spec

CLASS = b"numeric class 01"
BOUND = 50
"""Tasks of its own within which a newcomer is established, or a liar found."""


@dataclass
class Few:
    """A pool that audits, and the workers that come to it."""

    directions: int
    preset: str
    speed: float
    lanes: int
    seed: int = 0
    workers: list[Worker] = field(default_factory=list)

    def __post_init__(self) -> None:
        run = spec(2 * self.directions, pool={**PRESETS[self.preset], "audit_share": 0.04})
        self.trust = Trust(0.04, Random(self.seed))
        self.simulation = Simulation(run, pool=Pool(run, 0, 1000.0, trust=self.trust))
        self.draw = Random(self.seed)

    def come(self, name: str, lies: bool = False) -> Worker:
        speed = self.speed * self.draw.lognormvariate(0.0, 0.4)
        worker = self.simulation.join(name, speed=speed, lanes=self.lanes, numeric=CLASS)
        if lies:
            worker.says = swapped
        self.workers.append(worker)
        return worker

    def given(self, name: str) -> int:
        """Tasks that a worker was given so far."""
        return sum(task.session.worker == name for _, task in self.simulation.record.tasks)

    def until_decided(self, name: str, most: int = BOUND) -> str:
        """Go on until a worker is not new any more, or was given more tasks than are allowed."""
        self.simulation.run(
            lambda: self.trust.standing(name) != "new" or self.given(name) > most, 900.0
        )
        return self.trust.standing(name)

    def goes_on(self, updates: int = 3) -> bool:
        """Whether so many more updates are made."""
        until = self.simulation.pool.version + updates
        return self.simulation.run(lambda: self.simulation.pool.version >= until, 900.0)


FEW = st.builds(
    Few,
    directions=st.sampled_from([1, 2, 16, 50]),
    preset=st.sampled_from(sorted(PRESETS)),
    speed=st.sampled_from([1e3, 1e5]),
    lanes=st.sampled_from([0, 64]),
    seed=st.integers(0, 100),
)


@given(few=FEW, lies=st.booleans())
@settings(max_examples=12, deadline=None)
def test_who_comes_to_an_established_pool_is_known_within_so_many_of_its_tasks(
    few: Few, lies: bool
) -> None:
    """However little a batch leaves for it."""
    for name in "abc":
        few.come(name)
    for name in "abc":
        assert few.until_decided(name) == "established"
    few.come("late", lies)
    assert few.until_decided("late") in (("quarantined", "banned") if lies else ("established",))
    assert few.goes_on()
    assert all(few.trust.is_believed(name) for name in "abc")


@given(few=FEW)
@settings(max_examples=12, deadline=None)
@example(few=Few(50, "quorum", 1e3, 64, 58))
@example(few=Few(16, "async", 1e3, 64, 21))
def test_newcomers_alone_find_the_liar_among_them(few: Few) -> None:
    """Who is honest is never taken for a liar, and established within twice the bound, even where
    batches close before what is held back of the last of three is evaluated again."""
    few.come("liar", lies=True)
    for name in "abc":
        few.come(name)
    assert few.until_decided("liar") in ("quarantined", "banned")
    for name in "abc":
        assert few.until_decided(name, 2 * BOUND) == "established"
    assert few.goes_on()


class Unbelieved:
    """Counts by batch the directions that count by the word of workers nobody believed yet."""

    def __init__(self, few: Few) -> None:
        self.directions: Counter[int] = Counter()
        self._few = few
        self._believed = self._now_believed()

    def observe(self, now: float, event: Event, commands: list[Command]) -> None:
        for command in commands:
            if isinstance(command, KeepResult) and command.arrived.kind == "members":
                arrived = command.arrived
                if arrived.session.worker not in self._believed:
                    self.directions[arrived.first // self._few.directions] += arrived.count
        self._believed = self._now_believed()

    def _now_believed(self) -> set[str]:
        return {worker for worker in self._few.trust.records if self._few.trust.is_believed(worker)}

    def died(self, durable: object) -> None:
        """Nobody does."""


@given(few=FEW, newcomers=st.integers(1, 60), lying=st.booleans(), at_once=st.booleans())
@settings(max_examples=12, deadline=None)
def test_all_newcomers_together_have_a_sixteenth_of_a_batch_however_many_they_are(
    few: Few, newcomers: int, lying: bool, at_once: bool
) -> None:
    for name in "abc":
        few.trust.record(name).standing = "established"
        worker = few.come(name)
        # Most could be done by those who come; but these must not seem to be silent.
        worker.speed = max(worker.speed / 20.0, 2000.0)
    seen = Unbelieved(few)
    few.simulation.shell.observers.append(seen)
    few.simulation.run_for(0.5)
    for number in range(newcomers):
        few.come(f"n{number}", lying and number % 2 == 0)
        few.simulation.run_for(0.0 if at_once else 0.05)
    assert few.goes_on(4)
    assert all(count <= max(1, few.directions // 16) for count in seen.directions.values())
    assert all(few.trust.is_believed(name) for name in "abc"), "a crowd that lies frames nobody"


@given(few=FEW, liars=st.integers(0, 3), silent=st.integers(0, 3))
@settings(max_examples=12, deadline=None)
def test_one_honest_worker_brings_a_run_on_whoever_else_is_there(
    few: Few, liars: int, silent: int
) -> None:
    for number in range(liars):
        few.come(f"liar{number}", lies=True)
    for number in range(silent):
        few.come(f"silent{number}").stalls = True
    few.come("honest")
    assert few.goes_on(2)


@pytest.mark.parametrize("directions", [1, 16])
def test_it_goes_on_when_all_who_were_established_fall_silent(directions: int) -> None:
    few = Few(directions, "sync", 1e4, 0)
    for name in "abc":
        few.come(name)
        few.until_decided(name)
    for worker in few.workers:
        worker.stalls = True
    few.come("late")
    assert few.goes_on(3)
