"""Measures what an event costs the pool, at 100, 1,000 and 10,000 workers in virtual time.

    python scripts/bench_pool.py [--seconds 3]

Workers differ in speed (log-normal, sigma 1), a quarter of them leaves each minute and as many
join, a fifth of the leavers without a word. Only this thread's time inside the pool counts. Prints
one line for each size: events a second on this core, microseconds an event, the slowest event.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from coordinator.memory import spare_the_collector
from coordinator.pool.presets import PRESETS
from protocol.spec import MAX_POPULATION
from scripts.simulation.crowd import populate
from scripts.simulation.environments import Formula, spec
from scripts.simulation.population import Population
from scripts.simulation.shell import Timing
from scripts.simulation.world import World

DIRECTIONS_PER_WORKER = 20
"""of a batch, as far as that may be so large"""
CHUNK_SECONDS = 0.25
"""of the pool's time, over which the cost of an event is looked at"""
WARM_UP_SECONDS = 15.0
"""of virtual time: all workers have come, and most have returned a task"""


def world(workers: int, preset: str, seed: int) -> World:
    """So many workers around a pool, with a batch that takes about four seconds."""
    population = Population(workers=workers, speed=20_000.0, startup=10.0)
    members = min(2 * DIRECTIONS_PER_WORKER * workers, MAX_POPULATION)
    pool = {**PRESETS[preset], "minimum_task_seconds": 1.0}
    steps = 4.0 * 1.65 * population.speed * workers / members
    run = spec(members, pool=pool, centre={"evaluate_every": 1}, stop={"target": 1e9})
    timing = Timing(tick=0.05, update=0.05)
    made = World(run, Formula(round(steps), round(steps / 2)), timing, seed=seed)
    populate(made, population, seed)
    return made


def costs_of(made: World, seconds: float) -> list[float]:
    """Seconds of an event, over each CHUNK_SECONDS of what the pool takes; `seconds` in all."""
    shell, costs = made.shell, []
    while shell.spent < seconds:
        spent, events = shell.spent, shell.events
        made.agenda.run(lambda: shell.spent >= spent + CHUNK_SECONDS, math.inf)  # noqa: B023
        costs.append((shell.spent - spent) / (shell.events - events))
    return costs


def main() -> None:
    """Print a line for each number of workers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3.0, help="inside the pool, for each size")
    parser.add_argument("--preset", choices=sorted(PRESETS), default="quorum")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    for workers in (100, 1_000, 10_000):
        made = world(workers, arguments.preset, arguments.seed)
        shell = made.shell
        made.agenda.run(lambda: False, WARM_UP_SECONDS)
        spare_the_collector()
        shell.spent = shell.slowest = 0.0
        shell.events = 0
        version = shell.pool.version
        costs = costs_of(made, arguments.seconds)
        print(
            f"{workers:6,} workers: {shell.events / shell.spent:7,.0f} events/s "
            f"({1e6 * shell.spent / shell.events:.1f} us an event, median of parts "
            f"{1e6 * statistics.median(costs):.1f}, slowest event {1e3 * shell.slowest:.0f} ms), "
            f"{shell.pool.version - version} updates, {len(shell.pool.sessions):,} sessions",
            flush=True,
        )


if __name__ == "__main__":
    main()
