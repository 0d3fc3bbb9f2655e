"""What a few episodes of a compiled run tell of this machine: numeric class, speed, lanes."""

from __future__ import annotations

import hashlib
import time
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from protocol.spec import RunSpec
from worker.compiled.lanes import GROUP, CompiledLanes
from worker.compiled.makers import CompiledMaker
from worker.compiled.program import Programs, Told
from worker.evaluation.choosing import trial_theta
from worker.evaluation.jobs import EnvironmentUnavailable, EvaluationJob
from worker.evaluation.lanes import Pulse
from worker.evaluation.probe import DIRECTIONS, SIGMA, SPEED_SECONDS, STEPS, Findings
from worker.policies.devices import CPU

LANES_BYTES = 256 << 10
"""Parameters of all lanes stay in the cache of a core."""
FEWEST, MOST = 64, 256
MOST_ON_GPU = 4096


class RecordingLanes(CompiledLanes):
    """Lanes that add what they are told of those that play to a record."""

    record: Any = None

    def _chunk(self, lanes: NDArray[np.int64]) -> Told:
        told = super()._chunk(lanes)
        for array in told:
            self.record.update(np.asarray(array)[:, lanes].tobytes())
        for array in jax.tree.leaves(self._episodes.observation):
            self.record.update(np.asarray(array)[lanes].tobytes())
        return told


def prepare(
    spec: RunSpec, maker: CompiledMaker, pulse: Pulse, trial: int, lanes: int, device: str
) -> tuple[Findings, CompiledLanes]:
    """The lanes of a run, every program of theirs compiled, and what the probe found.

    The probe episodes are those of `worker.evaluation.probe`, always in 16 lanes.

    Args:
        lanes: how many the volunteer asks for; 0 for as many as suit.
        device: see `devices.set_up`.

    Raises:
        EnvironmentUnavailable: not one of the episodes succeeds.
    """
    programs = Programs(spec, maker.functional)
    count = lanes or suiting(spec, device)
    made = CompiledLanes(spec, maker.functional, count, limit=maker.limit, programs=programs)
    job = EvaluationJob(
        "members",
        0,
        trial * DIRECTIONS,
        DIRECTIONS,
        sigma=SIGMA,
        cap=STEPS,
        per_direction=spec.members_per_direction,
    )
    few = RecordingLanes(spec, maker.functional, GROUP, limit=maker.limit, programs=programs)
    first, second = (_record(few, job, pulse) for _ in range(2))
    begin = time.perf_counter()
    made.warm()
    compiled = time.perf_counter() - begin
    speed, step_seconds = _speed(made, job, pulse)
    numeric_class = first if first == second else b""
    made.policy.remark = (
        f"{spec.environment.id} is compiled by JAX {jax.__version__} for {device}, "
        f"{made.most} lanes, in {compiled:.1f} s"
    )
    found = Findings(numeric_class, False, speed, step_seconds, maker, made.most, True)
    return found, made


def suiting(spec: RunSpec, device: str) -> int:
    """How many lanes suit a run."""
    batch = spec.strategy.population * spec.environment.episodes
    if device != CPU:
        return max(GROUP, min(batch, MOST_ON_GPU))
    return max(GROUP, min(batch, max(FEWEST, min(MOST, LANES_BYTES // (4 * spec.size)))))


def numerics(device: Any) -> str:
    """What decides the last bits of what JAX computes beside the environment."""
    return f"jax {jax.__version__} {device.platform} {device.device_kind}"


def _record(lanes: RecordingLanes, job: EvaluationJob, pulse: Pulse) -> bytes:
    """Digest of the probe episodes' trajectories."""
    lanes.record = hashlib.blake2b(numerics(jax.devices()[0]).encode(), digest_size=16)
    evaluation = lanes.evaluate(job, trial_theta(lanes.spec), None, pulse)
    if len(evaluation.failed) == job.count:
        raise EnvironmentUnavailable(
            f"every trial episode of {lanes.spec.environment.id} fails here "
            f"({evaluation.failed[0][1]}): mend the environment or its arguments"
        )
    digest: bytes = lanes.record.digest()
    return digest


def _speed(lanes: CompiledLanes, job: EvaluationJob, pulse: Pulse) -> tuple[float, float]:
    """Steps per second in short episodes, and processor time of one."""
    count = max(job.count, 2 * lanes.most // job.per_direction)
    job = EvaluationJob("members", 0, job.first, count, 1, job.sigma, job.cap, job.per_direction)
    theta = trial_theta(lanes.spec)
    lanes.evaluate(job, theta, None, pulse)
    steps, begin, used = 0, time.perf_counter(), time.process_time()
    while not steps or time.perf_counter() - begin < SPEED_SECONDS:
        steps += int(lanes.evaluate(job, theta, None, pulse).lengths.sum())
    seconds = time.perf_counter() - begin
    return steps / seconds, (time.process_time() - used) / steps
