"""Times hill climbing with elites, and OpenAI-ES, on CartPole-v0 over MQTT, with one worker.

Solved: the centre's mean over 100 fresh episodes is 195 or more. `seconds` are those of the clock
from when the worker had joined to the end of the run; `core_seconds` the processor time, in the
same span, of everything: the worker with its evaluation process, and the host with its broker.

With `--rolling` the runs go on instead until the mean over the last 100 versions' centres, each
over 10 episodes, is 195 or more: the rule of systems that judge by a rolling mean, which needs 100
versions at least, however good the first one is.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.chaos.processes import host, worker

ENVIRONMENT = "CartPole-v0"
LINEAR = ("--policy", "linear", "--set", "policy.initialisation=zero")
ARMS: dict[str, tuple[str, ...]] = {
    "hill-climbing": (
        *LINEAR,
        *("--set", "strategy.kind=hill-climbing", "--set", "strategy.elites=0.4"),
        *("--set", "strategy.keep=always", "--population", "20", "--sigma", "1.0"),
    ),
    "hill-climbing, only better": (
        *LINEAR,
        *("--set", "strategy.kind=hill-climbing", "--set", "strategy.elites=0.4"),
        *("--set", "strategy.sigma_better=1.3", "--set", "strategy.sigma_worse=0.7"),
        *("--set", "strategy.sigma_least=0.5", "--population", "20", "--sigma", "1.0"),
    ),
    "openai-es": ("--population", "50"),
}
"""Flags of each arm; tuned on the seeds 1000 to 1039."""
LOOK_SECONDS = 0.01
ROLLING = 100
"""Versions that a rolling mean is over."""


@dataclass(frozen=True)
class Solved:
    """A run to its target, or to its limit."""

    arm: str
    seed: int
    solved: bool
    seconds: float
    core_seconds: float
    updates: int
    episodes: int
    steps: int
    centre: float | None
    """mean return of the version that the run returned"""


def solve(arm: str, seed: int, limit: float = 300.0, extra: Sequence[str] = ()) -> Solved:
    """Train one seed of an arm with one worker."""
    with tempfile.TemporaryDirectory() as directory:
        room = Path(directory)
        outcome, seconds, used = _lead(arm, seed, room, ("--seconds", str(limit), *extra))
    return Solved(
        arm=arm,
        seed=seed,
        solved=outcome["solved"],
        seconds=round(seconds, 2),
        core_seconds=round(used, 2),
        updates=outcome["updates"],
        episodes=outcome["episodes"],
        steps=outcome["env_steps"],
        centre=outcome["centre_return"],
    )


def rolling_seconds(arm: str, seed: int, target: float = 195.0, updates: int = 200) -> float | None:
    """Seconds from the first verdict on a centre until the rolling mean of the verdicts reaches the
    target; None: never."""
    flags = ("--updates", str(updates), "--set", "stop.target=1e9")
    with tempfile.TemporaryDirectory() as directory:
        room = Path(directory)
        _lead(arm, seed, room, flags)
        lines = (room / "run" / "metrics.jsonl").read_text().splitlines()
    centres = [row for row in map(json.loads, lines) if row["kind"] == "centre"]
    for end in range(ROLLING, len(centres) + 1):
        if statistics.mean(row["mean_return"] for row in centres[end - ROLLING : end]) >= target:
            return round(centres[end - 1]["seconds"] - centres[0]["seconds"], 2)
    return None


def _lead(
    arm: str, seed: int, room: Path, flags: Sequence[str]
) -> tuple[dict[str, Any], float, float]:
    """A run's own figures, seconds and core-seconds from the join to its end."""
    command = (ENVIRONMENT, "--seed", str(seed), *ARMS[arm], *flags)
    with (
        host(*command, run_dir=room / "run") as (leader, url),
        worker(url, room / "home", "--cores", "1") as helper,
    ):
        leader.await_line("joined")
        began, before = time.monotonic(), leader.cpu_seconds() + helper.cpu_seconds()
        used = before
        while leader.process.poll() is None:
            used = leader.cpu_seconds() + helper.cpu_seconds()
            time.sleep(LOOK_SECONDS)
        seconds = time.monotonic() - began
        leader.await_end()
        return leader.last_json(), seconds, used - before


def main() -> None:
    """Run the seeds of each arm, and print a line for each and one of JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", default="0-9", help="first-last")
    parser.add_argument("--arm", action="append", choices=ARMS, help="by default all; repeatable")
    parser.add_argument("--rolling", action="store_true", help="time the rolling mean's rule")
    options, extra = parser.parse_known_args()
    first, _, last = options.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    for arm in options.arm or ARMS:
        if options.rolling:
            told = [rolling_seconds(arm, seed) for seed in seeds]
            print(json.dumps({"arm": arm, "rule": "rolling mean", "seconds": told}), flush=True)
            continue
        rows = []
        for seed in seeds:
            rows.append(row := solve(arm, seed, extra=extra))
            print(
                f"{arm}, seed {seed}: {'solved' if row.solved else 'NOT SOLVED'} in "
                f"{row.seconds:.2f} s, {row.core_seconds:.2f} core-seconds, {row.updates} updates, "
                f"{row.episodes:,} episodes, centre {row.centre}",
                flush=True,
            )
        summary = {
            "arm": arm,
            "solved": sum(row.solved for row in rows),
            "of": len(rows),
            "median_core_seconds": statistics.median(row.core_seconds for row in rows),
            "worst_core_seconds": max(row.core_seconds for row in rows),
            "median_seconds": statistics.median(row.seconds for row in rows),
            "worst_seconds": max(row.seconds for row in rows),
            "rows": [asdict(row) for row in rows],
        }
        print(json.dumps(summary), flush=True)


if __name__ == "__main__":
    main()
