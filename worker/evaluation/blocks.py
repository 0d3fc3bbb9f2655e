"""A piece of a job that is played in one pass: its episodes and members, and what they gave."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from protocol import noise, normalizer
from protocol.normalizer import ObservationSums
from protocol.spec import RunSpec
from worker.evaluation.jobs import Evaluation, EvaluationJob, Normalization
from worker.evaluation.playing import Episode, Play
from worker.policies.policy import Policy, View

EPISODES = 1 << 16  # episode indices of a direction or version
MIRRORED = 1 << 15
"""Added to the episode of a mirrored member that plays episodes of its own."""
VERSION_WIDE = 1 << 63
"""Set in the index of an episode that a whole version shares: directions' indices stay below it."""


def member_seeds(spec: RunSpec, job: EvaluationJob) -> NDArray[np.int64]:
    """Episode seeds of each member of a job, shape (members, episodes): of a direction's at +sigma,
    then of its mirrored one.

    By the spec's seeding their index is direction * 65536 + episode (`pair`), 32768 more for the
    mirrored member (`member`), 2**63 + version * 65536 + episode (`version`), or episode (`fixed`,
    and the first `fixed_versions` in any run).
    """
    environment = spec.environment
    seeding = "fixed" if job.version < environment.fixed_versions else environment.seeding
    episodes = np.arange(job.episodes, dtype=np.uint64)
    each = job.per_direction
    members = each * job.count
    if seeding == "pair" or seeding == "member":
        directions = np.repeat(np.arange(job.first, job.first + job.count, dtype=np.uint64), each)
        indices = directions[:, np.newaxis] * np.uint64(EPISODES) + episodes
        if seeding == "member" and each > 1:
            indices[1::2] += np.uint64(MIRRORED)
    elif seeding == "version":
        base = np.uint64(VERSION_WIDE + job.version * EPISODES)
        indices = np.tile(base + episodes, (members, 1))
    else:
        indices = np.tile(episodes, (members, 1))
    return noise.episode_seeds(spec.seed, indices)


Seeds = Callable[[RunSpec, EvaluationJob], NDArray[np.int64]]
"""Gives the episode seeds of each member of a job, shape (members, episodes)."""
MakePlay = Callable[["Episodes", int], Play]
"""Gives what plays these episodes, each cut after so many steps; 0 for never."""


def centre_seeds(spec: RunSpec, job: EvaluationJob) -> list[int]:
    """Seeds of the centre's episodes: domain 4, index version * 65536 + episode."""
    base = job.version * EPISODES + job.first
    indices = np.arange(base, base + job.count, dtype=np.uint64)
    seeds: list[int] = noise.episode_seeds(spec.seed, indices, noise.Domain.CENTRE).tolist()
    return seeds


class Episodes(NamedTuple):
    """Episodes to play, as columns of int64; see `Episode`."""

    rows: NDArray[np.int64]
    groups: NDArray[np.int64]
    slots: NDArray[np.int64]
    seeds: NDArray[np.int64]
    quiet: bool

    def one_by_one(self) -> list[Episode]:
        """The same as a list."""
        columns = (column.tolist() for column in self[:4])
        return [
            Episode(row, group, slot, seed, self.quiet)
            for row, group, slot, seed in zip(*columns, strict=True)
        ]


class Place(NamedTuple):
    """A block's part of a room.

    Attributes:
        number: of the place.
        row, slot: the first of its own, of the room's parameters and sums.
        parameters: its rows, as many as members, of what `Policy.room` gave.
        sums: uint64, its slots: shape (directions, dims, 4), or (0, dims, 4) without normaliser.
    """

    number: int
    row: int
    slot: int
    parameters: Any
    sums: NDArray[np.uint64]


class Room:
    """The memory of all blocks in play: so lanes of several can act together.

    Memory that no block has used costs nothing.

    Args:
        directions: of a block at most.
        blocks: at once at most.
    """

    def __init__(self, spec: RunSpec, policy: Policy, directions: int, blocks: int) -> None:
        self.spec = spec
        self._members = spec.members_per_direction * directions
        dims = spec.environment.observation.size
        slots = directions if spec.normalizer.enabled else 0
        self.parameters: Any = policy.room(self._members * blocks)
        self.sums = np.zeros((slots * blocks, dims, 4), dtype=np.uint64)
        self.directions, self._slots = directions, slots
        self._free = list(range(blocks))

    def take(self) -> Place | None:
        """A free place, or None."""
        if not self._free:
            return None
        number = self._free.pop()
        row, slot = self._members * number, self._slots * number
        parameters = self.parameters[row : row + self._members]
        return Place(number, row, slot, parameters, self.sums[slot : slot + self._slots])

    def release(self, place: Place) -> None:
        """A place is free again."""
        self._free.append(place.number)

    def view(self, normalization: Normalization | None) -> View:
        """How a version's policy sees."""
        clip = np.float32(self.spec.normalizer.bound)
        if normalization is None:
            none, nothing = np.empty(0, np.float32), np.empty(0)
            return View(none, none, clip, nothing, nothing, self.sums)
        return View(
            normalization.mean,
            normalization.inverse_deviation,
            clip,
            normalization.shift,
            normalization.scale,
            self.sums,
        )


class Block:
    """A job that fits into memory, in play.

    Args:
        place: where its members, or theta where it is of the centre, and its sums are.
        observed: whether frames of members are counted.
        seeds_of: gives the episode seeds of each member.
    """

    def __init__(
        self,
        spec: RunSpec,
        job: EvaluationJob,
        place: Place,
        observed: bool,
        make_play: MakePlay,
        seeds_of: Seeds = member_seeds,
    ) -> None:
        self.job, self.place = job, place
        self.observing = job.kind == "members" and observed
        self.sums = place.sums
        if self.observing:
            self.sums[: job.count] = 0
        self.harvested = 0
        """directions, or episodes of the centre, that were given away"""
        if job.kind == "centre":
            seeds = np.array([centre_seeds(spec, job)], dtype=np.int64).T
            groups, rows = np.arange(job.count), np.zeros(job.count, dtype=np.int64)
        else:
            seeds = seeds_of(spec, job)
            rows = np.arange(job.per_direction * job.count)
            groups = rows // job.per_direction
        slots = place.slot + groups if self.observing else np.full_like(groups, -1)
        rows, groups, slots = (
            np.repeat(column, seeds.shape[1]) for column in (place.row + rows, groups, slots)
        )
        quiet = job.kind == "centre" and not spec.policy.centre_noise
        episodes = Episodes(rows, groups, slots, seeds.ravel(), quiet)
        self.play = make_play(episodes, job.cap)

    def harvest(self) -> Evaluation | None:
        """What is finished, up to the first that is not, and was not given away before."""
        begin, end = self.harvested, self.play.finished()
        if begin == end:
            return None
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
        return Evaluation(
            first=job.first + begin,
            returns=returns,
            lengths=lengths,
            observed=observed,
            failed=tuple((job.first + group, play.failures[group][1]) for group in failed),
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
