"""The evaluation loop: lanes that step episodes in turn, refilled the moment an episode ends.

A lane is one environment instance. Every lane plays an episode of some member; one batched forward
pass gives the actions of all that play one version. Which lane plays an episode, and beside which
others, never changes its return.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocol.spec import RunSpec
from worker.evaluation.blocks import Block, Episodes, Room, Seeds, member_seeds
from worker.evaluation.jobs import Evaluation, EvaluationJob, Normalization, join, split
from worker.evaluation.playing import Crew, Instances, Maker, Play
from worker.policies import making
from worker.policies.making import NOTHING, Grant
from worker.policies.policy import View
from worker.policies.signs import OCTET

BLOCK_BYTES = 64 << 20
"""A block's members' parameters, or their observation sums, unless one direction's are larger."""
BLOCK_EPISODES = 8192
"""Episodes of a block, unless one direction has more."""
MOST_BLOCKS = 2
"""In play at once: while the last episodes of one go on, those of the next begin."""

Take = Callable[[], Evaluation | None]
"""Gives what is finished of a job and not taken yet, up to the first direction that is not."""
Pulse = Callable[[Take], None]


class InPlay:
    """A job that lanes play: what of it is to begin, in play, finished.

    Attributes:
        theta: float32, shape (size,), in the policy's order.
        sigmas: likewise, where each parameter has its own; else None.
        unbegun: consecutive pieces, each of which fits into memory.
        blocks: those that are in play.
    """

    def __init__(
        self,
        pieces: list[EvaluationJob],
        theta: NDArray[np.float32],
        sigmas: NDArray[Any] | None,
        view: View,
        normalization: Normalization | None,
    ) -> None:
        self.theta, self.sigmas = theta, sigmas
        self.view, self.normalization = view, normalization
        self.unbegun = deque(pieces)
        self.blocks: list[Block] = []
        self._finished: list[Evaluation] = []
        self._next = pieces[0].first
        """first direction, or episode of the centre, that was not taken"""

    @property
    def over(self) -> bool:
        """Whether all of it is finished."""
        return not self.unbegun and not self.blocks

    def take(self) -> Evaluation | None:
        """What is finished and was not taken before, up to the first that is not finished."""
        for block in self.blocks:
            self._gather(block)
        self._finished.sort(key=lambda evaluation: evaluation.first)
        consecutive: list[Evaluation] = []
        while self._finished and self._finished[0].first == self._next:
            consecutive.append(self._finished.pop(0))
            self._next = consecutive[-1].end
        return join(consecutive) if consecutive else None

    def end(self, block: Block) -> None:
        """A block is over."""
        self._gather(block)
        self.blocks.remove(block)

    def _gather(self, block: Block) -> None:
        if (evaluation := block.harvest()) is not None:
            self._finished.append(evaluation)


class Lanes:
    """The lanes of one run, which play one job or several at once.

    A lane that finds no more episodes of a job plays those of the next, be it of another version.

    Args:
        count: of lanes.
        fresh: make a new instance for every episode, for environments that a reset doesn't renew.
        grant: what the volunteer lets the policy use.
        instances: of at least as many lanes, where others play on them too, while these don't.
        seeds_of: gives the episode seeds of each member.
    """

    def __init__(
        self,
        spec: RunSpec,
        maker: Maker,
        count: int,
        *,
        fresh: bool = False,
        grant: Grant = NOTHING,
        instances: Instances | None = None,
        seeds_of: Seeds = member_seeds,
    ) -> None:
        self.spec = spec
        self.policy = making.make(spec, count, grant)
        self.count, self._seeds_of = count, seeds_of
        self.instances = instances or Instances(maker, count, fresh=fresh)
        factors = spec.factors
        self._factors = None if factors is None else factors[self.policy.order]
        self._jobs: list[InPlay] = []
        self._blocks: list[tuple[Block, InPlay]] = []
        """all that are in play; only the last may have episodes that have not begun"""
        self._free = list(range(count))
        self._crews: list[Crew] = []
        """of these blocks"""

    @cached_property
    def _room(self) -> Room:
        return Room(self.spec, self.policy, self._directions(1), MOST_BLOCKS)

    def evaluate(
        self,
        job: EvaluationJob,
        theta: NDArray[np.float32],
        normalization: Normalization | None = None,
        pulse: Pulse = lambda take: None,
    ) -> Evaluation:
        """The returns of a job, less those that `pulse` took; there are always some left.

        Args:
            theta: float32, shape (size,), of the job's version; where that has a sigma for each
                parameter instead of the job's, these follow.
            normalization: of the job's version, where the spec has the normaliser on.
            pulse: called before every step of the lanes; what it raises ends the job.

        Raises:
            EnvironmentUnavailable: an environment that failed can't be made anew.
        """
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
    ) -> InPlay:
        """Have a job played, after those that are in play and beside their last episodes; arguments
        as those of `evaluate`."""
        views = (one.view for one in self._jobs if one.normalization is normalization)
        view = next(views, None) or self._room.view(normalization)
        order, size = self.policy.order, self.spec.size
        sigmas: NDArray[Any] | None = theta[size:][order] if theta.size > size else None
        if self._factors is not None:
            sigmas = (job.sigma if sigmas is None else sigmas) * self._factors
        playing = InPlay(self._pieces(job), theta[:size][order], sigmas, view, normalization)
        self._jobs.append(playing)
        return playing

    def stop(self, job: InPlay) -> None:
        """Let go of a job: what of it is not finished never will be."""
        if job in self._jobs:
            self._jobs.remove(job)
        for block in job.blocks:
            self._room.release(block.place)
        self._blocks = [(block, of) for block, of in self._blocks if of is not job]
        self._muster()
        playing = {lane for block, _ in self._blocks for lane in block.play.playing}
        self._free = [lane for lane in range(self.count) if lane not in playing]
        job.blocks.clear()
        job.unbegun.clear()

    def step(self) -> list[InPlay]:
        """Take one step in each lane that finds something to play; the jobs that are over by it.

        Raises:
            EnvironmentUnavailable: an environment that failed can't be made anew; all jobs are to
                be stopped.
        """
        if self._free:
            self._fill()
        free = []
        for crew in self._crews:
            free += crew.step()
        self._free += free
        return self._end() if self._free else []

    @property
    def busy(self) -> int:
        """Lanes in the middle of an episode."""
        return sum(len(block.play.playing) for block, _ in self._blocks)

    def build(self, piece: EvaluationJob, of: InPlay, rows: Any) -> None:
        """Write what a block plays to the first rows, in the policy's order."""
        if piece.kind == "centre":
            self.policy.centre(of.theta, rows)
        else:
            sigma = piece.sigma if of.sigmas is None else of.sigmas
            self.policy.members(piece.first, piece.count, of.theta, sigma, rows)

    def make_play(self, episodes: Episodes, cap: int) -> Play:
        """The play of these episodes, each cut after `cap` steps; 0 for never."""
        return Play(self.instances, self.policy, episodes.one_by_one(), cap)

    def close(self) -> None:
        """Close all environments."""
        self.instances.close()

    def _fill(self) -> None:
        """Give free lanes something to play."""
        while self._free and (play := self._pending()) is not None:
            while self._free and play.join(self._free[-1]):
                self._free.pop()

    def _pending(self) -> Play | None:
        """What a free lane may join."""
        if self._blocks and self._blocks[-1][0].play.pending:
            return self._blocks[-1][0].play
        job = next((job for job in self._jobs if job.unbegun), None)
        if job is None or (place := self._room.take()) is None:
            return None
        piece = job.unbegun.popleft()
        observed = self.spec.normalizer.enabled and job.normalization is not None
        self.build(piece, job, place.parameters)
        block = Block(self.spec, piece, place, observed, self.make_play, self._seeds_of)
        job.blocks.append(block)
        self._blocks.append((block, job))
        self._muster()
        return block.play

    def _muster(self) -> None:
        """Put the blocks in play into crews."""
        plays: dict[int, list[Play]] = {}
        views = {}
        for block, job in self._blocks:
            plays.setdefault(id(job.view), []).append(block.play)
            views[id(job.view)] = job.view
        self._crews = [
            Crew(self.policy, plays[of], self._room.parameters, view) for of, view in views.items()
        ]

    def _end(self) -> list[InPlay]:
        """Part with the blocks that are over; the jobs that are over by it."""
        ended = []
        for block, job in [entry for entry in self._blocks if entry[0].play.over]:
            job.end(block)
            self._blocks.remove((block, job))
            self._room.release(block.place)
            self._muster()
            if job.over:
                self._jobs.remove(job)
                ended.append(job)
        return ended

    def _pieces(self, job: EvaluationJob) -> list[EvaluationJob]:
        """A job as consecutive jobs that fit into memory."""
        if job.kind == "centre":
            return [job]
        return split(
            job, math.ceil(job.count / min(self._room.directions, self._directions(job.episodes)))
        )

    def _directions(self, episodes: int) -> int:
        """How many are in a block at most, with so many episodes of each member."""
        members = self.spec.members_per_direction
        each = max(self.policy.direction_bytes, 32 * self.spec.environment.observation.size)
        block_bytes = self.policy.block_bytes or BLOCK_BYTES
        many = min(block_bytes // each, BLOCK_EPISODES // (members * episodes))
        # Their noise is made eight at a time: a block is of such groups, if it is not smaller.
        return many // OCTET * OCTET or max(1, many)
