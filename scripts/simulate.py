"""Simulates a run with many workers in virtual time, around the real pool.

    python scripts/simulate.py --workers 1000 --preset async --json

Workers differ in speed, come, leave, vanish within a task, and send results late or twice. Prints
how much of what they could have evaluated counted in updates, and what waiting for everybody would
have made of the same workers.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from coordinator.memory import spare_the_collector
from coordinator.pool.presets import PRESETS
from protocol import spec as run_spec
from protocol.errors import ShoalError
from scripts.simulation.environments import Formula
from scripts.simulation.population import Population, groups
from scripts.simulation.scenario import (
    DIRECTIONS_PER_WORKER,
    Scenario,
    Stage,
    compare,
    directions_that_fit,
)
from scripts.simulation.shell import Timing
from scripts.simulation.telling import table


def scenario(arguments: argparse.Namespace) -> Scenario:
    """What the flags ask for. Raises `ShoalError`."""
    population = Population(
        workers=arguments.workers,
        speed=arguments.speed,
        sigma=arguments.sigma,
        groups=groups(arguments.groups) if arguments.groups else (),
        leaving=arguments.leaving,
        vanishing=arguments.vanishing,
        stalling=arguments.stalling,
        changing=arguments.changing,
        late=arguments.late,
        twice=arguments.twice,
        liars=arguments.liars,
        hoarders=arguments.hoarders,
        flapping=arguments.flapping,
        reorders=arguments.reorder,
        clock=arguments.clock,
    )
    mean = arguments.steps
    each = arguments.directions_per_worker or directions_that_fit(population.size)
    return Scenario(
        population=population,
        preset=arguments.preset,
        settings=run_spec.settings(arguments.set),
        directions_per_worker=each,
        environment=Formula(mean, mean // 2, arguments.lengths, arguments.returns),
        updates=arguments.updates,
        seconds=arguments.seconds,
        timing=Timing(tick=0.05, update=0.05, service=arguments.service),
        restart_every=arguments.restart_every,
        seed=arguments.seed,
    )


class _Help(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """The description as it is written, and every default that there is."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        return action.help if action.default is None else super()._get_help_string(action)


class _Parser(argparse.ArgumentParser):
    """Refuses a flag in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message}; --help tells the flags\n")


def _count(text: str) -> int:
    try:
        count = int(text)
    except ValueError:
        count = 0
    if count < 1:
        raise argparse.ArgumentTypeError(f"{text} must be a whole number of at least 1")
    return count


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _amount(text: str) -> float:
    amount = _number(text)
    if not 0.0 <= amount < math.inf:
        raise argparse.ArgumentTypeError(f"{text} must be a number of at least 0")
    return amount


def _share(text: str) -> float:
    share = _number(text)
    if not 0.0 <= share <= 1.0:
        raise argparse.ArgumentTypeError(f"{text} must be from 0 to 1: 0.02 is 2 %")
    return share


def parser() -> argparse.ArgumentParser:
    """Of the command line."""
    flags = _Parser(description=__doc__, formatter_class=_Help)
    add = flags.add_argument
    add("--workers", type=_count, default=1000, help="at the start")
    add("--preset", choices=sorted(PRESETS), default="quorum", help="settings of the pool")
    add("--seed", type=int, default=1, help="of all that chance decides")
    add(
        "--directions-per-worker",
        type=_count,
        help=f"in each batch (default: {DIRECTIONS_PER_WORKER}, or as many as fit an update)",
    )
    add("--updates", type=_count, default=15, help="measured, after five that are not")
    add("--seconds", type=_amount, default=3600.0, help="of virtual time at most")
    add("--json", action="store_true", help="print one line of JSON")
    add("--plot", type=Path, metavar="FILE", help="draw the run: .png or .svg")
    add("--service", type=_amount, default=0.0, help="seconds the coordinator takes for an event")
    add("--restart-every", type=_amount, default=0.0, help="seconds between its deaths; 0: never")
    add("--set", action="append", default=[], metavar="SECTION.FIELD=VALUE", help="of the spec")
    crowd = flags.add_argument_group(
        "workers", "rates are shares of the workers in a minute: 0.2 is 20 %"
    )
    add = crowd.add_argument
    start = Population()
    add("--speed", type=_count, default=start.speed, help="median, in steps per second")
    add("--sigma", type=_amount, default=start.sigma, help="of the logarithm of the speeds")
    add("--groups", help="in place of these: 100x20000,3x200000 is workers x steps per second")
    add(
        "--leaving",
        type=_share,
        default=start.leaving,
        help="rate of those who say goodbye; as many join",
    )
    add(
        "--vanishing",
        type=_share,
        default=start.vanishing,
        help="rate of those who do not; as many join",
    )
    add(
        "--stalling",
        type=_share,
        default=start.stalling,
        help="rate of those who stand still, for 30 s on average",
    )
    add(
        "--changing",
        type=_share,
        default=start.changing,
        help="rate of those who fall to a tenth of their speed, or come back",
    )
    add("--late", type=_share, default=start.late, help="share of results that come 5 s late")
    add("--twice", type=_share, default=start.twice, help="share of results that come twice")
    add(
        "--liars",
        type=_share,
        default=start.liars,
        help="share of workers that declare 100 x their speed",
    )
    add(
        "--hoarders",
        type=_share,
        default=start.hoarders,
        help="share of workers that want 64 tasks",
    )
    add(
        "--flapping",
        type=_share,
        default=start.flapping,
        help="share of workers whose sessions last 5 s",
    )
    add("--reorder", action="store_true", help="messages of a session overtake each other")
    add("--clock", type=float, default=start.clock, help="seconds that clocks are off")
    episodes = flags.add_argument_group("episodes")
    add = episodes.add_argument
    add("--steps", type=_count, default=1000, help="mean length of an episode")
    add(
        "--lengths",
        choices=["constant", "uniform", "geometric", "heavy"],
        default="uniform",
        help="how episodes differ in length",
    )
    add(
        "--returns",
        choices=["unrelated", "long", "short"],
        default="unrelated",
        help="which episodes have the better returns",
    )
    return flags


def _begins(scene: Scenario) -> str:
    """What is said before the first figure, which takes its time."""
    each = scene.directions_per_worker
    fewer = "" if each >= DIRECTIONS_PER_WORKER else ", as many as fit the largest update"
    return (
        f"simulating {scene.population.size:,} workers with {each:,} directions each in a batch"
        f"{fewer}; 1,000 workers take a minute or more"
    )


def main(words: Sequence[str] | None = None) -> int:
    """Print the figures; the exit status."""
    arguments = parser().parse_args(words)
    try:
        scene = scenario(arguments)
        stage = Stage(scene)
        print(_begins(scene), file=sys.stderr)
        stage.run()
        found = compare(stage)
        if arguments.plot is not None:
            from scripts.simulation.plot import draw  # matplotlib takes its time

            draw(stage, found, arguments.plot)
    except ShoalError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if arguments.json:
        what = {
            "preset": scene.preset,
            "seed": scene.seed,
            "directions_per_worker": scene.directions_per_worker,
        }
        print(json.dumps({**what, **dataclasses.asdict(found)}))
    else:
        print(table(found))
    return 0


if __name__ == "__main__":
    spare_the_collector()  # as the coordinator does
    sys.exit(main())
