"""Measures a compiled run in this process: what compiling takes, and how fast it is then."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from protocol.errors import ShoalError
from protocol.spec import RunSpec
from worker.evaluation import makers, starting
from worker.evaluation.jobs import EvaluationJob, Normalization
from worker.policies.making import Grant

COMPILING = "/jax/core/compile/"
"""Begins the names of all that JAX says of compiling."""
FOUND = "/jax/compilation_cache/cache_hits"
PASSES = 3
"""At least, after one that nobody counts."""


class Compiling:
    """Adds up what JAX says of compiling while the block lasts.

    Attributes:
        seconds: of tracing, lowering and compiling.
        programs: compiled, or found compiled.
        found: of these, those that an earlier process compiled.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.programs = self.found = 0
        self._listens = False

    def __enter__(self) -> Compiling:
        self._listens = True
        jax.monitoring.register_event_duration_secs_listener(self._took)
        jax.monitoring.register_event_listener(self._happened)
        return self

    def __exit__(self, *_: object) -> None:
        self._listens = False  # listeners stay registered for as long as the process lives

    def _took(self, event: str, duration_secs: float, **_: str | int) -> None:
        if self._listens and event.startswith(COMPILING):
            self.seconds += duration_secs
            self.programs += event.endswith("backend_compile_duration")

    def _happened(self, event: str, **_: str | int) -> None:
        if self._listens and event == FOUND:
            self.found += 1


def measure(
    spec: RunSpec,
    theta: NDArray[np.float32],
    normalization: Normalization | None,
    grant: Grant,
    seconds: float,
    progress: Callable[[str], None] = lambda text: None,
    lanes: int = 0,
) -> dict[str, Any]:
    """Rates by the clock and by processor time, compiling left out and told apart.

    Args:
        seconds: about how long the passes take.
        lanes: how many; 0 for as many as an evaluation process would choose.

    Raises:
        ShoalError: no such environment here, or an episode of it fails.
    """
    progress("compiling, and trying the environment out")
    begin = time.perf_counter()
    with Compiling() as compiling:
        maker = makers.maker(spec, grant.modules)
        tried, made = starting.start(spec, maker, lambda take: None, 0, grant, lanes)
        each, episodes = spec.members_per_direction, spec.environment.episodes
        directions = max(spec.directions, -(-tried.lanes // each))
        numbers = itertools.count()

        def evaluate() -> int:
            first = next(numbers) * directions
            job = EvaluationJob(
                "members", 0, first, directions, episodes, spec.strategy.sigma, per_direction=each
            )
            done = made.evaluate(job, theta, normalization)
            if done.failed:
                raise ShoalError(f"an episode of {spec.environment.id} fails: {done.failed[0][1]}")
            return int(done.lengths.sum())

        evaluate()
    start = time.perf_counter() - begin
    progress("evaluating")
    steps = passes = 0
    begin, used = time.perf_counter(), time.process_time()
    while passes < PASSES or time.perf_counter() - begin < seconds:
        steps += evaluate()
        passes += 1
    wall, used = time.perf_counter() - begin, time.process_time() - used
    members = passes * directions * each
    return {
        "environment": spec.environment.id,
        "backend": "jax",
        "jax": jax.__version__,
        "device": jax.devices()[0].device_kind,
        "policy": spec.policy.kind,
        "parameters": spec.size,
        "sigma": spec.strategy.sigma,
        "normalizer": spec.normalizer.enabled,
        "lanes": tried.lanes,
        "start_seconds": start,
        "compile_seconds": compiling.seconds,
        "programs": compiling.programs,
        "programs_found": compiling.found,
        "members": directions * each,
        "passes": passes,
        "episode_steps": steps / (members * episodes),
        "steps_per_second": steps / wall,
        "steps_per_cpu_second": steps / used,
        "evaluations_per_second": members / wall,
    }
