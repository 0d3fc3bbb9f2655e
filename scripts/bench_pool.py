"""Measures what an event costs the pool, at 100, 1,000 and 10,000 workers in virtual time.

    python scripts/bench_pool.py [--events 20000]

Workers differ in speed (log-normal, sigma 1), a fifth of them leaves each minute, a twentieth
vanishes, and as many join. Each size has as many directions for each worker and as many results
between two ticks, and what is measured are whole batches, from one update to another: so the
events are of the same kinds. Each size has a process of its own, as a coordinator has; they take
turns, so that another load on the machine meets them all. Only this thread's time inside the pool
counts, less what it takes to read its clock. Prints for each size events a second on this core,
microseconds an event, the slowest event, and the share of each kind of event; at the end what an
event costs beside one with 100 workers.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import statistics
import sys
import time
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from coordinator.memory import spare_the_collector
from coordinator.pool.events import Command, Event, Updated
from coordinator.pool.presets import PRESETS
from protocol.spec import MAX_POPULATION
from scripts.simulation.crowd import populate
from scripts.simulation.environments import Formula, spec
from scripts.simulation.population import Population
from scripts.simulation.shell import Name, Timing
from scripts.simulation.world import World

SIZES = (100, 1_000, 10_000)
DIRECTIONS_PER_WORKER = MAX_POPULATION // 2 // SIZES[-1]
"""of a batch, at each size: as many as the largest may have"""
BATCH_SECONDS = 4.0
"""of virtual time, as long as nothing is lost"""
EPISODE_STEPS = 100
TICK, KEEP = 50.0, 100.0
"""Seconds of one worker from tick to tick, and from one group of kept results to the next: so many
results lie between them at any size. With 1,000 workers these are the coordinator's own."""
PART_EVENTS = 500
"""over which the cost of an event is looked at"""


def world(workers: int, preset: str, seed: int) -> World:
    """So many workers around a pool."""
    directions = DIRECTIONS_PER_WORKER * workers
    mean_speed = 2 * DIRECTIONS_PER_WORKER * EPISODE_STEPS / BATCH_SECONDS
    population = Population(workers=workers, speed=mean_speed / math.exp(0.5), startup=5.0)
    pool = {**PRESETS[preset], "minimum_task_seconds": 0.5}
    run = spec(2 * directions, pool=pool, centre={"evaluate_every": 1}, stop={"target": 1e9})
    timing = Timing(tick=TICK / workers, update=0.05, keep=KEEP / workers)
    made = World(run, Formula(EPISODE_STEPS, EPISODE_STEPS // 2), timing, seed=seed)
    populate(made, population, seed)
    return made


class Measured:
    """A world, and what its pool's events cost from the first update to a later one."""

    def __init__(self, workers: int, preset: str, seed: int, events: int) -> None:
        """Run until the first update: then all workers have come, and have returned a task.

        `events`: at least so many are to be measured.
        """
        self.workers = workers
        self.kinds: Counter[str] = Counter()
        self.parts: list[float] = []
        """seconds of an event, over each PART_EVENTS"""
        self.complete = False
        self._events = events
        self._clock = clock_seconds()
        self._world = world(workers, preset, seed)
        self.shell = self._world.shell
        self._world.agenda.run(lambda: self.shell.pool.version > 0, math.inf)
        self.shell.spent = self.shell.slowest = 0.0
        self.shell.events = 0
        self.shell.observers.append(self)

    def go_on(self) -> None:
        """Measure one more part, or what is left until the update that ends it."""
        before, spent = self.shell.events, self.shell.spent
        end = before + PART_EVENTS
        self._world.agenda.run(lambda: self.complete or self.shell.events >= end, math.inf)
        if not self.complete:
            self.parts.append(
                (self.shell.spent - spent) / (self.shell.events - before) - self._clock
            )

    def observe(self, now: float, event: Event, commands: list[Command]) -> None:
        """The pool was told of this event."""
        self.kinds[type(event).__name__] += 1
        self.complete = isinstance(event, Updated) and self.shell.events >= self._events

    def died(self, durable: set[Name]) -> None:
        """No coordinator dies here."""

    def __str__(self) -> str:
        shell, events = self.shell, self.shell.events
        spent = shell.spent - events * self._clock
        kinds = ", ".join(f"{kind} {n / events:.1%}" for kind, n in self.kinds.most_common())
        return (
            f"{self.workers:6,} workers: {events / spent:7,.0f} events/s "
            f"({1e6 * spent / events:.1f} us an event, median of parts "
            f"{1e6 * self.median:.1f}, slowest event {1e3 * shell.slowest:.0f} ms), "
            f"{self.kinds['Updated']} updates, {len(shell.pool.sessions):,} sessions\n"
            f"        {events:,} events: {kinds}"
        )

    @property
    def median(self) -> float:
        """Seconds of an event in the median part."""
        return statistics.median(self.parts)


def clock_seconds() -> float:
    """What an event seems to take because the clock is read before and after it."""
    times = [time.thread_time() for _ in range(10_001)]
    return (times[-1] - times[0]) / (len(times) - 1)


class Process:
    """A process that measures one size, whenever it is told to go on."""

    def __init__(self, workers: int, preset: str, seed: int, events: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._here, there = context.Pipe()
        self._process = context.Process(
            target=_measure, args=(there, workers, preset, seed, events), daemon=True
        )
        self._process.start()
        there.close()

    def go_on(self) -> tuple[str, float] | None:
        """Measure one more part: what was measured and the median part's seconds of an event, once
        it is the last."""
        self._here.send(None)
        result: tuple[str, float] | None = self._here.recv()
        return result


def _measure(asked: Connection, workers: int, preset: str, seed: int, events: int) -> None:
    measured = Measured(workers, preset, seed, events)
    spare_the_collector()
    while not measured.complete:
        asked.recv()
        measured.go_on()
        asked.send((str(measured), measured.median) if measured.complete else None)


def main() -> None:
    """Print two lines for each number of workers, and one that compares them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=20_000, help="at least, for each size")
    parser.add_argument("--preset", choices=sorted(PRESETS), default="quorum")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    processes = {
        workers: Process(workers, arguments.preset, arguments.seed, arguments.events)
        for workers in SIZES
    }
    found: dict[int, tuple[str, float]] = {}
    while len(found) < len(SIZES):
        for workers in SIZES:
            if workers not in found and (result := processes[workers].go_on()) is not None:
                found[workers] = result
    for workers in SIZES:
        print(found[workers][0])
    base, *larger = SIZES
    others = [f"{found[each][1] / found[base][1]:.2f} with {each:,}" for each in larger]
    print(f"cost per event relative to {base} workers: {', '.join(others)}")


if __name__ == "__main__":
    main()
