"""Compares settings of the pool by real learning in virtual time: seconds and episodes to a target.

    python -m scripts.compare_pools CartPole-v1 --arm sync --arm "quorum pool.patience=0" \\
        --per-worker 2,8 --seeds 0-7
    python -m scripts.compare_pools CartPole-v1 --staleness --seeds 0-7

Simulated workers of very different speeds come and go around the real pool, and only their seconds
are made up: what they return are real episodes, and what becomes of it are real updates. An arm is
a preset of the pool and what it changes in the run spec. A median worker takes `--episode-seconds`
for an episode of full length.

`--staleness` measures without a pool what old returns cost: a fixed share of the members of each
update is evaluated at parameters that are some versions old.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import msgspec
import numpy as np

from coordinator.composing import compose
from coordinator.pool.events import CloseBatch, Contribution, SessionId
from coordinator.pool.presets import PRESETS
from protocol.errors import ShoalError
from protocol.spec import RunSpec, merge
from scripts.simulation.crowd import populate
from scripts.simulation.learning import Learner
from scripts.simulation.population import Population
from scripts.simulation.world import World

LONGEST_RUN = 3600.0
"""Virtual seconds after which a run without success is given up."""
MOST_UPDATES = 100
"""Likewise."""
JUDGED = 50
"""Episodes of a centre evaluation."""
UPDATE_SECONDS = 0.05
"""Virtual seconds that an update takes."""


@dataclass(frozen=True)
class Task:
    """What is learnt: fields of a run spec, and the steps of an episode of full length."""

    settings: Mapping[str, Any]
    steps: int


TASKS: Mapping[str, Task] = {
    "CartPole-v1": Task({}, 500),
    "Acrobot-v1": Task(
        {
            "policy": {"kind": "mlp", "hidden": [32], "initialisation": "zero"},
            "strategy": {"sigma": 0.1},
            "optimizer": {"learning_rate": 0.2, "momentum": 0.8},
            "stop": {"target": -100.0},
        },
        500,
    ),
    "InvertedPendulum-v5": Task(
        {
            "policy": {"kind": "linear", "initialisation": "zero"},
            "strategy": {"sigma": 0.05},
            "optimizer": {"learning_rate": 0.03, "momentum": 0.8},
            "normalizer": {"enabled": True},
            "stop": {"target": 950.0},
        },
        1000,
    ),
}
"""By the id of the environment. CartPole-v1 is as its preset is."""


@dataclass(frozen=True)
class Trial:
    """One run of an arm. Without `population` it is one without a pool, with members of `ages`."""

    arm: str
    spec: RunSpec
    population: Population | None = None
    ages: tuple[float, ...] = (1.0,)
    """share of each update's members that are 0, 1, 2... versions old"""


@dataclass(frozen=True)
class Outcome:
    """What came of a trial; infinite seconds and updates where it missed the target."""

    arm: str
    seed: int
    updates: float
    episodes: int
    """of members that counted in an update"""
    played: int
    """of members, whatever came of them"""
    seconds: float
    """virtual, until the version that reached the target was made"""
    known: float
    """virtual, until its evaluation was complete"""
    stale: float
    """share of the counted members that were evaluated at an earlier version"""
    efficiency: float
    """steps of counted members / steps that the workers who were there could have made"""


def run_in_pool(spec: RunSpec, population: Population, arm: str = "") -> Outcome:
    """Simulated workers around a pool, until it ends or time is up."""
    learner = Learner(spec, UPDATE_SECONDS)
    made: dict[int, float] = {0: 0.0}

    def learn(closed: CloseBatch) -> float:
        seconds = learner.learn(closed)
        made[learner.state.version] = world.agenda.now + seconds
        return seconds

    world = World(spec, learner, learn=learn, seed=spec.seed)
    populate(world, population, spec.seed)
    shell = world.shell
    world.agenda.run(lambda: shell.ended is not None, LONGEST_RUN)
    learner.close()
    ended = shell.ended
    reached = ended is not None and ended.reached
    version = ended.version if ended is not None else 0
    capacity = world.meter.read(world.agenda.now).capacity
    return Outcome(
        arm=arm,
        seed=spec.seed,
        updates=version if reached else math.inf,
        episodes=learner.state.episodes,
        played=learner.played * spec.environment.episodes,
        seconds=made[version] if reached else math.inf,
        known=world.agenda.now if reached else math.inf,
        stale=learner.late / max(1, learner.members),
        efficiency=learner.state.steps / max(1.0, capacity),
    )


def run_with_ages(spec: RunSpec, ages: Sequence[float], arm: str = "") -> Outcome:
    """Updates one after the other, of which each has members of these ages."""
    learner = Learner(spec)
    while not (reached := learner.reaches_target()) and learner.state.version < MOST_UPDATES:
        learner.learn(batch_of_ages(learner, ages))
    learner.close()
    return Outcome(
        arm=arm,
        seed=spec.seed,
        updates=learner.state.version if reached else math.inf,
        episodes=learner.state.episodes,
        played=learner.played * spec.environment.episodes,
        seconds=math.nan,
        known=math.nan,
        stale=learner.late / max(1, learner.members),
        efficiency=1.0,
    )


def batch_of_ages(learner: Learner, ages: Sequence[float]) -> CloseBatch:
    """The latest version's batch, whose directions are evaluated in these shares (of sum 1) at
    the latest version, the one before it, and so on; there is none before version 0."""
    version, size = learner.state.version, learner.spec.directions
    bounds = np.rint(np.cumsum([0.0, *ages]) * size).astype(int).tolist()
    parts = []
    for age, (begin, end) in enumerate(itertools.pairwise(bounds)):
        if begin < end:
            at, first = max(0, version - age), version * size + begin
            returns, lengths = learner.play("members", at, first, end - begin)
            worker = SessionId("worker", "session")
            parts.append(Contribution(worker, at, first, returns, lengths, b""))
    return CloseBatch(version, tuple(parts), ())


AGES: Mapping[str, tuple[float, ...]] = {
    "all fresh": (1.0,),
    "10 % one old": (0.9, 0.1),
    "10 % two old": (0.9, 0.0, 0.1),
    "25 % one old": (0.75, 0.25),
    "50 % one old": (0.5, 0.5),
    "0 to 2 old": (1 / 3,) * 3,
    "0 to 4 old": (1 / 5,) * 5,
}
"""Shares of members by age, as the name says; uniform where it says from and to."""


def pool_trials(options: argparse.Namespace) -> Iterator[Trial]:
    """All seeds of all arms, with each number of directions per worker."""
    task = TASKS[options.environment]
    population = Population(
        workers=options.workers,
        speed=task.steps / options.episode_seconds,
        sigma=options.sigma,
        leaving=options.leaving,
        vanishing=options.vanishing,
        latency=0.05,
        part_seconds=5.0,
    )
    for text in options.arm or list(PRESETS):
        preset, *settings = text.split()
        for directions in map(int, options.per_worker.split(",")):
            arm = {
                "pool": dict(_preset(preset)),
                "strategy": {"population": 2 * directions * options.workers},
                "centre": {"episodes": JUDGED},
                "stop": {"updates": MOST_UPDATES},
            }
            spec = compose(options.environment, merge(task.settings, arm), settings).spec
            for seed in options.seeds:
                yield Trial(
                    f"{text}, {directions} a worker",
                    msgspec.structs.replace(spec, seed=seed),
                    population=population,
                )


def staleness_trials(options: argparse.Namespace) -> Iterator[Trial]:
    """All seeds of all ages, with each discount and momentum; all fresh needs no discount."""
    for text in options.arm or [""]:
        for name in options.ages:
            ages = AGES[name]
            for discount in options.discounts if len(ages) > 1 else (0,):
                changes = {
                    "pool": {"max_staleness": len(ages) - 1, "discount": discount},
                    "centre": {"episodes": JUDGED},
                }
                base = merge(TASKS[options.environment].settings, changes)
                spec = compose(options.environment, base, text.split()).spec
                arm = f"{name}, discount {discount} {text}".strip()
                for seed in options.seeds:
                    yield Trial(arm, msgspec.structs.replace(spec, seed=seed), ages=ages)


def _preset(name: str) -> Mapping[str, float]:
    if name not in PRESETS:
        raise ShoalError(
            f"--arm begins with {name!r}: it must begin with one of {', '.join(PRESETS)}"
        )
    return PRESETS[name]


def perform(trial: Trial) -> Outcome:
    """Run a trial."""
    if trial.population is None:
        return run_with_ages(trial.spec, trial.ages, trial.arm)
    return run_in_pool(trial.spec, trial.population, trial.arm)


def outcomes(trials: Sequence[Trial], processes: int) -> Iterator[Outcome]:
    """Of all trials, as they come."""
    if processes == 1:
        yield from map(perform, trials)
        return
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as executor:
        for done in as_completed([executor.submit(perform, trial) for trial in trials]):
            yield done.result()


def summary(arm: str, runs: Sequence[Outcome]) -> dict[str, Any]:
    """What the runs of an arm came to: medians, quartiles where a name says so."""

    def quartiles(field: str) -> list[float]:
        return [quantile([getattr(run, field) for run in runs], q) for q in (0.25, 0.5, 0.75)]

    return {
        "arm": arm,
        "runs": len(runs),
        "reached": sum(math.isfinite(run.updates) for run in runs),
        "updates": quartiles("updates"),
        "mean_updates": sum(run.updates for run in runs) / len(runs),
        "episodes": quartiles("episodes")[1],
        "played": quartiles("played")[1],
        "seconds": quartiles("seconds"),
        "known": quartiles("known")[1],
        "stale": quartiles("stale")[1],
        "efficiency": quartiles("efficiency")[1],
    }


def quantile(values: Sequence[float], q: float) -> float:
    """Of these values, some of which may be infinite, with linear interpolation."""
    ordered = sorted(values)
    place = q * (len(ordered) - 1)
    below, above = ordered[math.floor(place)], ordered[math.ceil(place)]
    return below if below == above else below + (place % 1.0) * (above - below)


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The summaries for people; `-` where too many runs missed the target."""
    width = max(len(row["arm"]) for row in rows)
    lines = [
        f"{'arm':<{width}} reached  updates (quartiles)   mean  episodes    played"
        "   seconds (quartiles)    known  stale  efficiency"
    ]
    for row in rows:
        low, updates, high = map(_number, row["updates"])
        quick, seconds, slow = map(_number, row["seconds"])
        lines.append(
            f"{row['arm']:<{width}} {row['reached']:>3}/{row['runs']:<3}"
            f" {updates:>8} ({low} .. {high})".ljust(width + 30)
            + f"{_number(row['mean_updates']):>7}{row['episodes']:>10,.0f}{row['played']:>10,.0f}"
            + f"{seconds:>10} ({quick} .. {slow})".ljust(26)
            + f"{_number(row['known']):>6}{row['stale']:>7.1%}{row['efficiency']:>12.1%}"
        )
    return "\n".join(lines)


def _number(value: float) -> str:
    return f"{value:.1f}" if math.isfinite(value) else "-"


def ages(text: str) -> list[str]:
    """`all fresh,0 to 2 old`: names of `AGES`."""
    names = text.split(",")
    if unknown := set(names) - set(AGES):
        raise argparse.ArgumentTypeError(f"{unknown} must be of {', '.join(AGES)}")
    return names


def seeds(text: str) -> list[int]:
    """`0-7` or `1,5,9`."""
    first, dash, last = text.partition("-")
    return list(range(int(first), int(last) + 1)) if dash else [int(s) for s in text.split(",")]


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("environment", choices=sorted(TASKS))
    parser.add_argument("--staleness", action="store_true", help="without a pool, by age")
    parser.add_argument(
        "--arm",
        action="append",
        help="preset and section.field=value ...; with --staleness the latter alone (repeat)",
    )
    parser.add_argument("--per-worker", default="4", help="directions a worker and batch (4)")
    parser.add_argument("--seeds", type=seeds, default=seeds("0-7"), help="for example 0-7")
    parser.add_argument("--ages", type=ages, default=list(AGES), help="with --staleness")
    parser.add_argument("--discounts", type=seeds, default=[0, 1, 2], help="with --staleness")
    parser.add_argument("--workers", type=int, default=32)
    parser.add_argument("--sigma", type=float, default=1.0, help="of the logarithm of speeds")
    parser.add_argument("--episode-seconds", type=float, default=1.0)
    parser.add_argument("--leaving", type=float, default=0.2, help="share of workers a minute")
    parser.add_argument("--vanishing", type=float, default=0.05, help="likewise, without a word")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="end with one JSON line")
    return parser.parse_args(words)


def main() -> None:
    """Run all trials, tell of each on stderr, print the table."""
    options = arguments()
    trials = list(staleness_trials(options) if options.staleness else pool_trials(options))
    found: dict[str, list[Outcome]] = {trial.arm: [] for trial in trials}
    for outcome in outcomes(trials, options.processes):
        found[outcome.arm].append(outcome)
        print(
            f"{outcome.arm}, seed {outcome.seed}: {_number(outcome.updates)} updates, "
            f"{outcome.episodes:,} episodes, {_number(outcome.seconds)} s",
            file=sys.stderr,
            flush=True,
        )
    rows = [summary(arm, runs) for arm, runs in found.items()]
    print(table(rows))
    if options.json:
        runs = [dataclasses.asdict(run) for arm in found.values() for run in arm]
        print(json.dumps({"environment": options.environment, "arms": rows, "runs": runs}))


if __name__ == "__main__":
    main()
