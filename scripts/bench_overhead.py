"""What a pool costs: environment steps per CPU second of two workers over MQTT, against the same
two evaluation processes alone; and the share of the CPU that coordinator and broker take.

In the pool each worker is `shoal join` with one evaluation process, and its CPU time is that of
both (user and system, from /proc). The broker is mosquitto, a process of its own, the coordinator
is `shoal host`; all on this machine. Counted are the steps of the updates between two moments of
the run, after everything has started, and the CPU time between them.

Alone, two evaluation processes get the very same directions of the very same versions, rebuilt from
the run's log, one half of each batch each, in one job; only their own CPU time counts, not that of
who feeds them. So they play the same episodes step by step, with no message, update or hash beside.
Nothing evaluates the centre in either. Pool and alone take turns, and a pool is compared with the
mean of alone before and after it, so that a machine that slowly gets busier or less busy changes
nothing; all figures are medians of the rounds. On a busy machine single rounds are off by a tenth.

    python -m scripts.bench_overhead --rounds 5 CartPole-v1

prints a line of JSON for each environment; unknown flags are given to `shoal host`.

CartPole-v1 trains from zero, with a target that it never reaches; what is counted begins after
`--warm` updates, when most episodes go on to the 500 steps of the limit. HalfCheetah-v5 (needs
`pip install mujoco`) has episodes of 1,000 steps from the beginning.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coordinator.history.past import opened
from protocol.spec import RunSpec
from protocol.state import State
from tests.chaos.processes import Running, cpu_seconds, join_url, running, updates, worker
from worker.evaluation.children import Evaluators
from worker.evaluation.jobs import EvaluationJob, Normalization

WORKERS = 2
LOOK_SECONDS = 0.05


@dataclass(frozen=True)
class Case:
    """A run that is long enough to count: flags, updates before it counts, and in all."""

    environment: str
    flags: tuple[str, ...]
    warm: int
    updates: int


CASES = {
    "CartPole-v1": Case("CartPole-v1", ("--population", "512"), 14, 22),
    "HalfCheetah-v5": Case(
        "HalfCheetah-v5", ("--population", "64", "--normalize", "--policy", "linear"), 2, 8
    ),
}
"""HalfCheetah with the linear policy and the normaliser of Mania et al. 2018 (ARS)."""


@dataclass(frozen=True)
class Spent:
    """CPU seconds, and the steps that they were spent on."""

    steps: int
    workers: float
    daemons: float = 0.0
    """of the workers' time, what their evaluation processes did not use"""
    coordinator: float = 0.0
    broker: float = 0.0

    @property
    def rate(self) -> float:
        """Environment steps per CPU second of the workers."""
        return self.steps / self.workers

    @property
    def total(self) -> float:
        """Of workers, coordinator and broker."""
        return self.workers + self.coordinator + self.broker

    @property
    def seconds(self) -> dict[str, float]:
        """CPU seconds for a million steps, of each kind of process."""
        children = self.workers - self.daemons
        kinds = {
            "children": children,
            "daemons": self.daemons,
            "coordinator": self.coordinator,
            "broker": self.broker,
        }
        return {kind: 1e6 * spent / self.steps for kind, spent in kinds.items()}


def in_pool(case: Case, run_dir: Path, extra: list[str]) -> Spent:
    """What the pool spends between two of its updates."""
    with ExitStack() as stack:
        broker = stack.enter_context(
            running("coordinator.broker", "--kind", "mosquitto", "--port", "0")
        )
        broker_url = broker.await_line("mqtt://").split()[-1]
        host = stack.enter_context(
            running(
                *("shoal", "host", case.environment, *case.flags, "--seed", "1"),
                *("--set", "stop.target=1e9", "--set", "centre.evaluate_every=1000000"),
                *("--updates", str(case.updates), *extra),
                *("--broker", broker_url, "--run-dir", str(run_dir)),
            )
        )
        url = join_url(host)
        workers = [
            stack.enter_context(worker(url, run_dir / f"home-{number}"))
            for number in range(WORKERS)
        ]
        parts = (*workers, host, broker)
        first = await_update(run_dir, case.warm, host)
        daemons = [worker.process.pid for worker in workers]
        before = [part.cpu_seconds() for part in parts]
        daemons_before = sum(map(cpu_seconds, daemons))
        last = await_update(run_dir, case.updates - 1, host)
        spent = [part.cpu_seconds() - at for part, at in zip(parts, before, strict=True)]
        steps = last["env_steps"] - first["env_steps"]
        daemon_seconds = sum(map(cpu_seconds, daemons)) - daemons_before
        return Spent(steps, sum(spent[:WORKERS]), daemon_seconds, *spent[WORKERS:])


def await_update(run_dir: Path, version: int, host: Running) -> dict:
    """The update that led to a version, as soon as it is told of."""
    while True:
        if (run_dir / "metrics.jsonl").exists():
            made = updates(run_dir)
            if made and made[-1]["version"] >= version:
                return made[-1]
        if host.process.poll() is not None:
            raise SystemExit("the host ended:\n" + "\n".join(host.lines[-20:]))
        time.sleep(LOOK_SECONDS)


async def alone(run_dir: Path, case: Case) -> Spent:
    """What two evaluation processes spend on the same batches."""
    processes = [Evaluators() for _ in range(WORKERS)]
    with opened(run_dir) as past:
        for process in processes:
            await process.start(past.spec)
        before, steps = 0.0, 0
        beginning = past.beginning()
        await evaluate(processes, past.spec, beginning)
        pids = [child.process.pid for process in processes for child in process._children]
        for state, _ in past.states(beginning, case.updates - 1):
            if state.version == case.warm:
                before = sum(map(cpu_seconds, pids))
            if case.warm <= state.version < case.updates - 1:
                steps += await evaluate(processes, past.spec, state)
        spent = sum(map(cpu_seconds, pids)) - before
    for process in processes:
        await process.close()
    return Spent(steps, spent)


async def evaluate(processes: list[Evaluators], spec: RunSpec, state: State) -> int:
    """Evaluate the batch of a version, a part in each process; the steps that this takes."""
    view = None if state.normalizer is None else Normalization.of(state.normalizer)
    first = state.version * spec.directions
    bounds = [first + spec.directions * i // len(processes) for i in range(len(processes) + 1)]

    async def part(process: Evaluators, begin: int, end: int) -> int:
        await process.set_theta(state.version, state.theta, view)
        job = EvaluationJob(
            "members",
            state.version,
            begin,
            end - begin,
            spec.environment.episodes,
            state.sigma,
        )
        told: list[int] = []
        await process.evaluate(job, lambda found: told.append(int(found.lengths.sum())))
        process.drop(state.version)
        return sum(told)

    parts = zip(processes, bounds, bounds[1:], strict=False)
    return sum(await asyncio.gather(*(part(*which) for which in parts)))


def measure(case: Case, rounds: int, extra: list[str]) -> dict[str, Any]:
    """The figures of one environment."""
    pools: list[Spent] = []
    alones: list[Spent] = []
    for number in range(rounds):
        with tempfile.TemporaryDirectory() as directory:
            run_dir = Path(directory) / "run"
            pools.append(in_pool(case, run_dir, extra))
            alones.append(asyncio.run(alone(run_dir, case)))
        pool, single = pools[-1], alones[-1]
        print(
            f"{case.environment} {number}: pool {pool.rate:,.0f} steps per CPU second of workers "
            f"({pool.steps:,} steps, {pool.workers:.1f} s, of which daemons {pool.daemons:.2f} s; "
            f"coordinator {pool.coordinator:.2f} s, broker {pool.broker:.2f} s), "
            f"alone {single.rate:,.0f} ({single.steps:,} steps, {single.workers:.1f} s)",
            flush=True,
        )
    beside = [
        statistics.mean(one.rate for one in alones[max(0, i - 1) : i + 1]) for i in range(rounds)
    ]
    ratios = [pool.rate / rate for pool, rate in zip(pools, beside, strict=True)]
    split = [pool.seconds for pool in pools]
    per_million = {kind: statistics.median(one[kind] for one in split) for kind in split[0]}
    per_million["alone"] = statistics.median(1e6 / one.rate for one in alones)
    return {
        "benchmark": "overhead",
        "environment": case.environment,
        "rounds": rounds,
        "ratio": round(statistics.median(ratios), 4),
        "ratios": [round(ratio, 4) for ratio in ratios],
        "children_ratio": round(
            statistics.median(
                ratio * pool.workers / (pool.workers - pool.daemons)
                for ratio, pool in zip(ratios, pools, strict=True)
            ),
            4,
        ),
        "coordinator_and_broker_share": round(
            statistics.median(1.0 - pool.workers / pool.total for pool in pools), 4
        ),
        "daemons_share_of_workers": round(
            statistics.median(pool.daemons / pool.workers for pool in pools), 4
        ),
        "cpu_seconds_per_million_steps": {
            kind: round(seconds, 3) for kind, seconds in per_million.items()
        },
        "pool_steps_per_cpu_second": round(statistics.median(pool.rate for pool in pools)),
        "alone_steps_per_cpu_second": round(statistics.median(one.rate for one in alones)),
        "load_average": round(os.getloadavg()[0], 1),
    }


def main() -> None:
    """Measure each environment and print a line of JSON for it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("environments", nargs="*", default=list(CASES), metavar="ENVIRONMENT")
    parser.add_argument("--rounds", type=int, default=3)
    options, extra = parser.parse_known_args()
    for environment in options.environments:
        if environment not in CASES:
            parser.error(f"{environment}: must be one of {', '.join(CASES)}")
        print(json.dumps(measure(CASES[environment], options.rounds, extra)), flush=True)


if __name__ == "__main__":
    main()
