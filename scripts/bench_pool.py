"""Measures what an event costs the pool alone, at 100, 1,000 and 10,000 workers.

    python scripts/bench_pool.py [--events 20000] [--replays 5] [--audit-share 0.035] [--json]

A simulated run is recorded first: workers that differ in speed (log-normal, sigma 1), of whom a
fifth leaves each minute and a twentieth vanishes, and as many join. What its pool was told, and
when, is then told to fresh pools, without the simulator, whose work between two events a
coordinator does not have; a first such replay shows that each command is the same. What is measured
are whole batches, from the first update to a later one: the CPU time of this thread over all of
them, the garbage collector's included, and not the time on the wall, which others use as well. The
clock is read for each event in the first replay alone, for the shares of the kinds and the slowest
event.

With an audit share there is a pool without audits of each size beside it, to show what they cost.

Each size has as many directions for each worker and as many results between two ticks, so its
events are of the same kinds. Each has a process of its own, as a coordinator has; they take turns,
so that another load on the machine meets them all. Decoding, MACs and the log are no part of this.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import math
import multiprocessing
import statistics
import sys
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from coordinator.memory import spare_the_collector
from coordinator.pool import Pool
from coordinator.pool.presets import PRESETS
from protocol.spec import MAX_POPULATION
from scripts.simulation.crowd import populate
from scripts.simulation.environments import Formula, spec
from scripts.simulation.population import Population
from scripts.simulation.recording import Digest, Recording
from scripts.simulation.shell import Timing
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


def world(workers: int, preset: str, seed: int, audit_share: float = 0.0) -> World:
    """So many workers around a pool."""
    directions = DIRECTIONS_PER_WORKER * workers
    mean_speed = 2 * DIRECTIONS_PER_WORKER * EPISODE_STEPS / BATCH_SECONDS
    population = Population(workers=workers, speed=mean_speed / math.exp(0.5), startup=5.0)
    pool = {**PRESETS[preset], "minimum_task_seconds": 0.5, "audit_share": audit_share}
    run = spec(2 * directions, pool=pool, centre={"evaluate_every": 1}, stop={"target": 1e9})
    timing = Timing(tick=TICK / workers, update=0.05, keep=KEEP / workers)
    made = World(run, Formula(EPISODE_STEPS, EPISODE_STEPS // 2), timing, seed=seed)
    populate(made, population, seed)
    return made


@dataclass
class Kind:
    """Events of one kind."""

    count: int = 0
    seconds: float = 0.0


@dataclass
class Looked:
    """What a replay with a clock and a digest shows."""

    events: int
    updates: int
    sessions: int
    """at its end"""
    kinds: dict[str, Kind]
    slowest: tuple[str, float]
    """kind and seconds of the event that took the longest"""


class Replays:
    """A recorded run, to be told to fresh pools."""

    def __init__(
        self, workers: int, preset: str, seed: int, events: int, audit_share: float = 0.0
    ) -> None:
        """`events`: at least so many are to be measured."""
        simulated = world(workers, preset, seed, audit_share)
        self._spec = simulated.run_spec
        self._recording = Recording(simulated, events)

    def _begun(self) -> Pool:
        """A fresh pool at its first update."""
        gc.collect()  # the pool of the last replay
        pool = Pool(self._spec, 0, 0.0)
        for event, now in self._recording.begin:
            pool.handle(event, now)
        return pool

    def measure(self) -> float:
        """Seconds of an event."""
        handle, rest = self._begun().handle, self._recording.rest
        began = time.thread_time()
        for event, now in rest:
            handle(event, now)
        return (time.thread_time() - began) / len(rest)

    def look(self) -> Looked:
        """Time each event. Raises `RuntimeError` where a command is another than was recorded."""
        gc.collect()
        pool, digest, clock = Pool(self._spec, 0, 0.0), Digest(), clock_seconds()
        for event, now in self._recording.begin:
            digest.add(pool.handle(event, now))
        kinds: dict[str, Kind] = {}
        slowest = ("", 0.0)
        for event, now in self._recording.rest:
            began = time.thread_time()
            commands = pool.handle(event, now)
            seconds = time.thread_time() - began - clock
            digest.add(commands)
            name = type(event).__name__
            kind = kinds.setdefault(name, Kind())
            kind.count += 1
            kind.seconds += seconds
            if seconds > slowest[1]:
                slowest = name, seconds
        if digest.value != self._recording.digest.value:
            raise RuntimeError("the replayed pool decided otherwise than the recorded one")
        return Looked(
            events=len(self._recording.rest),
            updates=kinds["Updated"].count,
            sessions=len(pool.sessions),
            kinds=kinds,
            slowest=slowest,
        )


def clock_seconds() -> float:
    """What an event seems to take because the clock is read before and after it."""
    times = [time.thread_time() for _ in range(10_001)]
    return (times[-1] - times[0]) / (len(times) - 1)


class Process:
    """A process that records one size, and replays it whenever it is told to."""

    def __init__(
        self,
        workers: int,
        preset: str,
        seed: int,
        events: int,
        replays: int,
        audit_share: float = 0.0,
    ) -> None:
        """`replays`: so often it is told to."""
        context = multiprocessing.get_context("spawn")
        self._here, there = context.Pipe()
        self._process = context.Process(
            target=_serve,
            args=(there, replays, workers, preset, seed, events, audit_share),
            daemon=True,
        )
        self._process.start()
        there.close()

    def looked(self) -> Looked:
        """What the first replay showed, once it is done."""
        looked: Looked = self._here.recv()
        return looked

    def measure(self) -> float:
        """Seconds of an event, in one more replay."""
        self._here.send(None)
        seconds: float = self._here.recv()
        return seconds


def _serve(
    asked: Connection,
    replays: int,
    workers: int,
    preset: str,
    seed: int,
    events: int,
    audit_share: float,
) -> None:
    recorded = Replays(workers, preset, seed, events, audit_share)
    spare_the_collector()  # as the coordinator does, before anybody joins
    asked.send(recorded.look())
    for _ in range(replays):
        asked.recv()
        asked.send(recorded.measure())


@dataclass
class Figures:
    """What is told of one size."""

    workers: int
    events_per_second: float
    microseconds: float
    """of an event, in the median replay"""
    least_microseconds: float
    """in the fastest replay"""
    relative_cost: float
    """of an event beside one with the fewest workers, in the median of the rounds"""
    audits: float | None
    """cost of an event beside one of as many workers without audits, likewise; None: none here"""
    looked: Looked

    def __str__(self) -> str:
        looked = self.looked
        name, slowest = looked.slowest
        spent = sum(kind.seconds for kind in looked.kinds.values())
        kinds = ", ".join(
            f"{name} {kind.count / looked.events:.1%} ({kind.seconds / spent:.0%} of the time)"
            for name, kind in sorted(looked.kinds.items(), key=lambda item: -item[1].count)
        )
        audits = "" if self.audits is None else f", {self.audits:.2f} x that without audits"
        return (
            f"{self.workers:6,} workers: {self.events_per_second:7,.0f} events/s of one core "
            f"({self.microseconds:.1f} us of CPU an event, {self.least_microseconds:.1f} in the "
            f"fastest replay), {self.relative_cost:.2f} x the cost with {SIZES[0]:,}"
            f"{audits}; "
            f"slowest event {1e3 * slowest:.0f} ms ({name})\n"
            f"        {looked.updates} updates, {looked.sessions:,} sessions, {looked.events:,} "
            f"events: {kinds}"
        )


def measured(
    preset: str, seed: int, events: int, replays: int, audit_share: float = 0.0
) -> list[Figures]:
    """Of each size."""
    processes = {
        workers: Process(workers, preset, seed, events, replays, audit_share) for workers in SIZES
    }
    plain = {
        workers: Process(workers, preset, seed, events, replays) for workers in SIZES if audit_share
    }
    looked = {workers: processes[workers].looked() for workers in SIZES}
    for process in plain.values():
        process.looked()
    rounds, beside = [], []
    for _ in range(replays):
        rounds.append({each: processes[each].measure() for each in SIZES})
        beside.append({each: process.measure() for each, process in plain.items()})
    found = []
    for workers in SIZES:
        seconds = [each[workers] for each in rounds]
        median = statistics.median(seconds)
        found.append(
            Figures(
                workers=workers,
                events_per_second=1.0 / median,
                microseconds=1e6 * median,
                least_microseconds=1e6 * min(seconds),
                relative_cost=statistics.median(each[workers] / each[SIZES[0]] for each in rounds),
                audits=statistics.median(
                    one[workers] / other[workers] for one, other in zip(rounds, beside, strict=True)
                )
                if plain
                else None,
                looked=looked[workers],
            )
        )
    return found


def main() -> None:
    """Print two lines for each number of workers, or all figures as one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=20_000, help="at least, for each size")
    parser.add_argument("--replays", type=int, default=5, help="of each size; their median is told")
    parser.add_argument("--preset", choices=sorted(PRESETS), default="quorum")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--audit-share", type=float, default=0.0, help="as pool.audit_share")
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    arguments = parser.parse_args()
    found = measured(
        arguments.preset,
        arguments.seed,
        arguments.events,
        arguments.replays,
        arguments.audit_share,
    )
    if arguments.json:
        print(json.dumps([dataclasses.asdict(figures) for figures in found]))
    else:
        print(*found, sep="\n")


if __name__ == "__main__":
    main()
