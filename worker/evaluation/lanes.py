"""The evaluation loop: lanes that step episodes in turn, refilled the moment an episode ends.

A lane is one environment instance. Every lane plays an episode of some member; one batched forward
pass gives all their actions. Which lane plays an episode, and beside which others, never changes
its return.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from protocol import noise, normalizer
from protocol.normalizer import ObservationSums
from protocol.spec import RunSpec
from worker.evaluation.jobs import Evaluation, EvaluationJob, Normalization, join, split
from worker.evaluation.playing import Episode, Instances, Maker, Play
from worker.policies import built_in
from worker.policies.policy import View

BLOCK_BYTES = 64 << 20
"""Members' parameters, or their observation sums, that are in memory at once, unless one pair is
larger."""
BLOCK_EPISODES = 8192
"""Episodes that are listed at once, unless one pair has more."""

FEWEST_LANES = 4
MOST_LANES = 64
LANES_BYTES = 256 << 10  # parameters of all lanes stay in the cache of a core
CALL_SECONDS = 8e-6  # what a step of the lanes costs besides its lanes
CALL_SHARE = 0.01  # of the time that the lanes' environments take

EPISODES = 1 << 16  # episode indices of a direction or version
VERSION_WIDE = 1 << 63
"""Set in the index of an episode that a whole version shares: directions' indices stay below it."""

Take = Callable[[], Evaluation | None]
"""Gives what is finished of a job and not taken yet, up to the first direction that is not."""
Pulse = Callable[[Take], None]


def lane_count(size: int, step_seconds: float) -> int:
    """How many lanes suit; it never changes a return.

    Enough to spread the cost of a forward call thin, few enough for the cache.

    Args:
        size: number of parameters.
        step_seconds: of the environment.
    """
    enough = math.ceil(CALL_SECONDS / (CALL_SHARE * step_seconds))
    return max(FEWEST_LANES, min(enough, MOST_LANES, LANES_BYTES // (4 * size)))


def member_seeds(spec: RunSpec, job: EvaluationJob) -> list[list[int]]:
    """Episode seeds of each direction of a job, which both its members play.

    By the spec's seeding their index is direction * 65536 + episode (`pair`), 2**63 +
    version * 65536 + episode (`version`), or episode (`fixed`).
    """
    episodes = np.arange(job.episodes, dtype=np.uint64)
    if spec.environment.seeding == "pair":
        directions = np.arange(job.first, job.first + job.count, dtype=np.uint64)
        indices = directions[:, np.newaxis] * np.uint64(EPISODES) + episodes
    elif spec.environment.seeding == "version":
        base = np.uint64(VERSION_WIDE + job.version * EPISODES)
        indices = np.tile(base + episodes, (job.count, 1))
    else:
        indices = np.tile(episodes, (job.count, 1))
    seeds: list[list[int]] = noise.episode_seeds(spec.seed, indices).tolist()
    return seeds


def centre_seeds(spec: RunSpec, job: EvaluationJob) -> list[int]:
    """Seeds of the centre's episodes: domain 4, index version * 65536 + episode."""
    base = job.version * EPISODES + job.first
    indices = np.arange(base, base + job.count, dtype=np.uint64)
    seeds: list[int] = noise.episode_seeds(spec.seed, indices, noise.Domain.CENTRE).tolist()
    return seeds


class Lanes:
    """The lanes of one run, kept from job to job.

    Args:
        count: of lanes.
        fresh: make a new instance for every episode, for environments that a reset doesn't renew.
    """

    def __init__(self, spec: RunSpec, maker: Maker, count: int, *, fresh: bool = False) -> None:
        self.spec = spec
        self.policy = built_in.make(spec, count)
        self.instances = Instances(maker, count, fresh=fresh)
        self._rows = np.empty((0, spec.size), dtype=np.float32)

    def evaluate(
        self,
        job: EvaluationJob,
        theta: NDArray[np.float32],
        normalization: Normalization | None = None,
        pulse: Pulse = lambda take: None,
    ) -> Evaluation:
        """The returns of a job, less those that `pulse` took; there are always some left.

        Args:
            theta: float32, shape (size,), of the job's version.
            normalization: of the job's version, where the spec has the normaliser on.
            pulse: called before every step of the lanes; what it raises ends the job.

        Raises:
            EnvironmentUnavailable: an environment that failed can't be made anew.
        """
        kept: list[Evaluation] = []
        block: Block | None = None

        def take() -> Evaluation | None:
            pieces = [*kept, *(block.harvest() if block is not None else [])]
            kept.clear()
            return join(pieces) if pieces else None

        ordered = theta[self.policy.order]
        for piece in self._blocks(job):
            block = Block(self, piece, ordered, normalization, lambda: pulse(take))
            block.play.run()
            kept += block.harvest()
            block = None
        return join(kept)

    def close(self) -> None:
        """Close all environments."""
        self.instances.close()

    def build(self, job: EvaluationJob, theta: NDArray[np.float32]) -> NDArray[np.float32]:
        """The members of a block, shape (2 * count, size); they and `theta` in the policy's order.

        The next call writes over them.
        """
        if len(self._rows) < 2 * job.count:
            self._rows = np.empty((2 * job.count, self.spec.size), dtype=np.float32)
        rows = self._rows[: 2 * job.count]
        kind, order = self.spec.strategy.noise, self.policy.order
        return noise.members(
            kind, self.spec.seed, job.first, job.count, theta, job.sigma, rows, order
        )

    def _blocks(self, job: EvaluationJob) -> list[EvaluationJob]:
        """A job as consecutive jobs that fit into memory."""
        if job.kind == "centre":
            return [job]
        pair_bytes = max(8 * self.spec.size, 32 * self.spec.environment.observation.size)
        most = min(BLOCK_BYTES // pair_bytes, BLOCK_EPISODES // (2 * job.episodes))
        return split(job, math.ceil(job.count / max(1, most)))


class Block:
    """What is played in one pass: a job that fits into memory; `theta` in the policy's order."""

    def __init__(
        self,
        lanes: Lanes,
        job: EvaluationJob,
        theta: NDArray[np.float32],
        normalization: Normalization | None,
        pulse: Callable[[], None],
    ) -> None:
        spec, self.job = lanes.spec, job
        self.observing = job.kind == "members" and normalization is not None
        slots = job.count if self.observing else 0
        self.sums = np.zeros((slots, spec.environment.observation.size, 4), dtype=np.uint64)
        self.harvested = 0
        """directions, or episodes of the centre, that were given away"""
        if job.kind == "centre":
            seeds = centre_seeds(spec, job)
            episodes = [Episode(0, place, -1, seed) for place, seed in enumerate(seeds)]
            parameters = theta[np.newaxis]
        else:
            episodes = [
                Episode(2 * group + mirror, group, group if self.observing else -1, seed)
                for group, seeds in enumerate(member_seeds(spec, job))
                for mirror in (0, 1)
                for seed in seeds
            ]
            parameters = lanes.build(job, theta)
        view = _view(spec, normalization, self.sums)
        self.play = Play(lanes.instances, lanes.policy, episodes, parameters, view, pulse)

    def harvest(self) -> list[Evaluation]:
        """What is finished, up to the first that is not, and was not given away before."""
        begin, end = self.harvested, self.play.finished()
        if begin == end:
            return []
        self.harvested = end
        job, play = self.job, self.play
        shape = (*job.shape, job.episodes_per_return)
        totals = play.totals.reshape(shape)[begin:end]
        lengths = play.lengths.reshape(shape)[begin:end].sum(axis=-1)
        returns = totals[..., 0].copy()
        for episode in range(1, job.episodes_per_return):  # in this order, unlike NumPy's sum
            returns += totals[..., episode]
        returns /= job.episodes_per_return
        failed = sorted(group for group in play.failures if begin <= group < end)
        places = [group - begin for group in failed]
        returns[places], lengths[places] = np.nan, 0
        observed = None
        if self.observing:
            self.sums[failed] = 0
            observed = _total(int(lengths.sum()), self.sums[begin:end])
        return [
            Evaluation(
                first=job.first + begin,
                returns=returns,
                lengths=lengths,
                observed=observed,
                failed=tuple((job.first + group, play.failures[group][1]) for group in failed),
            )
        ]


def _view(spec: RunSpec, normalization: Normalization | None, sums: NDArray[np.uint64]) -> View:
    clip = np.float32(spec.normalizer.clip)
    if normalization is None:
        none, nothing = np.empty(0, np.float32), np.empty(0)
        return View(none, none, clip, nothing, nothing, sums)
    return View(
        normalization.mean,
        normalization.inverse_deviation,
        clip,
        normalization.shift,
        normalization.scale,
        sums,
    )


def _total(count: int, tables: NDArray[np.uint64]) -> ObservationSums:
    """The sums over all directions of `tables`, shape (directions, dims, 4), exactly."""
    half, mask = np.uint64(32), np.uint64(0xFFFF_FFFF)
    low, high = tables[:, :, 0::2], tables[:, :, 1::2]
    # Halves of a word, so that the carry of fewer than 2**32 directions fits beside them.
    first = (low & mask).sum(axis=0, dtype=np.uint64)
    second = (low >> half).sum(axis=0, dtype=np.uint64) + (first >> half)
    words = np.empty(tables.shape[1:], dtype=np.uint64)
    words[:, 0::2] = (first & mask) | (second << half)
    words[:, 1::2] = high.sum(axis=0, dtype=np.uint64) + (second >> half)
    return normalizer.from_words(count, words)
