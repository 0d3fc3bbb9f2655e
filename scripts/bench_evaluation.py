"""Times evaluation in one process against the bare environment loop, in turns, in CPU seconds.

Bare is `env.unwrapped.step` with actions that are ready beforehand, episodes begun with the same
seeds. `random` plays random actions, `replay` the very actions that our policies chose, so that
its episodes are as long as ours; a ratio is the median of those of neighbouring turns.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from protocol.replay import initial_state
from protocol.spec import RunSpec, parse
from worker.evaluation import environments
from worker.evaluation.jobs import EvaluationJob, Normalization
from worker.evaluation.lanes import Lanes, lane_count, member_seeds
from worker.evaluation.playing import Environment

LIMIT = 500
STEP_SECONDS = 10e-6  # of CartPole, about


@dataclass(frozen=True)
class Case:
    """Members whose episodes are of one kind."""

    name: str
    job: EvaluationJob
    theta: NDArray[np.float32]


class Recorder:
    """An environment that notes seeds and actions."""

    def __init__(self, environment: Environment, record: list[tuple[int, list[Any]]]) -> None:
        self.environment, self.record = environment, record
        self.close = environment.close

    def reset(self, *, seed: int) -> tuple[Any, Any]:
        """Begin an episode."""
        self.actions: list[Any] = []
        self.record.append((seed, self.actions))
        return self.environment.reset(seed=seed)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, Any]:
        """Take one step."""
        self.actions.append(action)
        return self.environment.step(action)


class RecordingMaker:
    """Makes recorders that share a record."""

    limit = LIMIT

    def __init__(self, maker: environments.Maker) -> None:
        self.maker = maker
        self.record: list[tuple[int, list[Any]]] = []

    def make(self) -> Environment:
        """A new instance."""
        return Recorder(self.maker.make(), self.record)


MLP = {"kind": "mlp", "hidden": [32]}
GRU = {"kind": "gru", "hidden": [5, 5]}  # 367 parameters


def cartpole(policy: Mapping[str, Any], *, normalized: bool) -> RunSpec:
    """CartPole-v1 with that policy."""
    return parse(
        {
            "name": "bench",
            "environment": {
                "id": "CartPole-v1",
                "observation": {"kind": "box", "shape": [4]},
                "action": {"kind": "discrete", "n": 2},
            },
            "policy": policy,
            "normalizer": {"enabled": normalized},
        }
    )


def balancing(spec: RunSpec) -> NDArray[np.float32]:
    """Parameters that keep the pole up for all 500 steps."""
    theta = np.zeros(spec.size, dtype=np.float32)
    theta[:4] = (0.05, 0.1, 0.5, 0.5)  # hidden unit 0 sums up the lean
    theta[160], theta[192] = -1.0, 1.0  # and decides between left and right
    return theta


def bare_random(seeds: list[int], steps: int) -> float:
    """Steps per second with random actions."""
    environment = gymnasium.make("CartPole-v1").unwrapped
    actions = list(np.random.default_rng(0).integers(0, 2, steps))
    step, number = environment.step, 0
    begin = time.process_time()
    environment.reset(seed=seeds[0])
    for action in actions:
        _, _, terminated, truncated, _ = step(action)
        if terminated or truncated:
            number += 1
            environment.reset(seed=seeds[number % len(seeds)])
    return steps / (time.process_time() - begin)


def bare_replay(record: list[tuple[int, list[Any]]]) -> float:
    """Steps per second with recorded seeds and actions."""
    environment = gymnasium.make("CartPole-v1").unwrapped
    step, steps = environment.step, 0
    begin = time.process_time()
    for seed, actions in record:
        environment.reset(seed=seed)
        for action in actions:
            step(action)
        steps += len(actions)
    return steps / (time.process_time() - begin)


def compare(spec: RunSpec, case: Case, turns: int) -> dict[str, Any]:
    """Rates and ratios of one case."""
    maker = environments.maker(spec.environment)
    view = None
    if spec.normalizer.enabled:
        dims = spec.environment.observation.size
        view = Normalization(
            np.zeros(dims, np.float32), np.ones(dims, np.float32), np.zeros(dims), np.ones(dims)
        )
    recording = RecordingMaker(maker)
    Lanes(spec, recording, 1).evaluate(case.job, case.theta, view)
    seeds = [seed for pair in member_seeds(spec, case.job) for seed in pair for _ in range(2)]
    lanes = Lanes(spec, maker, lane_count(spec.size, STEP_SECONDS))
    steps = int(lanes.evaluate(case.job, case.theta, view).lengths.sum())
    rates: dict[str, list[float]] = {"ours": [], "random": [], "replay": []}
    for _ in range(turns):
        begin = time.process_time()
        lanes.evaluate(case.job, case.theta, view)
        rates["ours"].append(steps / (time.process_time() - begin))
        rates["random"].append(bare_random(seeds, steps))
        rates["replay"].append(bare_replay(recording.record))

    def ratio(bare: str) -> float:
        pairs = zip(rates["ours"], rates[bare], strict=True)
        return statistics.median(ours / theirs for ours, theirs in pairs)

    return {
        "case": case.name,
        "normalizer": spec.normalizer.enabled,
        "episode_steps": steps / (2 * case.job.count),
        "lanes": lanes.instances.count,
        "steps_per_second": statistics.median(rates["ours"]),
        "bare_steps_per_second": statistics.median(rates["random"]),
        "replay_steps_per_second": statistics.median(rates["replay"]),
        "ratio": ratio("random"),
        "ratio_replay": ratio("replay"),
    }


def main() -> None:
    """Print the table, and with --json one line for programs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=15, help="of ours and bare (default 15)")
    parser.add_argument("--json", action="store_true", help="end with one JSON line")
    options = parser.parse_args()
    results = []
    for normalized in (False, True):
        spec = cartpole(MLP, normalized=normalized)
        untrained = np.zeros(spec.size, dtype=np.float32)
        cases = (
            Case("short", EvaluationJob("members", 0, 0, 200, 1, 0.5), untrained),
            Case("long", EvaluationJob("members", 0, 0, 16, 1, 1e-3), balancing(spec)),
        )
        results += [compare(spec, case, options.turns) for case in cases]
    spec = cartpole(GRU, normalized=False)
    untrained = initial_state(spec).theta
    many = Case("gru", EvaluationJob("members", 0, 0, 256, 1, 0.1), untrained)
    results.append(compare(spec, many, options.turns))
    print(
        "CartPole-v1, MLP 4-32-2 or GRU 4-5-5-2, one process; median steps/s, ratios to bare loops"
    )
    print(
        "case   normalizer  steps/episode  lanes      ours    random    replay  /random   /replay"
    )
    for found in results:
        print(
            f"{found['case']:<7}{'on' if found['normalizer'] else 'off':<12}"
            f"{found['episode_steps']:>13.1f}{found['lanes']:>7}"
            f"{found['steps_per_second']:>10,.0f}{found['bare_steps_per_second']:>10,.0f}"
            f"{found['replay_steps_per_second']:>10,.0f}"
            f"{found['ratio']:>9.2f}{found['ratio_replay']:>10.2f}"
        )
    if options.json:
        print(json.dumps({"benchmark": "evaluation", "results": results}))


if __name__ == "__main__":
    main()
