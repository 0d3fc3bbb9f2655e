"""Lanes whose episodes are trainings: dozens of agents learn, then show what they have learned."""

from __future__ import annotations

import dataclasses
import math
from collections import deque
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from protocol import learners, noise
from protocol.messages import LARGEST_RETURN
from protocol.spec import RunSpec
from worker.compiled import bits
from worker.compiled.environment import Functional
from worker.compiled.q_learning import BLOCK, Agents, Hyperparameters, Learner, Trial
from worker.evaluation.blocks import Seeds, centre_seeds, member_seeds
from worker.evaluation.jobs import Evaluation, EvaluationJob, Normalization
from worker.evaluation.lanes import Pulse

GROUP = 16
"""Agents come in such numbers: a processor's vector unit has no rest to compute otherwise."""
CHUNK = 1 << 18
"""Steps of all agents in one go, after which requests are heard: some 10 ms."""


class Trainings:
    """A job in hand: of each of its trainings whether it is begun, over, and what it gave.

    Attributes:
        parameters: float32, shape (rows, 4), those of the job's members, or theta alone.
        rows: of `parameters`, of each training.
        seeds: of each training, those of a direction side by side.

    Args:
        seeds: shape (rows, trainings of each).
    """

    def __init__(
        self, job: EvaluationJob, parameters: NDArray[np.float32], seeds: NDArray[np.int64]
    ) -> None:
        self.job, self.parameters = job, parameters
        self.rows = np.repeat(np.arange(len(seeds)), seeds.shape[1]) % len(parameters)
        self.seeds = seeds.ravel()
        self.returns = np.zeros(self.seeds.size)
        self.lengths = np.zeros(self.seeds.size, dtype=np.int64)
        self.done = np.zeros(self.seeds.size, dtype=np.bool_)
        self.begun = self._taken = 0

    @property
    def pending(self) -> bool:
        """Whether a training has not begun."""
        return self.begun < self.seeds.size

    @property
    def over(self) -> bool:
        """Whether all are over."""
        return bool(self.done.all())

    def take(self) -> Evaluation | None:
        """What is finished and was not taken before, up to the first that is not finished."""
        job, begin = self.job, self._taken
        shape = (*job.shape, job.episodes_per_return)
        done = self.done.reshape(job.count, -1).all(axis=1)
        end = job.count if done.all() else int(np.argmin(done))
        if begin == end:
            return None
        self._taken = end
        returns = self.returns.reshape(shape)[begin:end]
        lengths = self.lengths.reshape(shape)[begin:end].sum(axis=-1)
        total = returns[..., 0].copy()
        for episode in range(1, job.episodes_per_return):  # in this order, as in other lanes
            total += returns[..., episode]
        total /= job.episodes_per_return
        unsound = ~(np.abs(total) <= LARGEST_RETURN)
        failed = np.flatnonzero(unsound.reshape(end - begin, -1).any(axis=1))
        total[failed], lengths[failed] = np.nan, 0
        told = "agents' returns are no numbers that a result may have"
        failures = tuple((job.first + begin + int(group), told) for group in failed)
        return Evaluation(job.first + begin, total, lengths, failed=failures)


class _Wave(NamedTuple):
    """Trainings that go on at once.

    Attributes:
        of: the job of each and its number there.
        learning: agents that are still being trained, or None.
        trial: what they do then.
        passed: steps that each agent has taken.
    """

    of: list[tuple[Trainings, int]]
    given: Hyperparameters
    keys: jax.Array
    learning: Agents | None
    trial: Trial | None
    passed: int


@dataclasses.dataclass
class _Named:
    """What is said of a policy where lanes have one."""

    remark: str = ""


class Programs:
    """What lanes of a run compute, compiled when it is first needed.

    Attributes:
        lanes: how many there are.
        agents: of all lanes, rounded up: those beyond learn, too, and nobody asks what.
    """

    def __init__(self, spec: RunSpec, environment: Functional, lanes: int = 0) -> None:
        kind: Any = spec.policy.kind
        most = spec.environment.max_steps
        limit = min(filter(None, (most, environment.limit)), default=0)
        learner = Learner(environment, kind, spec.policy.exploration, limit)
        longest = most or learners.LONGEST_TRIAL
        tester = dataclasses.replace(learner, limit=min(filter(None, (limit, longest))))
        self.lanes = lanes or lanes_for(spec, learner)
        self._each = spec.policy.agents
        step = GROUP if self.lanes * self._each <= BLOCK else BLOCK
        self.agents = math.ceil(self.lanes * self._each / step) * step
        self.begin = jax.jit(learner.begin)
        self.train = jax.jit(learner.train, donate_argnums=0)
        self.test = jax.jit(tester.trial, static_argnums=2)
        self.play = jax.jit(tester.play, donate_argnums=0)
        self.keys = jax.jit(self._keys)

    def _keys(self, seeds: jax.Array) -> jax.Array:
        """Keys of the agents of trainings with these seeds, one for each lane."""
        keys = jax.vmap(lambda seed: bits.keys(seed, self._each))(seeds)
        rest = self.agents - self.lanes * self._each
        return jnp.pad(jnp.moveaxis(keys, 1, 0).reshape(2, -1), ((0, 0), (0, rest)))


class LearnerLanes:
    """The lanes of one run whose members are learners; used as `worker.evaluation.lanes.Lanes`.

    A lane is the agents of one training. All lanes begin and end together, since trainings are
    equally long. What an agent learns depends on its hyperparameters, its training's seed and its
    number, never on who learns beside it.

    Args:
        seeds_of: gives the seeds of the trainings of each member.
    """

    def __init__(self, spec: RunSpec, programs: Programs, seeds_of: Seeds = member_seeds) -> None:
        self.spec, self.programs, self._seeds_of = spec, programs, seeds_of
        self.policy = _Named()
        self.count = programs.lanes
        self._chunk = max(1, CHUNK // programs.agents)
        self._jobs: deque[Trainings] = deque()
        self._wave: _Wave | None = None

    @property
    def busy(self) -> int:
        """Lanes in the middle of a training."""
        return 0 if self._wave is None else len(self._wave.of)

    def evaluate(
        self,
        job: EvaluationJob,
        theta: NDArray[np.float32],
        normalization: Normalization | None = None,
        pulse: Pulse = lambda take: None,
    ) -> Evaluation:
        """The returns of a job, less those that `pulse` took; see `Lanes.evaluate`."""
        playing = self.start(job, theta, normalization)
        try:
            while not playing.over:
                pulse(playing.take)
                self.step()
        except BaseException:
            self.stop(playing)
            raise
        rest = playing.take()
        assert rest is not None
        return rest

    def start(
        self,
        job: EvaluationJob,
        theta: NDArray[np.float32],
        normalization: Normalization | None = None,
    ) -> Trainings:
        """Have a job done, after those that are in hand; arguments as those of `Lanes.start`."""
        spec, size = self.spec, self.spec.size
        if job.kind == "centre":
            seeds = np.array([centre_seeds(spec, job)], dtype=np.int64).T
            trainings = Trainings(job, theta[np.newaxis, :size], seeds)
        else:
            sigma: Any = theta[size:] if theta.size > size else job.sigma
            if spec.factors is not None:
                sigma = sigma * spec.factors
            rows = np.empty((job.count * job.per_direction, size), np.float32)
            order = np.arange(size, dtype=np.int32)
            kind, first, many = spec.strategy.noise, job.first, job.count
            noise.members(
                kind, spec.seed, first, many, theta[:size], sigma, rows, order, job.per_direction
            )
            trainings = Trainings(job, rows, self._seeds_of(spec, job))
        self._jobs.append(trainings)
        return trainings

    def stop(self, job: Trainings) -> None:
        """Let go of a job: what of it is not finished never will be."""
        if job in self._jobs:
            self._jobs.remove(job)
        if self._wave is not None and not any(of in self._jobs for of, _ in self._wave.of):
            self._wave = None

    def step(self) -> list[Trainings]:
        """Take some steps in all lanes; the jobs that are over by it."""
        wave = self._wave or self._next_wave()
        if wave is None:
            return []
        if wave.learning is not None:
            self._wave = self._further(wave, wave.learning)
            return []
        assert wave.trial is not None
        trial = self.programs.play(wave.trial, wave.keys, *_span(wave.passed, self._chunk))
        self._wave = wave._replace(trial=trial, passed=wave.passed + self._chunk)
        return [] if int(trial.left.max()) > 0 else self._book(wave.of, trial)

    def close(self) -> None:
        """Let go of what is in hand."""
        self._wave = None
        self._jobs.clear()

    def _next_wave(self) -> _Wave | None:
        """The trainings that begin now: the first that are pending."""
        of: list[tuple[Trainings, int]] = []
        for job in self._jobs:
            while job.pending and len(of) < self.count:
                of.append((job, job.begun))
                job.begun += 1
        if not of:
            return None
        # Lanes without a training of their own repeat the last one.
        filled = [of[min(lane, len(of) - 1)] for lane in range(self.count)]
        parameters = np.stack([job.parameters[job.rows[number]] for job, number in filled])
        seeds = np.array([job.seeds[number] for job, number in filled], dtype=np.uint32)
        each = learners.meant(self.spec.policy, parameters).astype(np.float32)
        many = self.spec.policy.agents
        rest = self.programs.agents - self.count * many
        columns = (np.pad(np.repeat(column, many), (0, rest), mode="edge") for column in each.T)
        given = Hyperparameters(*map(jnp.asarray, columns))
        keys = self.programs.keys(jnp.asarray(seeds))
        return _Wave(of, given, keys, self.programs.begin(given, keys), None, 0)

    def _further(self, wave: _Wave, learning: Agents) -> _Wave:
        """The wave after some steps more of training."""
        count = min(self._chunk, self.spec.policy.training_steps - wave.passed)
        agents = self.programs.train(learning, wave.given, wave.keys, *_span(wave.passed, count))
        # Without waiting, steps would pile up that a request could not stop.
        jax.block_until_ready(agents.rows)
        passed = wave.passed + count
        if passed < self.spec.policy.training_steps:
            return wave._replace(learning=agents, passed=passed)
        trial = self.programs.test(agents, wave.keys, self.spec.policy.trial_episodes)
        return wave._replace(learning=None, trial=trial, passed=passed)

    def _book(self, of: list[tuple[Trainings, int]], trial: Trial) -> list[Trainings]:
        """Note what trainings gave; the jobs that are over by it."""
        policy = self.spec.policy
        shape, real = (self.count, policy.agents), self.count * policy.agents
        returns = np.asarray(trial.returns)[:real].astype(np.float64).reshape(shape)
        taken = np.asarray(trial.taken)[:real].reshape(shape).sum(axis=1, dtype=np.int64)
        for lane, (job, number) in enumerate(of):
            job.returns[number] = returns[lane].mean() / policy.trial_episodes
            job.lengths[number] = taken[lane] + policy.agents * policy.training_steps
            job.done[number] = True
        self._wave = None
        ended = [job for job in self._jobs if job.over]
        for job in ended:
            self._jobs.remove(job)
        return ended


def lanes_for(spec: RunSpec, learner: Learner) -> int:
    """How many suit: as many agents as are stepped together, if their tables are not too large."""
    fitting = learners.MOST_ESTIMATES // (spec.policy.agents * learner.size)
    return max(1, min(BLOCK // spec.policy.agents, fitting))


def _span(first: int, count: int) -> tuple[jax.Array, jax.Array]:
    return jnp.uint32(first), jnp.uint32(count)
