"""Lanes that step together in compiled chunks, and are refilled between two of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocol import noise
from protocol.spec import RunSpec
from worker.compiled.booking import Lots, book
from worker.compiled.environment import Functional
from worker.compiled.plays import CompiledPlay
from worker.compiled.program import STEPS, Lane, Programs, Told
from worker.evaluation.blocks import Episodes, Seeds, member_seeds
from worker.evaluation.lanes import InPlay, Lanes

GROUP = 16
"""Lanes come in such numbers: a processor's vector unit has no rest to compute otherwise."""
LONGER = 4
"""By so much the steps of a chunk are more, each time fewer lanes go on."""
MOST_STEPS = 256
"""Of a chunk: requests and signs of life wait for its end."""
REFILLED = 0.75
"""Lanes go on without a look while more than this part of them play."""
NEVER = np.iinfo(np.int32).max
NARROWER = 4
"""By so much fewer lanes go on, once all that is left to play fits them."""


class Members:
    """What `Lanes` asks of a policy: rows of parameters on the host, made by the usual kernels.

    See `worker.policies.policy.Policy` for the attributes.
    """

    block_bytes = 0
    remark = ""

    def __init__(self, spec: RunSpec, order: NDArray[np.int32]) -> None:
        self._noise = spec.strategy.noise, spec.seed
        self._per_direction = spec.members_per_direction
        self.order = order
        self.direction_bytes = 4 * self._per_direction * spec.size

    def room(self, rows: int) -> NDArray[np.float32]:
        """Memory for so many rows of parameters."""
        return np.empty((rows, self.order.size), dtype=np.float32)

    def members(
        self,
        first: int,
        count: int,
        theta: NDArray[np.float32],
        sigma: noise.Spread,
        room: NDArray[np.float32],
    ) -> None:
        """Write the members of so many directions to the first rows of a room."""
        kind, seed = self._noise
        per_direction = self._per_direction
        rows = room[: per_direction * count]
        noise.members(kind, seed, first, count, theta, sigma, rows, self.order, per_direction)

    def centre(self, theta: NDArray[np.float32], room: NDArray[np.float32]) -> None:
        """Write theta, in the policy's `order`, to the first row of a room."""
        room[0] = theta


class CompiledLanes(Lanes):
    """The lanes of one run in JAX; used as `Lanes`, with chunks in the place of single steps.

    Args:
        count: of lanes, rounded up to a multiple of 16.
        programs: those of the run, to be shared among several; each number of lanes compiles its
            own.
    """

    def __init__(
        self,
        spec: RunSpec,
        functional: Functional,
        count: int,
        *,
        limit: int = 0,
        programs: Programs | None = None,
        seeds_of: Seeds = member_seeds,
    ) -> None:
        self.spec = spec
        self.programs = programs or Programs(spec, functional)
        self.policy: Any = Members(spec, self.programs.order)
        self.limit = limit
        self.most = self.count = math.ceil(count / GROUP) * GROUP
        self._seeds_of = seeds_of
        self.instances: Any = None
        factors = spec.factors
        self._factors = None if factors is None else factors[self.policy.order]
        self._jobs: list[InPlay] = []
        self._blocks: list[tuple[Any, InPlay]] = []
        self._free = list(range(self.count))
        choosing = self.programs.choosing
        self._lots = Lots(spec.seed, spec.policy.action_deviation, choosing.shares, choosing.reals)
        self._begin_anew()

    def _begin_anew(self) -> None:
        """Lanes that play nothing, and what the host knows of each."""
        count, inputs = self.count, self.programs.inputs
        self._lanes, self._episodes = self.programs.blank(count)
        self._blank = True
        """whether nothing is played in them"""
        self._rows = Lane(*(np.zeros(array.shape, np.float32) for array in self._lanes))
        self._new = np.zeros(count, np.bool_)
        self._seeds = np.zeros(count, np.int64)
        self._quiet = np.zeros(count, np.bool_)
        self._totals = np.zeros(count)
        self._steps, self._cuts, self._views = (np.zeros(count, np.int64) for _ in range(3))
        self._slots = np.full(count, -1, np.int64)
        self._codes = np.zeros(count, np.int8)
        self._shift = self._scale = np.zeros((0, inputs))

    @property
    def widths(self) -> list[int]:
        """Numbers of lanes that are stepped, the most first."""
        found = [self.most]
        while found[-1] > GROUP:
            found.append(math.ceil(found[-1] / NARROWER / GROUP) * GROUP)
        return found

    def step(self) -> list[InPlay]:
        """Take a chunk of steps in each lane that finds something to play; the jobs that are over
        by it."""
        if self._free:
            self._fit()
            self._fill()
        self._begin()
        lanes = self._playing()
        if not lanes.size:
            return self._end()
        told = self._chunk(lanes)
        book(
            lanes,
            *told,
            self._totals,
            self._steps,
            self._cuts,
            self._slots,
            self._views,
            self._shift,
            self._scale,
            self._room.sums,
            self._codes,
        )
        for block, _ in self._blocks:
            over = block.play.book(self._codes, self._totals, self._steps)
            self._free += over.tolist()
        return self._end() if self._free else []

    def warm(self) -> None:
        """Compile the programs of every number of lanes, none of which plays anything after it, but
        those that few episodes alone would begin with."""
        nothing = np.empty(0, np.int64)
        for width in self.widths:
            if width != self.count:
                self._narrow(nothing, width)
            else:
                for self._blank in (True, False):
                    self._new[0] = True
                    self._begin()
            self._chunk(nothing)
        for width in reversed(self.widths[:-1]):
            self._widen(width)
        self._blank = True

    def close(self) -> None:
        """There is nothing to close."""

    def make_play(self, episodes: Episodes, cap: int) -> Any:
        """The play of these episodes."""
        limit = min(filter(None, (self.limit, cap)), default=0)
        return CompiledPlay(episodes, limit)

    def _chunk(self, lanes: NDArray[np.int64]) -> Told:
        """Take a chunk of steps: more where few lanes step, since a look at them costs as much; but
        none once so many are done that others take their place, or that fewer lanes go on."""
        count, level = self.count, self.widths.index(self.count)
        steps = min(STEPS * LONGER**level, MOST_STEPS)
        lots = self._lots.next(steps, count, lanes, self._seeds, self._steps, self._quiet)
        playing = np.zeros(count, np.bool_)
        playing[lanes] = True
        cuts = np.where(self._cuts[:count] > 0, self._cuts[:count], NEVER).astype(np.int32)
        if self._more:
            enough = int(REFILLED * lanes.size)
        else:
            enough = self.widths[level + 1] if count > GROUP else 0
        least = np.int32(min(enough, lanes.size - 1))
        self._episodes, told, taken = self.programs.chunk(
            self._lanes, self._episodes, lots, playing, cuts, least
        )
        return Told(*(np.asarray(array)[: int(taken)] for array in told))

    @property
    def _more(self) -> bool:
        """Whether there are episodes for lanes that are done."""
        waiting = any(block.play.left for block, _ in self._blocks)
        return waiting or any(job.unbegun for job in self._jobs)

    def _playing(self) -> NDArray[np.int64]:
        """All lanes in the middle of an episode."""
        found = [block.play.playing for block, _ in self._blocks]
        return np.concatenate(found) if found else np.empty(0, np.int64)

    def _fill(self) -> None:
        """Give free lanes something to play."""
        self._free.sort()
        while self._free and self._pending() is not None:
            block, job = self._blocks[-1]
            play: CompiledPlay = block.play
            lanes = np.array(self._free, np.int64)
            positions = play.join(lanes)
            lanes, self._free = lanes[: positions.size], self._free[positions.size :]
            self._new[lanes] = True
            self._seeds[lanes] = play.seeds[positions]
            self._quiet[lanes] = play.quiet
            self._slots[lanes] = play.slots[positions]
            self._cuts[lanes] = play.limit
            self._views[lanes] = block.place.number
            self._totals[lanes], self._steps[lanes] = 0.0, 0
            _copy(self._room.parameters, play.rows[positions], self._rows.parameters, lanes)
            if self.programs.normalised:
                self._rows.mean[lanes] = job.view.mean if job.view.mean.size else 0.0
                inverse = job.view.inverse_deviation
                self._rows.inverse_deviation[lanes] = inverse if inverse.size else 1.0

    def _begin(self) -> None:
        """Have the new lanes' episodes begin."""
        if not self._new.any():
            return
        count = self.count
        seeds = self._seeds[:count].astype(np.uint32)
        # JAX may go on reading what it is given, or even keep it, and these are changed later.
        rows = Lane(*(array[:count].copy() for array in self._rows))
        if self._blank:
            begun = self.programs.begin_all(rows, seeds)
        else:
            new = self._new[:count].copy()
            begun = self.programs.begin(self._lanes, self._episodes, new, rows, seeds)
        self._lanes, self._episodes = begun
        self._new[:], self._blank = False, False

    def _fit(self) -> None:
        """Go on with as many lanes as all that is left to play needs."""
        playing = self._playing()
        needed = playing.size + sum(block.play.left for block, _ in self._blocks)
        if any(job.unbegun for job in self._jobs):
            needed = self.most
        widths = self.widths
        width = next((one for one in reversed(widths) if one >= needed), self.most)
        if not playing.size:
            self._blank = True
            self.count, self._free = width, list(range(width))
        while width < self.count:
            self._narrow(self._playing(), widths[widths.index(self.count) + 1])
        while width > self.count:
            self._widen(widths[widths.index(self.count) - 1])

    def _widen(self, width: int) -> None:
        self._lanes, self._episodes = self.programs.widen(self._lanes, self._episodes, width)
        self._free += range(self.count, width)
        self.count = width

    def _narrow(self, playing: NDArray[np.int64], width: int) -> None:
        which = np.zeros(width, np.int64)
        which[: playing.size] = playing
        kept = self.programs.narrow(self._lanes, self._episodes, which)
        self._lanes, self._episodes = kept
        places = np.zeros(self.count, np.int64)
        places[playing] = np.arange(playing.size)
        for block, _ in self._blocks:
            block.play.renumber(places)
        for array in (
            self._seeds,
            self._quiet,
            self._totals,
            self._steps,
            self._cuts,
            self._views,
            self._slots,
        ):
            array[:width] = array[which]
        self.count = width
        self._free = list(range(playing.size, width))

    def _muster(self) -> None:
        """Have at hand how the frames of each block in play are measured."""
        tables = np.zeros((2, 1 + max((b.place.number for b, _ in self._blocks), default=0), 0))
        if self.programs.normalised:
            tables = np.zeros((2, tables.shape[1], self.programs.inputs))
            for block, job in self._blocks:
                if job.view.shift.size:
                    tables[0, block.place.number] = job.view.shift
                    tables[1, block.place.number] = job.view.scale
        self._shift, self._scale = tables


def _copy(
    room: NDArray[np.float32],
    rows: NDArray[np.int64],
    to: NDArray[np.float32],
    places: NDArray[np.int64],
) -> None:
    """Copy rows to ascending places; in one go where neither has gaps."""
    count = rows.size
    if count and places[-1] - places[0] == count - 1:
        target = to[places[0] : places[0] + count]
        if (np.diff(rows) == 1).all():
            target[...] = room[rows[0] : rows[0] + count]
        else:
            np.take(room, rows, axis=0, out=target, mode="clip")
    else:
        to[places] = room[rows]
