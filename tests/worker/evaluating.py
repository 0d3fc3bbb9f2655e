"""Evaluation processes for tests: with a small environment that can make trouble."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from protocol import noise
from protocol.spec import RunSpec
from tests.worker import reference
from tests.worker.reference import TOYS, run_spec
from worker.evaluation import environments
from worker.evaluation.children import Evaluators
from worker.evaluation.jobs import Evaluation, EvaluationJob, join
from worker.evaluation.lanes import Lanes

SIGMA = 0.3
DEADLINE = 30.0
LANES = 64
"""Of each process: to try out how many suit takes longer than most tests."""
EVERY = 1009  # seeds of trouble; none of the first directions has one


def toy(**kwargs: Any) -> RunSpec:
    return run_spec("ToyWalk-v0", environment={"kwargs": kwargs}, normalizer={"enabled": True})


def members(first: int, count: int, episodes: int = 1) -> EvaluationJob:
    return EvaluationJob("members", 0, first, count, episodes, SIGMA)


def alone(spec: RunSpec, job: EvaluationJob) -> Evaluation:
    """What the job gives in this process."""
    lanes = Lanes(spec, environments.maker(spec.environment, [TOYS]), 4)
    view = reference.normalization(spec) if spec.normalizer.enabled else None
    return lanes.evaluate(job, reference.theta(spec), view)


def assert_same(a: Evaluation, b: Evaluation) -> None:
    np.testing.assert_array_equal(a.returns, b.returns)
    np.testing.assert_array_equal(a.lengths, b.lengths)
    assert (a.observed, a.failed) == (b.observed, b.failed)


def waiting(gate: Path) -> RunSpec:
    return toy(trouble="hang", every=EVERY, gate=str(gate))


async def started(
    spec: RunSpec, children: int, share: float = 1.0, lanes: int = LANES
) -> Evaluators:
    evaluators = Evaluators(DEADLINE, share)
    await evaluators.start(spec, children, [TOYS], lanes=lanes)
    await until(lambda: evaluators.ready == children)
    view = reference.normalization(spec) if spec.normalizer.enabled else None
    await evaluators.set_theta(0, reference.theta(spec), view)
    return evaluators


async def whole(evaluators: Evaluators, job: EvaluationJob) -> Evaluation:
    """The evaluation of a job, in however many pieces it is told."""
    pieces: list[Evaluation] = []
    await evaluators.evaluate(job, pieces.append)
    return join(sorted(pieces, key=lambda piece: piece.first))


async def until(true: Callable[[], bool]) -> None:
    """Wait for something that another process does."""
    deadline = time.monotonic() + DEADLINE
    while not true():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)


def processes(evaluators: Evaluators) -> list[int]:
    return [child.process.pid for child in evaluators._children]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def cursed(before: int = 0, after: int = 0) -> EvaluationJob:
    """A direction whose episodes meet the trouble of their environment, and some that don't."""
    seeds = noise.episode_seeds(7, np.arange(20 * EVERY, dtype=np.uint64) * np.uint64(65536))
    return members(int(np.flatnonzero(seeds % EVERY == 0)[0]) - before, before + 1 + after)


async def assert_usable(pool: Evaluators) -> None:
    job = members(0, 3)
    assert_same(await asyncio.wait_for(whole(pool, job), DEADLINE), alone(toy(), job))
