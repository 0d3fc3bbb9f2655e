"""How many lanes suit a run on this machine: tried out in turns, or known where lanes step as one.

It never changes a return. Many lanes spread what a step costs beside its lanes; few leave the
caches of a core to the environments. Which counts for more only the machine can tell.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from protocol.spec import RunSpec
from worker.evaluation.blocks import member_seeds
from worker.evaluation.jobs import EvaluationJob
from worker.evaluation.lanes import Lanes, Pulse
from worker.evaluation.memory import Meter
from worker.evaluation.playing import Instances, Maker
from worker.evaluation.vector import VectorMaker
from worker.policies import making
from worker.policies.making import Grant

MOST_LANES = 256
MOST_IN_TURN = 32
"""Where one call steps one after the other: more are made in no time, but what such a call costs
beside its lanes is next to nothing by then."""
MEMBERS_BYTES = 32 << 20  # parameters of the members that all lanes play at once
INSTANCES_BYTES = 256 << 20  # of memory that environments may take for a trial
TURN_SECONDS = 0.004
ROUNDS = 7
LONGEST_SECONDS = 1.2
"""A trial takes no longer, but for the turns that it is in; its first half is to make environments.
One of a cheap environment is over in a fifth of it."""
NOISE = 0.03
"""By how much fewer lanes may be slower: so much is chance, and fewer answer sooner."""

# Where lanes step as one: of environments, in an array.
FEWEST_VECTOR_LANES = 16  # below it they would be faster one by one
MOST_VECTOR_LANES = 256
LANES_BYTES = 256 << 10  # parameters of all lanes stay in the cache of a core
FEWEST_LANES = 4
USUAL_LANES = 8  # where nothing more may be tried

# Or of policies, in PyTorch.
FEWEST_TOGETHER = 32
MOST_TOGETHER = 256
TOGETHER_BYTES = 4 << 20
MOST_VECTOR_TOGETHER = 512  # where environments step as one as well
CALL_SECONDS = 300e-6  # what a step of the lanes costs besides its lanes
CALL_SHARE = 0.1  # of the time that the lanes' environments take


def chosen(rates: Mapping[int, Sequence[float]]) -> int:
    """The fewest lanes that are as fast as any others, up to `NOISE`.

    Args:
        rates: of each number of lanes the steps per second in some rounds, in which all of them
            took turns: those of one round are compared, since machines change their pace.
    """
    fastest = max(rates, key=lambda count: statistics.median(rates[count]))

    def share(count: int) -> float:
        pairs = zip(rates[count], rates[fastest], strict=True)
        return statistics.median(one / other if other else 1.0 for one, other in pairs)

    return min(count for count in rates if share(count) >= 1.0 - NOISE)


def trial_theta(spec: RunSpec) -> NDArray[np.float32]:
    """Parameters around which members are tried out."""
    if spec.objective is not None:
        return spec.objective.theta  # elsewhere the function may not be defined
    return np.zeros(spec.size, dtype=np.float32)


def tried(
    spec: RunSpec,
    maker: Maker,
    job: EvaluationJob,
    grant: Grant,
    pulse: Pulse,
    *,
    fresh: bool,
    most: int = MOST_LANES,
) -> int:
    """How many lanes are fastest where environments step one by one and our kernels compute.

    Args:
        job: whose episodes are known to do no harm: theirs are the seeds that are played.
        maker: of environments whose episodes are short.
        pulse: see `Lanes.evaluate`.
        most: to try.

    Raises:
        EnvironmentUnavailable: an environment that failed can't be made anew.
    """
    most = max(1, min(most, MEMBERS_BYTES // (4 * spec.size)))
    trial = Trial(spec, maker, job, most, grant, pulse, fresh=fresh)
    try:
        counts = trial.counts()
        rates: dict[int, list[float]] = {count: [] for count in counts}
        for number in range(ROUNDS):
            if number and trial.seconds > LONGEST_SECONDS:
                break
            for count in counts:
                rates[count].append(trial.turn(count))
            counts.reverse()
    finally:
        trial.close()
    return chosen(rates)


class Trial:
    """Numbers of lanes that take turns with the same environments.

    Attributes:
        instances: of as many lanes as may be tried; made when the first lanes need them.
    """

    def __init__(
        self,
        spec: RunSpec,
        maker: Maker,
        job: EvaluationJob,
        most: int,
        grant: Grant,
        pulse: Pulse,
        *,
        fresh: bool,
    ) -> None:
        self.spec, self.maker, self.job = spec, maker, job
        self.grant, self.pulse = grant, pulse
        self._seeds = member_seeds(spec, job)
        self.instances = Instances(maker, most, fresh=fresh)
        self._theta = trial_theta(spec)
        self._lanes: dict[int, Lanes] = {}
        self._begin = time.perf_counter()

    @property
    def seconds(self) -> float:
        """How long it takes already, by the clock."""
        return time.perf_counter() - self._begin

    def counts(self) -> list[int]:
        """Powers of two up to what time and memory allow; each has had a turn by then."""
        meter, counts = Meter(os.getpid()), [1]
        before = meter.own()
        while True:
            begin = self.seconds
            self.turn(counts[-1])
            following = 2 * counts[-1]
            # The next ones take as many environments again as there are.
            last = self.seconds + 2 * (self.seconds - begin) > LONGEST_SECONDS / 2
            large = 2 * (meter.own() - before) > INSTANCES_BYTES
            if last or large or following > self.instances.count:
                return counts
            counts.append(following)

    def turn(self, count: int) -> float:
        """Steps per second of processor time of so many lanes, over `TURN_SECONDS` or a few steps;
        making members and environments left out."""
        if count not in self._lanes:
            self._lanes[count] = Lanes(
                self.spec,
                self.maker,
                count,
                grant=self.grant,
                instances=self.instances,
                seeds_of=self._known_seeds,
            )
        lanes = self._lanes[count]
        two_each = math.ceil(2 * count / self.job.per_direction)
        job = replace(self.job, count=two_each)
        steps, spent = 0, 0.0
        deadline = self.seconds + LONGEST_SECONDS / ROUNDS
        while spent < TURN_SECONDS and self.seconds < deadline:
            playing = lanes.start(job, self._theta)
            lanes.step()
            begin = time.process_time()
            while not playing.over and time.process_time() < begin + TURN_SECONDS - spent:
                self.pulse(playing.take)
                steps += lanes.busy
                lanes.step()
            spent += time.process_time() - begin
            lanes.stop(playing)
        return steps / spent if spent else 0.0

    def _known_seeds(self, spec: RunSpec, job: EvaluationJob) -> NDArray[np.int64]:
        """Seeds of as many members as there are, over and over."""
        members = np.arange(job.per_direction * job.count)
        return self._seeds[members % len(self._seeds)]

    def close(self) -> None:
        """Close the environments."""
        self.instances.close()


def vector_lanes(size: int) -> int:
    """How many lanes suit where environments step as one: a step of all takes about as long as of
    one.

    Args:
        size: number of parameters.
    """
    return max(FEWEST_LANES, min(MOST_VECTOR_LANES, LANES_BYTES // (4 * size)))


def lanes_together(size: int, step_seconds: float) -> int:
    """How many suit where PyTorch computes them together, and a step of an environment takes so
    long. They are not tried: each number would need a policy of its own, which takes PyTorch long
    to make."""
    enough = math.ceil(CALL_SECONDS / (CALL_SHARE * step_seconds))
    return max(FEWEST_TOGETHER, min(enough, MOST_TOGETHER, TOGETHER_BYTES // (4 * size)))


def as_one(maker: Maker) -> bool:
    """Whether its environments step as one, and many in about the time of one."""
    return isinstance(maker, VectorMaker) and maker.vector.as_one


def known_lanes(spec: RunSpec, maker: Maker, grant: Grant) -> int:
    """How many suit where environments step as one, in the time of one; 0 where they don't."""
    if not as_one(maker):
        return 0
    if not making.together(spec, grant):
        return vector_lanes(spec.size)
    # The more the better, where a batch has so many: a step computes all lanes, used or not.
    batch = spec.strategy.population * spec.environment.episodes
    return max(FEWEST_TOGETHER, min(batch, MOST_VECTOR_TOGETHER, TOGETHER_BYTES // (4 * spec.size)))
