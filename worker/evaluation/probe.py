"""What a few fixed episodes tell of a machine: numeric class, speed, what a reset renews."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import time
from typing import Any

import numpy as np

from protocol.spec import RunSpec
from worker.evaluation import cartpoles, environments, mujocos
from worker.evaluation.choosing import (
    FEWEST_TOGETHER,
    FEWEST_VECTOR_LANES,
    MOST_IN_TURN,
    MOST_LANES,
    USUAL_LANES,
    as_one,
    known_lanes,
    lanes_together,
    trial_theta,
    tried,
    vector_lanes,
)
from worker.evaluation.jobs import EnvironmentUnavailable, EvaluationJob
from worker.evaluation.lanes import Lanes, Pulse
from worker.evaluation.playing import Environment, Maker
from worker.evaluation.vector import VectorMaker
from worker.policies.making import NOTHING, Grant, together

DIRECTIONS = 4
STEPS = 32  # at which probe episodes are cut
SIGMA = 0.5  # around parameters of 0
SPEED_SECONDS = 0.03


@dataclasses.dataclass(frozen=True)
class Findings:
    """What the probe found.

    Attributes:
        numeric_class: 16 bytes, or none where the same episode goes otherwise each time.
        fresh: whether every episode needs a new instance, since a used one plays otherwise.
        speed: environment steps per second, resets and policy included.
        step_seconds: processor time of such a step, which others that are at work don't stretch.
        maker: makes the instances to play on: the one given, or one whose instances step as one.
        lanes: how many suit, or as many as were asked for.
        together: whether a step of few takes about as long as of all.
    """

    numeric_class: bytes
    fresh: bool
    speed: float
    step_seconds: float
    maker: Maker
    lanes: int
    together: bool


class Recorder:
    """An environment that adds all that passes through it to its maker's record."""

    def __init__(self, environment: Environment, maker: RecordingMaker) -> None:
        self.environment, self.maker = environment, maker
        self.close = environment.close

    def reset(self, *, seed: int) -> tuple[Any, Any]:
        """Begin an episode."""
        observation, info = self.environment.reset(seed=seed)
        self.maker.note(observation)
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, Any]:
        """Take one step."""
        observation, reward, terminated, truncated, info = self.environment.step(action)
        self.maker.note(action, observation, float(reward), bool(terminated), bool(truncated))
        return observation, reward, terminated, truncated, info


class RecordingMaker:
    """Makes recorded instances for short episodes."""

    limit = STEPS

    def __init__(self, maker: Maker) -> None:
        self.maker = maker
        self.record = hashlib.blake2b(digest_size=16)
        self.numerics = b""
        """what else every record has"""

    def make(self) -> Environment:
        """A new recorded instance."""
        return Recorder(self.maker.make(), self)

    def note(self, *values: Any) -> None:
        """Add values to the record, or their parts: real ones as float64, others as int64."""
        for value in values:
            if isinstance(value, tuple | dict):
                self.note(*(value.values() if isinstance(value, dict) else value))
                continue
            array = np.asarray(value)
            kind = np.float64 if array.dtype.kind == "f" else np.int64
            self.record.update(array.astype(kind).tobytes())

    def take(self) -> bytes:
        """The digest of the record, which begins anew."""
        self.record.update(self.numerics)
        digest = self.record.digest()
        self.record = hashlib.blake2b(digest_size=16)
        return digest


class ShortMaker:
    """Makes instances for short episodes."""

    limit = STEPS

    def __init__(self, maker: Maker) -> None:
        self.make = maker.make


def probe(
    spec: RunSpec,
    maker: Maker,
    pulse: Pulse,
    trial: int = 0,
    grant: Grant = NOTHING,
    lanes: int = 0,
) -> Findings:
    """Play the probe episodes: twice over on one instance, and on new ones where that differs.

    The episodes are those of the run's first directions around parameters of 0, in its own policy;
    of the next ones in every further `trial`, for when one of the first ends the process.

    Args:
        lanes: how many the volunteer asks for; 0 leaves it to measurement.

    Raises:
        EnvironmentUnavailable: it can't be made, or not one of the episodes succeeds.
    """
    job = EvaluationJob(
        "members",
        0,
        trial * DIRECTIONS,
        DIRECTIONS,
        sigma=SIGMA if spec.objective is None else spec.strategy.sigma,
        per_direction=spec.members_per_direction,
    )
    fresh = False
    first, second = _rehearse(spec, maker, job, pulse, grant, fresh=False)
    if first != second:
        first, second = _rehearse(spec, maker, job, pulse, grant, fresh=True)
        fresh = first == second
    numeric_class = first if first == second else b""
    if numeric_class and not fresh and (vector := _vectorised(spec, maker)) is not None:
        with contextlib.suppress(EnvironmentUnavailable):
            # Only where it tells the same, bit for bit, on this machine.
            told = _rehearse(spec, vector, job, pulse, grant, fresh=False)
            maker = vector if told == (numeric_class, numeric_class) else maker
    short, few_as_all = ShortMaker(maker), as_one(maker) or together(spec, grant)
    count = lanes or known_lanes(spec, maker, grant)
    if not count and not few_as_all:
        # More episodes may end the process once more, where the first ones did.
        most = MOST_IN_TURN if isinstance(maker, VectorMaker) else MOST_LANES
        count = (
            USUAL_LANES if trial else tried(spec, short, job, grant, pulse, fresh=fresh, most=most)
        )
    speed, step_seconds = _speed(
        spec, short, count or FEWEST_TOGETHER, job, pulse, grant, fresh=fresh
    )
    count = count or lanes_together(spec.size, step_seconds)
    return Findings(numeric_class, fresh, speed, step_seconds, maker, count, few_as_all)


def _vectorised(spec: RunSpec, maker: Maker) -> Maker | None:
    """The maker of instances that step as one, where there is one and enough lanes for it."""
    if not isinstance(maker, environments.Maker):
        return None
    if vector_lanes(spec.size) >= FEWEST_VECTOR_LANES:
        poles = cartpoles.vectorised(maker)
        if poles is not None:
            return poles
    return mujocos.vectorised(maker)


def _rehearse(
    spec: RunSpec, maker: Maker, job: EvaluationJob, pulse: Pulse, grant: Grant, *, fresh: bool
) -> tuple[bytes, bytes]:
    """Digests of the probe episodes' trajectories, played twice in one lane."""
    recording = RecordingMaker(maker)
    lanes = Lanes(spec, recording, 1, fresh=fresh, grant=grant)
    recording.numerics = lanes.policy.numerics.encode()
    _play(spec, lanes, job, pulse)
    first = recording.take()
    _play(spec, lanes, job, pulse)
    lanes.close()
    return first, recording.take()


def _speed(
    spec: RunSpec,
    maker: Maker,
    count: int,
    job: EvaluationJob,
    pulse: Pulse,
    grant: Grant,
    *,
    fresh: bool,
) -> tuple[float, float]:
    """Steps per second of so many lanes, and processor time of one."""
    job = dataclasses.replace(job, count=max(job.count, count // job.per_direction))
    lanes = Lanes(spec, maker, count, fresh=fresh, grant=grant)
    _play(spec, lanes, job, pulse)  # makes the instances
    steps, begin, used = 0, time.perf_counter(), time.process_time()
    seconds = 0.0
    while not steps or seconds < SPEED_SECONDS:
        steps += _play(spec, lanes, job, pulse)
        seconds = time.perf_counter() - begin
    used = time.process_time() - used
    lanes.close()
    return steps / seconds, used / steps


def _play(spec: RunSpec, lanes: Lanes, job: EvaluationJob, pulse: Pulse) -> int:
    """Play the probe episodes; how many steps they took."""
    evaluation = lanes.evaluate(job, trial_theta(spec), None, pulse)
    if len(evaluation.failed) == job.count:
        raise EnvironmentUnavailable(
            f"every trial episode of {spec.environment.id} fails here ({evaluation.failed[0][1]}): "
            "mend the environment or its arguments"
        )
    return int(evaluation.lengths.sum())
