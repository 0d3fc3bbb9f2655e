"""What a pool costs: environment steps per CPU second of two workers over MQTT, against the same
two evaluation processes alone; and the share of the CPU that coordinator and broker take.

In the pool each worker is `shoal join` with one evaluation process, and its CPU time is that of
both. The broker is mosquitto, a process of its own, the coordinator is `shoal host`; all on this
machine. Alone, two evaluation processes get the very same directions of the very same versions,
rebuilt from the run's log, one half of each batch each, in one job; only their own CPU time counts,
not that of who feeds them. So they play the same episodes step by step, with no message, update or
hash beside. Nothing evaluates the centre in either, since the run has no target.

Pool and alone take turns on the same cores, some versions each: as soon as the last update of a
turn is told of, the whole pool is stopped, the processes alone evaluate the batches that the pool
has had, and the pool goes on. Each core has one worker of the pool and one process alone pinned to
it, and neither ever shares the core with the other. A turn is about half a second: whatever slows
this machine for longer, a clock that drops or somebody else's load, slows both alike, and what both
lose as they begin in caches that the other has filled is little. Each turn is a pair of CPU times
for the same work; the ratio is that of their sums, with an interval from a bootstrap over turns
and, where `--rounds` starts everything anew several times, over rounds.

    python -m scripts.bench_overhead CartPole-v1
    python -m scripts.bench_overhead --same CartPole-v1

prints a line of JSON for each environment; unknown flags are given to `shoal host`. `--same` puts
a second pair of processes alone in the pool's place, over the log of a pool that ran before: its
ratio would be 1 if this benchmark had no error.

CartPole-v1 trains from zero; what is counted begins after `warm` updates, when most episodes go on
to the 500 steps of the limit. HalfCheetah-v5 (needs
`pip install mujoco`) has episodes of 1,000 steps from the beginning.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from coordinator.composing import compose
from coordinator.history.past import Past, opened
from protocol.spec import RunSpec, StopSpec, to_toml
from protocol.state import State
from scripts.paired import Pair, Ratio, ratio
from tests.chaos.processes import join_url, running, updates, worker
from worker.evaluation.children import Evaluators
from worker.evaluation.jobs import EvaluationJob, Normalization

WORKERS = 2
TARGET = 0.95
"""Share of the evaluations alone that the pool must reach."""
ENDLESS = 100_000
"""Updates that no run here comes to."""
LOOK_SECONDS = 0.02
SETTLING = 2
"""Versions between the long stop of the pool, while what it is compared with is started, and the
first that counts: what was leased then looks overdue, and is evaluated twice."""
CPUCLOCK_SCHED = 2
"""Of `CPUCLOCK_PROF`, `_VIRT` and `_SCHED` the one that counts nanoseconds, by the scheduler."""


@dataclass(frozen=True)
class Case:
    """A run that is long enough to count: flags, updates before it counts, how many count, and how
    many of these a turn has."""

    environment: str
    flags: tuple[str, ...]
    warm: int
    counted: int
    turn: int
    preset: str | None = None


CASES = {
    "CartPole-v1": Case("CartPole-v1", ("--population", "512"), 14, 24, 6),
    "HalfCheetah-v5": Case(
        "HalfCheetah-v5",
        (
            *("--population", "64", "--normalize", "--policy", "linear"),
            *("--set", "pool.copies=0"),
        ),
        2,
        8,
        1,
        preset="none",
    ),
}
"""HalfCheetah with the linear policy and the normaliser of Mania et al. 2018 (ARS). While the pool
is stopped for seconds its clock runs on, and what is at work looks overdue: without that setting
copies of it would be evaluated."""


@dataclass(frozen=True)
class Spent:
    """CPU seconds, and the environment steps that they were spent on."""

    steps: int
    children: float
    daemons: float = 0.0
    coordinator: float = 0.0
    broker: float = 0.0

    @property
    def workers(self) -> float:
        """Of evaluation processes and daemons."""
        return self.children + self.daemons

    @property
    def total(self) -> float:
        """Of workers, coordinator and broker."""
        return self.workers + self.coordinator + self.broker

    def __add__(self, other: Spent) -> Spent:
        return Spent(*(a + b for a, b in zip(_values(self), _values(other), strict=True)))

    def __sub__(self, other: Spent) -> Spent:
        return Spent(*(a - b for a, b in zip(_values(self), _values(other), strict=True)))


NOTHING = Spent(0, 0.0)


@dataclass(frozen=True)
class Round:
    """What each turn cost in the two ways: in the pool, or else alone, and alone."""

    ours: list[Spent]
    alone: list[Spent]

    @property
    def pairs(self) -> list[Pair]:
        """What alone cost, and ours: the work is the same, so this is the ratio of the rates."""
        both = zip(self.alone, self.ours, strict=True)
        return [Pair(alone.workers, ours.workers) for alone, ours in both]


def cpu_seconds(pid: int) -> float:
    """Processor time of all threads of a process, to the nanosecond (Linux).

    This is what `clock_getcpuclockid(3)` names. Raises `OSError` where the process is gone.
    """
    return time.clock_gettime(~pid << 3 | CPUCLOCK_SCHED)


def pin(pids: Iterable[int], core: int) -> None:
    """Have all threads of these processes, and those to come, run on one core."""
    for pid in pids:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setaffinity(int(thread.name), {core})


def turns(case: Case) -> list[range]:
    """The versions of each turn that counts."""
    end = case.warm + case.counted
    begins = range(case.warm, end, case.turn)
    return [range(begin, min(begin + case.turn, end)) for begin in begins]


def cores() -> list[int]:
    """A core for each worker."""
    ours = sorted(os.sched_getaffinity(0))
    return [ours[number % len(ours)] for number in range(WORKERS)]


class Alone:
    """Two evaluation processes with nothing but work."""

    def __init__(self, past: Past, processes: list[Evaluators]) -> None:
        self.past = past
        self.processes = processes
        self.pids = [child.process.pid for one in processes for child in one._children]
        self.state = past.beginning()

    @classmethod
    @asynccontextmanager
    async def started(cls, past: Past) -> AsyncIterator[Alone]:
        """Both processes, each pinned to its core, until the end of the block."""
        processes = [Evaluators() for _ in range(WORKERS)]
        try:
            await asyncio.gather(*(process.start(past.spec) for process in processes))
            alone = cls(past, processes)
            for pid, core in zip(alone.pids, cores(), strict=True):
                pin([pid], core)
            yield alone
        finally:
            for process in processes:
                await process.close()

    async def batch(self, version: int) -> Spent:
        """What the batch of a version, rebuilt from the log, costs."""
        for state, _ in self.past.states(self.state, version):
            self.state = state
        before = sum(map(cpu_seconds, self.pids))
        spec = self.past.spec
        steps = await evaluate(self.processes, spec, self.state, spec.directions)
        return Spent(steps, sum(map(cpu_seconds, self.pids)) - before)

    async def batches(self, versions: Iterable[int]) -> Spent:
        """What the batches of several versions cost."""
        spent = [await self.batch(version) for version in versions]
        return sum(spent, NOTHING)


async def evaluate(processes: list[Evaluators], spec: RunSpec, state: State, count: int) -> int:
    """Evaluate the first directions of a version's batch, a part in each process; the steps."""
    view = None if state.normalizer is None else Normalization.of(state.normalizer)
    first = state.version * spec.directions
    bounds = [first + count * i // len(processes) for i in range(len(processes) + 1)]

    async def part(process: Evaluators, begin: int, end: int) -> int:
        await process.set_theta(state.version, state.theta, view)
        job = EvaluationJob(
            "members",
            state.version,
            begin,
            end - begin,
            spec.environment.episodes,
            state.sigma,
            per_direction=spec.members_per_direction,
        )
        told: list[int] = []
        await process.evaluate(job, lambda found: told.append(int(found.lengths.sum())))
        process.drop(state.version)
        return sum(told)

    parts = zip(processes, bounds, bounds[1:], strict=False)
    return sum(await asyncio.gather(*(part(*which) for which in parts)))


def run_file(case: Case, run_dir: Path) -> Path:
    """Write the spec of a run that evaluates no centre: not even version 0 is judged, which may
    come in the middle of what counts."""
    spec = compose(case.environment, {}, preset=case.preset).spec
    centre = replace(spec.centre, evaluate_every=0)
    path = run_dir.with_suffix(".toml")
    path.write_text(to_toml(replace(spec, centre=centre, stop=StopSpec(updates=ENDLESS))))
    return path


class Pool:
    """A host, a broker and two workers, each of these pinned to its core."""

    def __init__(self, stack: ExitStack, case: Case, run_dir: Path, extra: list[str]) -> None:
        self.run_dir = run_dir
        broker = stack.enter_context(
            running("coordinator.broker", "--kind", "mosquitto", "--port", "0")
        )
        broker_url = broker.await_line("mqtt://").split()[-1]
        self.host = stack.enter_context(
            running(
                *("shoal", "host", str(run_file(case, run_dir)), *case.flags, "--seed", "1"),
                *(*extra, "--broker", broker_url, "--run-dir", str(run_dir)),
            )
        )
        url = join_url(self.host)
        self.workers = [
            stack.enter_context(worker(url, run_dir / f"home-{number}"))
            for number in range(WORKERS)
        ]
        self.broker = broker
        self.pids: dict[str, list[int]] = {}

    async def reach(self, version: int) -> dict[str, Any]:
        """The update that led to a version, as soon as it is told of."""
        while True:
            if (self.run_dir / "metrics.jsonl").exists():
                made = updates(self.run_dir)
                if made and made[-1]["version"] >= version:
                    return made[version - 1]
            if self.host.process.poll() is not None:
                raise SystemExit("the host ended:\n" + "\n".join(self.host.lines[-20:]))
            await asyncio.sleep(LOOK_SECONDS)

    def settle(self) -> None:
        """Pin both workers; all that they, host and broker start must have started."""
        started = [one.pids() for one in self.workers]
        for pids, core in zip(started, cores(), strict=True):
            pin(pids, core)
        daemons = [one.process.pid for one in self.workers]
        self.pids = {
            "children": [pid for pids in started for pid in pids if pid not in daemons],
            "daemons": daemons,
            "coordinator": self.host.pids(),
            "broker": self.broker.pids(),
        }

    def signal(self, number: int) -> None:
        """Send a signal to all processes of the pool."""
        for pids in self.pids.values():
            for pid in pids:
                os.kill(pid, number)

    def spent(self, steps: int) -> Spent:
        spent = {kind: sum(map(cpu_seconds, pids)) for kind, pids in self.pids.items()}
        return Spent(steps, **spent)


async def with_pool(case: Case, run_dir: Path, extra: list[str]) -> Round:
    """A pool and, in turns, the same work alone."""
    found = Round([], [])
    with ExitStack() as stack:
        pool = Pool(stack, case, run_dir, extra)
        await pool.reach(case.warm - SETTLING)
        pool.settle()
        pool.signal(signal.SIGSTOP)  # or it would be beyond the first version that counts
        with opened(run_dir) as past:
            async with Alone.started(past) as alone:
                await alone.batch(case.warm - SETTLING)  # begins with what it has to load
                pool.signal(signal.SIGCONT)
                made = await pool.reach(case.warm)
                pool.signal(signal.SIGSTOP)  # as every turn begins
                before = pool.spent(made["env_steps"])
                pool.signal(signal.SIGCONT)
                for turn in turns(case):
                    made = await pool.reach(turn.stop)
                    now = pool.spent(made["env_steps"])
                    pool.signal(signal.SIGSTOP)
                    found.ours.append(now - before)
                    found.alone.append(await alone.batches(turn))
                    pool.signal(signal.SIGCONT)
                    before = now
    return found


async def with_itself(case: Case, run_dir: Path, extra: list[str]) -> Round:
    """The work of a pool alone, twice in turns."""
    with ExitStack() as stack:
        await Pool(stack, case, run_dir, extra).reach(case.warm + case.counted)
    found = Round([], [])
    with opened(run_dir) as past:
        async with Alone.started(past) as one, Alone.started(past) as other:
            for way in (one, other):
                await way.batch(case.warm - SETTLING)
            for turn in turns(case):
                found.ours.append(await one.batches(turn))
                found.alone.append(await other.batches(turn))
    return found


def _values(spent: Spent) -> tuple[Any, ...]:
    return tuple(asdict(spent).values())


def summary(case: Case, same: bool, rounds: list[Round]) -> dict[str, Any]:
    """The figures of one environment."""
    found: Ratio = ratio([one.pairs for one in rounds])
    ours = sum((spent for one in rounds for spent in one.ours), NOTHING)
    alone = sum((spent for one in rounds for spent in one.alone), NOTHING)
    per_million = {
        kind: round(1e6 * seconds / ours.steps, 3)
        for kind, seconds in asdict(ours).items()
        if kind != "steps"
    }
    return {
        "benchmark": "overhead",
        "environment": case.environment,
        "compared": "alone with alone" if same else "pool with alone",
        "rounds": len(rounds),
        "turns": sum(len(one.ours) for one in rounds),
        "ratio": round(found.value, 4),
        "interval": [round(found.low, 4), round(found.high, 4)],
        "of_rounds": [round(ratio([one.pairs]).value, 4) for one in rounds],
        "at_least": {str(TARGET): found.at_least(TARGET)},
        "children_ratio": round(alone.children / ours.children, 4),
        "coordinator_and_broker_share": round(1.0 - ours.workers / ours.total, 4),
        "daemons_share_of_workers": round(ours.daemons / ours.workers, 4),
        "cpu_seconds_per_million_steps": {
            **per_million,
            "alone": round(1e6 * alone.children / alone.steps, 3),
        },
        "steps": [ours.steps, alone.steps],
        "load_average": round(os.getloadavg()[0], 1),
    }


def measure(case: Case, rounds: int, same: bool, extra: list[str]) -> dict[str, Any]:
    """Measure one environment, telling of each round."""
    done: list[Round] = []
    for number in range(rounds):
        with tempfile.TemporaryDirectory() as directory:
            compare = with_itself if same else with_pool
            done.append(asyncio.run(compare(case, Path(directory) / "run", extra)))
        pairs = done[-1].pairs
        each = " ".join(f"{pair.first / pair.second:.3f}" for pair in pairs)
        print(f"{case.environment} {number}: {ratio([pairs]).value:.4f}; turns {each}", flush=True)
    return summary(case, same, done)


def main() -> None:
    """Measure each environment and print a line of JSON for it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("environments", nargs="*", default=list(CASES), metavar="ENVIRONMENT")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--same", action="store_true", help="alone with alone: the error of this")
    options, extra = parser.parse_known_args()
    for environment in options.environments:
        if environment not in CASES:
            parser.error(f"{environment}: must be one of {', '.join(CASES)}")
        found = measure(CASES[environment], options.rounds, options.same, extra)
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
