"""What a few short trainings tell of this machine: numeric class and speed."""

from __future__ import annotations

import hashlib
import time
from typing import Any

import jax
import msgspec
import numpy as np

from protocol.spec import RunSpec
from worker.compiled.learners import LearnerLanes, Programs, Trainings
from worker.compiled.makers import CompiledMaker
from worker.compiled.probing import numerics
from worker.compiled.q_learning import Trial
from worker.evaluation.choosing import trial_theta
from worker.evaluation.jobs import EnvironmentUnavailable, EvaluationJob
from worker.evaluation.lanes import Pulse
from worker.evaluation.probe import DIRECTIONS, SIGMA, SPEED_SECONDS, Findings

TRAINING_STEPS = 512
"""Of a probe's trainings at most."""


class RecordingLanes(LearnerLanes):
    """Lanes that add all that agents have learned to a record."""

    record: Any = None

    def _book(self, of: list[tuple[Trainings, int]], trial: Trial) -> list[Trainings]:
        # Training by training, so that the number of lanes makes no difference.
        many = self.spec.policy.agents
        tables = np.asarray(trial.agents.tables).reshape(self.programs.agents, -1)
        returns = np.asarray(trial.returns)
        for first in range(0, len(of) * many, many):
            self.record.update(tables[first : first + many].tobytes())
            self.record.update(returns[first : first + many].tobytes())
        return super()._book(of, trial)


def prepare(
    spec: RunSpec, maker: CompiledMaker, pulse: Pulse, trial: int, lanes: int, device: str
) -> tuple[Findings, LearnerLanes]:
    """The lanes of a run of learners, every program of theirs compiled, and what the probe found.

    Args:
        lanes: how many the volunteer asks for; 0 for as many as suit.
        device: see `devices.set_up`.

    Raises:
        EnvironmentUnavailable: not one of the trainings succeeds.
    """
    programs = Programs(spec, maker.functional, lanes)
    steps = min(TRAINING_STEPS, spec.policy.training_steps)
    short = msgspec.structs.replace(
        spec,
        policy=msgspec.structs.replace(spec.policy, training_steps=steps, trial_episodes=1),
        environment=msgspec.structs.replace(spec.environment, episodes=1),
    )
    job = EvaluationJob(
        "members",
        0,
        trial * DIRECTIONS,
        DIRECTIONS,
        sigma=SIGMA,
        per_direction=spec.members_per_direction,
    )
    few = RecordingLanes(short, programs)
    begin = time.perf_counter()
    first, second = _record(few, job, pulse), _record(few, job, pulse)
    compiled = time.perf_counter() - begin
    speed, step_seconds = _speed(LearnerLanes(short, programs), job, pulse)
    made = LearnerLanes(spec, programs)
    made.policy.remark = (
        f"{spec.policy.kind} in {spec.environment.id} is compiled by JAX {jax.__version__} for "
        f"{device}, {made.count} lanes of {spec.policy.agents} agents, in {compiled:.1f} s"
    )
    numeric_class = first if first == second else b""
    return Findings(numeric_class, False, speed, step_seconds, maker, made.count, True), made


def _record(lanes: RecordingLanes, job: EvaluationJob, pulse: Pulse) -> bytes:
    """Digest of all that the probe's trainings learned."""
    lanes.record = hashlib.blake2b(numerics(jax.devices()[0]).encode(), digest_size=16)
    evaluation = lanes.evaluate(job, trial_theta(lanes.spec), None, pulse)
    if len(evaluation.failed) == job.count:
        raise EnvironmentUnavailable(
            f"every trial training in {lanes.spec.environment.id} fails here "
            f"({evaluation.failed[0][1]}): mend the environment or its arguments"
        )
    digest: bytes = lanes.record.digest()
    return digest


def _speed(lanes: LearnerLanes, job: EvaluationJob, pulse: Pulse) -> tuple[float, float]:
    """Steps per second, and processor time of one."""
    steps, begin, used = 0, time.perf_counter(), time.process_time()
    while not steps or time.perf_counter() - begin < SPEED_SECONDS:
        evaluation = lanes.evaluate(job, trial_theta(lanes.spec), None, pulse)
        steps += int(evaluation.lengths.sum())
    seconds = time.perf_counter() - begin
    return steps / seconds, (time.process_time() - used) / steps
