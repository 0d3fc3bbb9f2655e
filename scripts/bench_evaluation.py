"""Prints what evaluation reaches beside what it should reach, with others on the same work.

    python -m scripts.bench_evaluation
    python -m scripts.bench_evaluation --rows cartpole,gru --seconds 10 --json
    python -m scripts.bench_evaluation --peer-python /path/to/environment/with/evotorch/bin/python

Rates are by CPU time. Whoever is compared takes turns with us in the same run, and a ratio is the
median of those of neighbouring turns: on a shared machine rates move by a third, ratios by a tenth.
What is not installed is left out, and said. Exit code 1: a target is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocol.replay import initial_state
from protocol.spec import RunSpec, parse
from scripts.peers.work import NOT_INSTALLED
from worker import bench
from worker.describe import describe
from worker.evaluation import environments
from worker.evaluation.children import Evaluators
from worker.evaluation.jobs import EnvironmentUnavailable, EvaluationJob, Normalization
from worker.policies.making import Grant

PEERS = Path(__file__).parent / "peers"
OUR_TURNS, PEER_TURNS = 5, 3
MLP, CHEETAH = {"kind": "mlp", "hidden": [32]}, {"kind": "mlp", "hidden": [64, 64]}
GRU = {"kind": "gru", "hidden": [5, 5]}  # 367 parameters
LARGE = {"kind": "mlp", "hidden": [512, 1900]}  # 981,062 parameters
LARGE_PAIRS, GRU_PAIRS = 128, 256
MODULE_MEMBERS = 512  # of a batch
MODULE_STEPS = 100  # of an episode
PORTABLE_ES = 87.0
"""Steps per second of portable-es with 6 workers on two cores, on a machine like ours."""


@dataclass(frozen=True)
class Options:
    """What was asked for on the command line."""

    seconds: float
    peer_python: str


@dataclass(frozen=True)
class Figure:
    """One comparison: `value` must be at least, or for shares and memory at most, the `target`.

    Attributes:
        ours, theirs: in `unit`; `value` need not be their quotient, but the median of quotients.
        target: None where there is none.
        skipped: why there is nothing to compare with, or "".
    """

    row: str
    beside: str
    ours: float = 0.0
    theirs: float = 0.0
    unit: str = "steps/s"
    value: float = 0.0
    target: float | None = None
    most: bool = False
    skipped: str = ""

    @property
    def reached(self) -> bool | None:
        """Whether the target is reached; None where there is none to reach."""
        if self.skipped or self.target is None:
            return None
        return self.value <= self.target if self.most else self.value >= self.target


def subject(
    environment: str,
    policy: Mapping[str, Any],
    sigma: float,
    *,
    normalized: bool,
    theta: Callable[[RunSpec], NDArray[np.float32]] = lambda spec: initial_state(spec).theta,
    max_steps: int = 0,
) -> bench.Subject:
    """Members of that policy around `theta`, by default those of an untrained run."""
    found = describe(environment, {})
    spec = parse(
        {
            "name": "bench",
            "environment": {
                "id": environment,
                "observation": found["observation"],
                "action": found["action"],
                "max_steps": max_steps,
            },
            "policy": policy,
            "strategy": {"sigma": sigma},
            "normalizer": {"enabled": normalized},
        }
    )
    state = initial_state(spec)
    view = Normalization.of(state.normalizer) if state.normalizer is not None else None
    return bench.Subject(spec, "", theta(spec), view)


def zeros(spec: RunSpec) -> NDArray[np.float32]:
    """Parameters around which members are random policies."""
    return np.zeros(spec.size, dtype=np.float32)


def balancing(spec: RunSpec) -> NDArray[np.float32]:
    """Parameters of the MLP 4-32-2 that keep the pole up for all 500 steps."""
    theta = zeros(spec)
    theta[:4] = (0.05, 0.1, 0.5, 0.5)  # hidden unit 0 sums up the lean
    theta[160], theta[192] = -1.0, 1.0  # and decides between left and right
    return theta


def cartpole(options: Options) -> Iterator[Figure]:
    """MLP 4-32-2, short and long episodes, without the normaliser and with it."""
    for kind, theta, sigma in (("short", zeros, 0.5), ("long", balancing, 1e-3)):
        for normalized in (False, True):
            what = subject("CartPole-v1", MLP, sigma, normalized=normalized, theta=theta)
            row = f"CartPole MLP 4-32-2, {kind}{', normaliser' if normalized else ''}"
            yield from beside_bare(row, what, 0.80, options)
            if not normalized:
                yield from beside_peers(row, what, kind, options)


def cheetah(options: Options) -> Iterator[Figure]:
    """HalfCheetah-v5, MLP 17-64-64-6."""
    for normalized, target in ((False, 0.95), (True, 0.92)):
        row = f"HalfCheetah MLP 17-64-64-6{', normaliser' if normalized else ''}"
        try:
            what = subject("HalfCheetah-v5", CHEETAH, 0.1, normalized=normalized)
        except EnvironmentUnavailable as error:
            yield Figure(row, "bare loop", skipped=str(error))
            return
        yield from beside_bare(row, what, target, options)


def gru(options: Options) -> Iterator[Figure]:
    """Gated recurrent units of 367 parameters, 512 untrained members of CartPole-v1."""
    what = subject("CartPole-v1", GRU, 0.1, normalized=False)
    row = f"CartPole GRU {what.spec.size}, untrained"
    yield from beside_bare(row, what, None, options)
    by_clock, by_cpu = asyncio.run(in_processes(what, 2, options.seconds))
    for name, rate in (("by the clock", by_clock), ("by CPU time", by_cpu)):
        yield Figure(
            f"{row}, two processes, {name}",
            "portable-es, 6 workers (measured before)",
            rate,
            PORTABLE_ES,
            value=rate / PORTABLE_ES,
            target=1000.0 if name == "by the clock" else None,
        )


def module(options: Options) -> Iterator[Figure]:
    """A PyTorch module, by `torch.func`, beside the built-in policy with the same parameters."""
    if importlib.util.find_spec("torch") is None:
        yield Figure("torch module", "built-in MLP", skipped="not installed: torch")
        return
    for environment, widths, theta, sigma in (
        ("CartPole-v1", [4, 32, 2], balancing, 1e-3),
        ("HalfCheetah-v5", [17, 64, 64, 6], zeros, 0.1),
    ):
        row = f"{environment} torch module {'-'.join(map(str, widths))}"
        policy = {"kind": "mlp", "hidden": widths[1:-1]}
        try:
            built_in = subject(
                environment, policy, sigma, normalized=False, theta=theta, max_steps=MODULE_STEPS
            )
        except EnvironmentUnavailable as error:
            yield Figure(row, "built-in MLP", skipped=str(error))
            continue
        changes = {
            "policy": {
                "kind": "module",
                "module": "scripts.torch_mlp:Mlp",
                "arguments": {"widths": widths},
            },
            "strategy": {"sigma": sigma, "population": MODULE_MEMBERS},
            "environment": {"max_steps": MODULE_STEPS},
        }
        ours = replace(
            bench.untrained(environment, changes, Grant(("scripts",))), theta=built_in.theta
        )
        yield beside_each_other(row, ours, "built-in MLP", built_in, 0.5, options)


def large(options: Options) -> Iterator[Figure]:
    """An MLP of about 1,000,000 parameters, 256 members: of Pendulum-v1, whose episodes have 200
    steps, and of CartPole-v1, where untrained members fall after 10."""
    pendulum, poles = (
        subject(environment, LARGE, 0.5, normalized=False, theta=zeros)
        for environment in ("Pendulum-v1", "CartPole-v1")
    )
    row = f"CartPole MLP 4-512-1900-2, {2 * LARGE_PAIRS} members"
    yield noise_share(f"Pendulum MLP 3-512-1900-1, {2 * LARGE_PAIRS} members", pendulum)[0]
    figure, lanes = noise_share(row, poles)
    yield figure
    peak = asyncio.run(peak_of_a_child(poles))
    versions = 1
    bound = 3 * poles.spec.size * (lanes + versions) * 4 + 500_000_000
    beside = f"memory allowed for {lanes} lanes, a version"
    yield Figure(row, beside, peak / 1e6, bound / 1e6, "MB", peak / bound, 1.0, most=True)


def noise_share(row: str, what: bench.Subject) -> tuple[Figure, int]:
    """Of all time, in building members from noise; and on how many lanes."""
    ours = bench.Ours(what, environments.maker(what.spec.environment))
    share, lanes = bench.shares(ours, LARGE_PAIRS)["noise"], ours.lanes.count
    ours.close()
    return Figure(row, "noise of all time", 0.0, 0.0, "", share, 0.10, most=True), lanes


ROWS: dict[str, Callable[[Options], Iterator[Figure]]] = {
    "cartpole": cartpole,
    "cheetah": cheetah,
    "gru": gru,
    "module": module,
    "large": large,
}


def beside_bare(
    row: str, what: bench.Subject, target: float | None, options: Options
) -> Iterator[Figure]:
    """One process beside the bare environment loop."""
    found = bench.measure(what, options.seconds)
    yield Figure(
        row,
        "bare loop, random actions",
        found["steps_per_second"],
        found["bare_steps_per_second"],
        value=found["ratio"],
        target=target,
    )


def beside_each_other(
    row: str,
    what: bench.Subject,
    name: str,
    other: bench.Subject,
    target: float,
    options: Options,
) -> Figure:
    """One process with a subject, and with another, in turns."""
    sides = [bench.Ours(one, environments.maker(one.spec.environment)) for one in (what, other)]
    pairs = [side.pairs_for(options.seconds / 2 / OUR_TURNS) for side in sides]
    rates = [
        [side.play(count).rate for side, count in zip(sides, pairs, strict=True)]
        for _ in range(OUR_TURNS)
    ]
    for side in sides:
        side.close()
    ours, theirs = (statistics.median(column) for column in zip(*rates, strict=True))
    ratio = statistics.median(ours / theirs for ours, theirs in rates)
    return Figure(row, name, ours, theirs, value=ratio, target=target)


def beside_peers(row: str, what: bench.Subject, kind: str, options: Options) -> Iterator[Figure]:
    """One process beside others' on the same kind of members."""
    for script, target in (("plain_loop", 3.0), ("evotorch_gymne", 10.0)):
        ours = bench.Ours(what, environments.maker(what.spec.environment))
        pairs = ours.pairs_for(options.seconds / PEER_TURNS)
        paces, rates, name = [ours.play(pairs)], [], script
        for _ in range(PEER_TURNS):
            said = peer(script, kind, options)
            if isinstance(said, str):
                yield Figure(row, script, skipped=said)
                break
            rates.append(said["steps"] / said["seconds"])
            name = said["name"]
            paces.append(ours.play(pairs))
        else:
            # Each of theirs lies between two of ours.
            ratios = [
                (before.rate + after.rate) / 2 / rate
                for before, after, rate in zip(paces[:-1], paces[1:], rates, strict=True)
            ]
            rate = statistics.median(pace.rate for pace in paces)
            theirs, value = statistics.median(rates), statistics.median(ratios)
            yield Figure(row, name, rate, theirs, value=value, target=target)
        ours.close()


def peer(script: str, kind: str, options: Options) -> dict[str, Any] | str:
    """What a peer's own process measured, or why there is nothing."""
    command = [options.peer_python, str(PEERS / f"{script}.py"), kind]
    command.append(str(options.seconds / PEER_TURNS))
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["it says nothing"]
        why = "not installed" if done.returncode == NOT_INSTALLED else "it failed"
        return f"{why}: {lines[-1]}"
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


async def in_processes(what: bench.Subject, children: int, seconds: float) -> tuple[float, float]:
    """Steps per second of evaluation processes as `shoal join` has them, in jobs of `GRU_PAIRS`:
    by the clock, and by their CPU time as if each had a core."""
    evaluators = Evaluators()
    await evaluators.start(what.spec, children)
    await evaluators.set_theta(0, what.theta, what.normalization)
    await evaluate(evaluators, what, GRU_PAIRS)
    while evaluators.ready < children:
        await asyncio.sleep(0.1)
    pids = evaluation_processes()
    used, begin, steps = sum(map(cpu_seconds, pids)), time.perf_counter(), 0
    while (spent := time.perf_counter() - begin) < seconds:
        steps += await evaluate(evaluators, what, GRU_PAIRS)
    used = sum(map(cpu_seconds, pids)) - used
    await evaluators.close()
    return steps / spent, children * steps / used


async def peak_of_a_child(what: bench.Subject) -> int:
    """Peak resident memory of an evaluation process over `LARGE_PAIRS` pairs, in bytes."""
    evaluators = Evaluators()
    await evaluators.start(what.spec, 1)
    await evaluators.set_theta(0, what.theta, what.normalization)
    await evaluate(evaluators, what, LARGE_PAIRS)
    (pid,) = evaluation_processes()
    peak = int(status_of(pid)["VmHWM"].split()[0]) * 1024
    await evaluators.close()
    return peak


async def evaluate(evaluators: Evaluators, what: bench.Subject, pairs: int) -> int:
    """Steps of the members of so many pairs."""
    steps = []
    job = EvaluationJob("members", 0, 0, pairs, 1, what.spec.strategy.sigma)
    await evaluators.evaluate(job, lambda found: steps.append(int(found.lengths.sum())))
    return sum(steps)


def evaluation_processes() -> list[int]:
    """Process ids of ours (Linux)."""
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            if status_of(int(directory.name))["PPid"] != str(os.getpid()):
                continue
            if b"worker.evaluation.child" in (directory / "cmdline").read_bytes():
                found.append(int(directory.name))
        except (OSError, KeyError):
            continue  # it has ended
    return found


def status_of(pid: int) -> dict[str, str]:
    """What the kernel says of a process. Raises `OSError` where it is gone."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def cpu_seconds(pid: int) -> float:
    """Processor time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def line(figure: Figure) -> str:
    """A figure as a line of the table."""
    name = f"{figure.row:<56}{figure.beside:<42}"
    if figure.skipped:
        return f"{name}left out: {figure.skipped}"
    amounts = f"{figure.ours:>11,.0f}{figure.theirs:>11,.0f} {figure.unit:<8}"
    if not figure.unit:
        amounts = " " * 31
    target = "" if figure.target is None else f"{'<=' if figure.most else '>='} {figure.target:g}"
    word = {True: "reached", False: "MISSED", None: ""}[figure.reached]
    return f"{name}{amounts}{figure.value:>9.3f}  {target:<8}{word}".rstrip()


def main() -> None:
    """Measure, print the table, and with --json a line for programs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", default=",".join(ROWS), help="which (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each comparison (5)")
    parser.add_argument(
        "--peer-python", default=sys.executable, help="that has the peers' packages"
    )
    parser.add_argument("--json", action="store_true", help="end with one JSON line")
    asked = parser.parse_args()
    rows = asked.rows.split(",")
    if unknown := set(rows) - set(ROWS):
        parser.error(f"--rows {', '.join(sorted(unknown))}: must be among {', '.join(ROWS)}")
    options = Options(asked.seconds, asked.peer_python)
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(f"{'':<56}{'beside':<42}{'ours':>11}{'theirs':>11}{'':<9}{'ratio':>9}  target")
    figures = []
    for row in rows:
        for figure in ROWS[row](options):
            figures.append(figure)
            print(line(figure), flush=True)
    if asked.json:
        results = [asdict(figure) | {"reached": figure.reached} for figure in figures]
        print(json.dumps({"benchmark": "evaluation", "results": results}))
    sys.exit(1 if any(figure.reached is False for figure in figures) else 0)


if __name__ == "__main__":
    main()
