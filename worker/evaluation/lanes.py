"""The evaluation loop: lanes that step episodes in turn, refilled the moment an episode ends.

A lane is one environment instance. Every lane plays an episode of some member; one batched forward
pass gives all their actions. Which lane plays an episode, and beside which others, never changes
its return.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from protocol import noise, normalizer
from protocol.messages import LARGEST_RETURN
from protocol.normalizer import ObservationSums
from protocol.spec import RunSpec
from worker.evaluation.jobs import Evaluation, EvaluationJob, Normalization, join, split
from worker.policies.dense import DensePolicy, View

BLOCK_BYTES = 64 << 20
"""Members' parameters, or their observation sums, that are in memory at once, unless one pair is
larger."""
BLOCK_EPISODES = 8192
"""Episodes that are listed at once, unless one pair has more."""
BUILT_AT_ONCE = 8  # directions: they share a block of the noise stream

FEWEST_LANES = 4
MOST_LANES = 64
LANES_BYTES = 256 << 10  # parameters of all lanes stay in the cache of a core
CALL_SECONDS = 8e-6  # what a step of the lanes costs besides its lanes
CALL_SHARE = 0.01  # of the time that the lanes' environments take

EPISODES = 1 << 16  # episode indices of a direction or version
VERSION_WIDE = 1 << 63
"""Set in the index of an episode that a whole version shares: directions' indices stay below it."""

REASON_LENGTH = 200

Pulse = Callable[[], None]
Station = tuple[int, Callable[[Any], tuple[Any, Any, bool, bool, Any]], NDArray[Any]]
"""What a step of a lane needs: its number, its environment's step, where the observation goes."""


class Environment(Protocol):
    """What the loop needs of an environment."""

    def reset(self, *, seed: int) -> tuple[Any, Any]:
        """Begin an episode."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, Any]:
        """Take one step."""

    def close(self) -> None:
        """Let go of what it holds."""


class Maker(Protocol):
    """Where environments come from."""

    @property
    def limit(self) -> int:
        """Steps after which an episode is cut; 0 where nothing cuts it."""

    def make(self) -> Environment:
        """A new instance."""


class Episode(NamedTuple):
    """One episode to play.

    Attributes:
        row: of the parameters.
        group: episodes that fail together: the position of a direction in its block.
        slot: entry of the observation sums, or -1.
    """

    row: int
    group: int
    slot: int
    seed: int


@dataclass(frozen=True, eq=False)
class Played:
    """What a list of episodes gave.

    Attributes:
        totals: float64, sum of rewards of each.
        lengths: int64, steps of each.
        failures: reason per group, that of its first episode that failed.
    """

    totals: NDArray[np.float64]
    lengths: NDArray[np.int64]
    failures: dict[int, str]


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
        self.policy = DensePolicy(spec.policy, spec.environment, count)
        self.maker = maker
        self.fresh = fresh
        self.count = count
        self._environments: list[Environment | None] = [None] * count
        # Members as they are built, a few at a time, and as the policy reads them.
        self._built = self._rows = np.empty((0, spec.size), dtype=np.float32)

    def evaluate(
        self,
        job: EvaluationJob,
        theta: NDArray[np.float32],
        normalization: Normalization | None = None,
        pulse: Pulse = lambda: None,
    ) -> Evaluation:
        """The returns of a job.

        Args:
            theta: float32, shape (size,), of the job's version.
            normalization: of the job's version, where the spec has the normaliser on.
            pulse: called before every step of the lanes; what it raises ends the job.

        Raises:
            EnvironmentUnavailable: an environment that failed can't be made anew.
        """
        if job.kind == "centre":
            return self._centre(job, theta, normalization, pulse)
        pair_bytes = max(8 * self.spec.size, 32 * self.spec.environment.observation.size)
        most = min(BLOCK_BYTES // pair_bytes, BLOCK_EPISODES // (2 * job.episodes))
        blocks = split(job, math.ceil(job.count / max(1, most)))
        return join([self._members(block, theta, normalization, pulse) for block in blocks])

    def close(self) -> None:
        """Close all environments."""
        for lane in range(self.count):
            self.discard(lane)

    def environment(self, lane: int) -> Environment:
        """The lane's instance, made where there is none."""
        instance = self._environments[lane]
        if instance is None:
            instance = self._environments[lane] = self.maker.make()
        return instance

    def discard(self, lane: int) -> None:
        """Close the lane's instance; the next episode gets a new one."""
        instance, self._environments[lane] = self._environments[lane], None
        if instance is not None:
            with contextlib.suppress(Exception):
                instance.close()

    def _members(
        self,
        job: EvaluationJob,
        theta: NDArray[np.float32],
        normalization: Normalization | None,
        pulse: Pulse,
    ) -> Evaluation:
        count = job.count
        sums = self._no_sums(count if normalization else 0)
        episodes = [
            Episode(2 * group + mirror, group, group if normalization else -1, seed)
            for group, seeds in enumerate(member_seeds(self.spec, job))
            for mirror in (0, 1)
            for seed in seeds
        ]
        view = self._view(normalization, sums)
        played = Play(self, episodes, self._build(job, theta), view, pulse).run()
        totals = played.totals.reshape(count, 2, job.episodes)
        returns = totals[:, :, 0].copy()
        for episode in range(1, job.episodes):  # in this order, whatever NumPy's sum would do
            returns += totals[:, :, episode]
        returns /= job.episodes
        lengths = played.lengths.reshape(count, 2, job.episodes).sum(axis=2)
        failed = sorted(played.failures)
        returns[failed], lengths[failed], sums[failed if normalization else []] = np.nan, 0, 0
        return Evaluation(
            returns=returns,
            lengths=lengths,
            observed=_total(int(lengths.sum()), sums) if normalization else None,
            failed=tuple((job.first + group, played.failures[group]) for group in failed),
        )

    def _centre(
        self,
        job: EvaluationJob,
        theta: NDArray[np.float32],
        normalization: Normalization | None,
        pulse: Pulse,
    ) -> Evaluation:
        seeds = centre_seeds(self.spec, job)
        episodes = [Episode(0, position, -1, seed) for position, seed in enumerate(seeds)]
        parameters = np.empty((1, self.spec.size), dtype=np.float32)
        self.policy.arrange(theta[np.newaxis], parameters)
        sums = self._no_sums(0)
        played = Play(self, episodes, parameters, self._view(normalization, sums), pulse).run()
        failed = sorted(played.failures)
        returns, lengths = played.totals, played.lengths
        returns[failed], lengths[failed] = np.nan, 0
        return Evaluation(
            returns=returns,
            lengths=lengths,
            failed=tuple((job.first + position, played.failures[position]) for position in failed),
        )

    def _build(self, job: EvaluationJob, theta: NDArray[np.float32]) -> NDArray[np.float32]:
        """The members of a block, arranged for the policy: shape (2 * count, size)."""
        self._built = _room(self._built, 2 * min(job.count, BUILT_AT_ONCE))
        self._rows = _room(self._rows, 2 * job.count)
        kind, first, end = self.spec.strategy.noise, job.first, job.first + job.count
        while first < end:
            stop = min(end, (first // BUILT_AT_ONCE + 1) * BUILT_AT_ONCE)
            built = self._built[: 2 * (stop - first)]
            noise.members(kind, self.spec.seed, first, stop - first, theta, job.sigma, built)
            self.policy.arrange(built, self._rows[2 * (first - job.first) : 2 * (stop - job.first)])
            first = stop
        return self._rows[: 2 * job.count]

    def _no_sums(self, slots: int) -> NDArray[np.uint64]:
        return np.zeros((slots, self.spec.environment.observation.size, 4), dtype=np.uint64)

    def _view(self, normalization: Normalization | None, sums: NDArray[np.uint64]) -> View:
        clip = np.float32(self.spec.normalizer.clip)
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


class Play:
    """One pass over a list of episodes.

    Episodes start in the order of the list. Once one has failed, the rest of its group is not
    started; since all before it were, the reason kept is the same in any number of lanes.
    """

    def __init__(
        self,
        lanes: Lanes,
        episodes: list[Episode],
        parameters: NDArray[np.float32],
        view: View,
        pulse: Pulse,
    ) -> None:
        self.lanes, self.policy = lanes, lanes.policy
        self.episodes, self.parameters, self.view, self.pulse = episodes, parameters, view, pulse
        self.totals = np.zeros(len(episodes))
        self.lengths = np.zeros(len(episodes), dtype=np.int64)
        self.failures: dict[int, tuple[int, str]] = {}
        self.waiting: Iterator[int] = iter(range(len(episodes)))
        self.tick = 0
        """steps that every lane has had the chance to take"""
        self.position = [0] * lanes.count
        """which episode each lane plays"""
        self.reward = [0.0] * lanes.count
        self.began = [0] * lanes.count
        self.cut = [0] * lanes.count
        """tick at which each lane's episode is cut; 0 never"""
        self.moved = False
        """whether a lane stopped or changed its environment"""

    def run(self) -> Played:
        """Play all episodes."""
        playing = [lane for lane in range(self.lanes.count) if self.begin(lane)]
        while playing:
            active = np.array(playing, dtype=np.int64)
            stations = [
                (lane, self.lanes.environment(lane).step, self.policy.targets[lane])
                for lane in playing
            ]
            self.moved = False
            while not self.moved:
                over = self.step(active, stations)
                for lane in over:
                    if not self.begin(lane):
                        playing.remove(lane)
                        self.moved = True
        return Played(
            self.totals,
            self.lengths,
            {group: reason for group, (_, reason) in self.failures.items()},
        )

    def step(self, active: NDArray[np.int64], stations: Sequence[Station]) -> list[int]:
        """Take one step in each of the active lanes; those whose episode is over by it."""
        self.pulse()
        chosen = self.policy.act(active, self.parameters, self.view)
        if chosen is None:
            return self.strike_unsound(active)
        over: list[int] = []
        reward_of, cut = self.reward, self.cut
        self.tick = tick = self.tick + 1
        for (lane, step, target), action in zip(stations, chosen, strict=True):
            try:
                observation, reward, terminated, truncated, _ = step(action)
                reward_of[lane] += float(reward)
                if terminated or truncated or tick == cut[lane]:
                    self.end(lane)
                    over.append(lane)
                else:
                    target[...] = observation
            except (Exception, SystemExit) as error:
                self.fail(lane, f"step {tick - self.began[lane]} raised {_words(error)}")
                over.append(lane)
        return over

    def begin(self, lane: int) -> bool:
        """Start the next episode that a lane can start; False where none is left."""
        for position in self.waiting:
            episode = self.episodes[position]
            if episode.group in self.failures:
                continue
            self.position[lane] = position
            self.began[lane] = self.tick
            self.cut[lane] = self.tick + self.lanes.maker.limit if self.lanes.maker.limit else 0
            self.reward[lane] = 0.0
            self.policy.rows[lane] = episode.row
            self.policy.slots[lane] = episode.slot
            if self.lanes.fresh:
                self.discard(lane)
            environment, target = self.lanes.environment(lane), self.policy.targets[lane]
            try:
                observation, _ = environment.reset(seed=episode.seed)
                if np.size(observation) != target.size:
                    raise ValueError(f"an observation has shape {np.shape(observation)}")
                target[...] = observation
            except (Exception, SystemExit) as error:
                self.fail(lane, f"reset raised {_words(error)}")
                continue
            return True
        return False

    def end(self, lane: int) -> None:
        """Book a lane's episode, which is over."""
        position, total = self.position[lane], self.reward[lane]
        if not abs(total) <= LARGEST_RETURN:
            self.fail(lane, f"{self.tick - self.began[lane]} steps' rewards add up to {total}")
            return
        self.totals[position] = total
        self.lengths[position] = self.tick - self.began[lane]

    def fail(self, lane: int, reason: str) -> None:
        """Book a lane's episode as failed, and give up its environment."""
        position = self.position[lane]
        group = self.episodes[position].group
        known = self.failures.get(group)
        if known is None or position < known[0]:
            self.failures[group] = (position, reason[:REASON_LENGTH])
        self.discard(lane)

    def discard(self, lane: int) -> None:
        """Give a lane's environment up; its next episode gets a new one."""
        self.lanes.discard(lane)
        self.moved = True

    def strike_unsound(self, active: NDArray[np.int64]) -> list[int]:
        """Fail the lanes whose observation the policy can't take, and name them."""
        unsound = [lane for lane in active.tolist() if not self.policy.sound(lane)]
        for lane in unsound:
            step = self.tick - self.began[lane]
            self.fail(lane, f"the observation after step {step} is not finite or not in its space")
        return unsound


def _room(rows: NDArray[np.float32], count: int) -> NDArray[np.float32]:
    """`rows`, or a longer array where they are fewer than `count`."""
    return rows if len(rows) >= count else np.empty((count, rows.shape[1]), dtype=np.float32)


def _words(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


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
