"""Shows what liars do to a pool, and what audits make of them, in virtual time.

    python -m scripts.check_liars [--seeds 0-19] [--scene shared --scene sleepers ...]
    python -m scripts.check_liars --learn [--seeds 0-4]

Twenty workers of unlike speeds, of whom a quarter returns what is not true, within range and
against the true direction. Scenes: `honest` (nobody lies), `shared` (liars share their rule),
`private` (each has its own), `sleepers` (honest for 200 tasks), `copiers` (who say what they hear
of others), `classes` (three numeric classes), `claimants` (each liar claims a numeric class of its
own), `trusted` (the host trusts one worker). It tells after how many of its tasks each liar was
quarantined, whether an honest worker was, how large the liars' part of all members was that updates
used, and what share of the evaluations audits cost after the first 1,000 tasks, without the trials
of newcomers. Episodes are made up.

`claimed` is as `claimants`, but all liars claim one class: they confirm each other.

`--learn` trains CartPole-v1 really, with nobody lying, with liars and no audits, and with both: the
updates until the centre's mean of 50 episodes reaches 475.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from coordinator.composing import compose
from coordinator.pool import Pool
from coordinator.pool.events import SessionId
from coordinator.pool.presets import PRESETS
from coordinator.trust import Trust
from protocol.spec import RunSpec
from scripts.simulation import liars
from scripts.simulation.environments import Environment, Formula, spec
from scripts.simulation.learning import Learner
from scripts.simulation.worker import Traits
from scripts.simulation.world import World

SCENES = (
    "honest",
    "shared",
    "private",
    "sleepers",
    "copiers",
    "classes",
    "claimants",
    "claimed",
    "trusted",
)
WORKERS, LIARS = 20, 5
DIRECTIONS = 8
"""of each worker, in a batch"""
SHARE = 0.035
TASKS = 3000
MOST_UPDATES = 100
TRUSTED = "worker19"


@dataclass
class Seen:
    """What came of a scene."""

    scene: str
    seed: int
    inspector: liars.Inspector
    updates: int

    def __str__(self) -> str:
        seen = self.inspector
        after = sorted(seen.found[name] for name in seen.found if name not in seen.framed)
        return (
            f"{self.scene:<10} seed {self.seed:>2}: quarantined after {after} tasks, "
            f"{len(seen.missed)} not found, {len(seen.banned)} banned, "
            f"{len(seen.framed)} honest ones, liars' part {seen.influence:.1%}, "
            f"audits {seen.overhead:.1%}, {self.updates} updates"
        )


def inhabit(scene: str, world: World, environment: Environment, seed: int) -> dict[str, int]:
    """Let the workers of a scene come: for how many tasks each liar is honest."""
    draw = random.Random(seed)
    rumours = liars.Rumours()
    honest: dict[str, int] = {}
    for number in range(WORKERS):
        lies = scene != "honest" and number < LIARS
        name = f"worker{number}"
        says: liars.Says = liars.truth
        if lies:
            honest[name] = liars.HONEST_FIRST if scene == "sleepers" else 0
            says = {
                "private": liars.Private(number),
                "sleepers": liars.Sleeper(),
                "copiers": rumours.copied,
            }.get(scene, liars.swapped)
        kind = number % 3 if scene in ("classes", "claimants", "claimed") else 0
        numeric = f"class {kind:>10}".encode()
        if lies and scene in ("claimants", "claimed"):
            numeric = f"claimed {number if scene == 'claimants' else 0:>8}".encode()
        world.environment = liars.OtherClass(environment, kind) if kind else environment
        speed = 500.0 * draw.lognormvariate(0.0, 0.7)
        worker = world.worker(SessionId(name, "s"), Traits(speed=speed, numeric=numeric))
        worker.says = rumours.told_by(says) if scene == "copiers" else says
        world.agenda.after(draw.uniform(0.0, 3.0), lambda w=worker: world.shell.receive(w.hello()))
    return honest


def run(
    scene: str, seed: int, run_spec: RunSpec, learner: Learner | None = None, tasks: int = TASKS
) -> Seen:
    """A scene until the run ends, or so many tasks are given, for sleepers as many more as they are
    honest for."""
    environment: Environment = learner or Formula(mean=100, spread=50)
    trusted = [TRUSTED] if scene == "trusted" else []
    trust = Trust(run_spec.pool.audit_share, random.Random(seed), trusted)
    pool = Pool(run_spec, 0, 0.0, trust=trust)
    learn = learner.learn if learner is not None else None
    world = World(run_spec, environment, learn=learn, pool=pool, seed=seed)
    honest = inhabit(scene, world, environment, seed)
    seen = liars.Inspector(trust, lambda: pool.audited, honest)
    world.shell.observers.append(seen)
    if scene == "sleepers":
        tasks += 2 * WORKERS * liars.HONEST_FIRST
    shell = world.shell
    world.agenda.run(lambda: shell.ended is not None or seen.tasks >= tasks, 36_000.0)
    return Seen(scene, seed, seen, pool.version)


def detect(scene: str, seed: int, tasks: int = TASKS) -> Seen:
    """A scene with made-up episodes."""
    pool = {**PRESETS["quorum"], "audit_share": SHARE}
    return run(scene, seed, spec(2 * DIRECTIONS * WORKERS, pool=pool), tasks=tasks)


def learn(scene: str, seed: int, share: float) -> Seen:
    """CartPole-v1 among the workers of a scene."""
    settings = {
        "pool": {**PRESETS["quorum"], "audit_share": share},
        "strategy": {"population": 2 * DIRECTIONS * WORKERS},
        "centre": {"episodes": 50},
        "stop": {"updates": MOST_UPDATES},
    }
    run_spec = msgspec.structs.replace(compose("CartPole-v1", settings).spec, seed=seed)
    learner = Learner(run_spec)
    seen = run(scene, seed, run_spec, learner, tasks=1 << 40)
    learner.close()
    return seen


def seeds(text: str) -> list[int]:
    """`0-7` or `1,5,9`."""
    if "-" in text:
        first, last = text.split("-")
        return list(range(int(first), int(last) + 1))
    return [int(part) for part in text.split(",")]


def main() -> None:
    """Print a line for each scene and seed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=seeds, default=seeds("0-19"))
    parser.add_argument("--scene", action="append", choices=SCENES, help="by default all")
    parser.add_argument("--learn", action="store_true", help="train CartPole-v1")
    arguments = parser.parse_args()
    if not arguments.learn:
        for scene in arguments.scene or SCENES:
            for seed in arguments.seeds:
                print(detect(scene, seed), flush=True)
        return
    for name, scene, share in (
        ("honest", "honest", 0.0),
        ("honest, audited", "honest", SHARE),
        ("liars, not audited", "shared", 0.0),
        ("liars, audited", "shared", SHARE),
    ):
        updates = [learn(scene, seed, share).updates for seed in arguments.seeds]
        print(f"{name:<20} {updates} updates, mean {statistics.mean(updates):.1f}", flush=True)


if __name__ == "__main__":
    main()
