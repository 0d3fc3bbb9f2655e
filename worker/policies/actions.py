"""What environments take, made of a policy's outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from protocol.spaces import Box, Discrete, MultiBinary, MultiDiscrete, Space, Tuple, leaves
from protocol.spec import RunSpec
from worker.policies.activations import tanh
from worker.policies.sampling import softmax_choice, switched_on, uniform


@njit(cache=True, error_model="numpy")
def first_maxima(
    many: int,
    outputs: NDArray[np.float32],
    begins: NDArray[np.int64],
    ends: NDArray[np.int64],
    starts: NDArray[np.int64],
    chosen: NDArray[np.int64],
) -> None:
    """Choice c of row i < many is starts[c] + the place of the first maximum among its outputs:
    those from begins[c] to ends[c]."""
    for position in range(many):
        for choice in range(begins.size):
            begin = best = begins[choice]
            for place in range(begin + 1, ends[choice]):
                if outputs[position, place] > outputs[position, best]:
                    best = place
            chosen[position, choice] = starts[choice] + best - begin


@njit(cache=True, error_model="numpy")
def draw(
    lanes: NDArray[np.int64],
    run_seed: np.uint64,
    seeds: NDArray[np.uint64],
    drawn: NDArray[np.int64],
    outputs: NDArray[np.float32],
    begins: NDArray[np.int64],
    ends: NDArray[np.int64],
    starts: NDArray[np.int64],
    chosen: NDArray[np.int64],
    columns: NDArray[np.int64],
    switches: NDArray[np.int8],
    room: NDArray[np.float64],
) -> None:
    """As `first_maxima` and `switch`, drawn: each choice and each switch takes the episode's next
    number, in the order of the outputs.

    Args:
        lanes: shape (l,); row i of `outputs`, `chosen` and `switches` belongs to lanes[i].
        seeds, drawn: shape (L,), of each lane's episode, and how many numbers it has had.
        room: for as many numbers as the widest choice has.
    """
    block = np.empty(8, np.uint64)
    for position in range(lanes.size):
        lane = lanes[position]
        choice = place = 0
        while choice < begins.size or place < columns.size:
            share = uniform(run_seed, seeds[lane], drawn[lane], block)
            drawn[lane] += 1
            if place == columns.size or (choice < begins.size and begins[choice] < columns[place]):
                logits = outputs[position, begins[choice] : ends[choice]]
                chosen[position, choice] = starts[choice] + softmax_choice(logits, share, room)
                choice += 1
            else:
                switches[position, place] = switched_on(outputs[position, columns[place]], share)
                place += 1


@njit(cache=True, error_model="numpy")
def switch(
    many: int,
    outputs: NDArray[np.float32],
    columns: NDArray[np.int64],
    switches: NDArray[np.int8],
) -> None:
    """Switches of the first rows are on where the outputs in `columns` are positive."""
    for position in range(many):
        for place in range(columns.size):
            switches[position, place] = outputs[position, columns[place]] > 0


@njit(cache=True, error_model="numpy")
def bound(
    many: int,
    outputs: NDArray[np.float32],
    columns: NDArray[np.int64],
    low: NDArray[np.float32],
    high: NDArray[np.float32],
    scaled: bool,
    actions: NDArray[np.float32],
) -> None:
    """The outputs in `columns` as actions in [low, high]: by tanh `scaled` to them, or clipped."""
    half = np.float32(0.5)
    for position in range(many):
        for i in range(columns.size):
            value = outputs[position, columns[i]]
            if scaled:
                centre = half * low[i] + half * high[i]
                value = centre + (half * high[i] - half * low[i]) * tanh(value)
            value = high[i] if value > high[i] else value
            actions[position, i] = low[i] if value < low[i] else value


Assembly = Callable[[int], list[Any]]
"""Gives the values of the first so many rows."""


class Actions:
    """Makes the actions of some lanes, as `action_space.sample` would give them.

    Choices are NumPy integers, which spaces check sooner than Python's.
    """

    def __init__(self, spec: RunSpec, lanes: int) -> None:
        space = spec.environment.action
        self._scaled = spec.policy.squash == "tanh"
        self._sampled = spec.policy.choice == "sample"
        self._run_seed = np.uint64(spec.seed)
        self._seeds = np.zeros(lanes, dtype=np.uint64)
        self._drawn = np.zeros(lanes, dtype=np.int64)
        choices: list[tuple[int, int, int]] = []
        switches: list[int] = []
        reals: list[int] = []
        low: list[float] = []
        high: list[float] = []
        place = 0
        for part in leaves(space):
            if isinstance(part, Box):
                reals += range(place, place + part.size)
                low += part.low
                high += part.high
            elif isinstance(part, MultiBinary):
                switches += range(place, place + part.size)
            else:
                begin = place
                for many, start in _choices(part):
                    choices.append((begin, begin + many, start))
                    begin += many
            place += part.size
        self._begins, self._ends, self._starts = (
            np.array(column, dtype=np.int64)
            for column in (zip(*choices, strict=True) if choices else ((), (), ()))
        )
        self._switches, self._reals = (
            np.array(columns, dtype=np.int64) for columns in (switches, reals)
        )
        self._low, self._high = (np.array(bounds, dtype=np.float32) for bounds in (low, high))
        self._room = np.empty(max([end - begin for begin, end, _ in choices], default=0))
        self._chosen = np.empty((lanes, self._begins.size), dtype=np.int64)
        self._switched = np.empty((lanes, self._switches.size), dtype=np.int8)
        self._bounded = np.empty((lanes, self._reals.size), dtype=np.float32)
        self._assemble = _Plan(self._chosen, self._switched, self._bounded).of(space)

    def begin(self, lane: int, seed: int) -> None:
        """An episode with that seed begins in the lane."""
        self._seeds[lane] = seed
        self._drawn[lane] = 0

    def of(self, lanes: NDArray[np.int64], outputs: NDArray[np.float32]) -> list[Any]:
        """The actions of `lanes`, whose outputs are the first rows of `outputs`, in that order."""
        many = lanes.size
        choices = self._begins, self._ends, self._starts, self._chosen
        switches = self._switches, self._switched
        if self._sampled:
            streams = self._run_seed, self._seeds, self._drawn
            draw(lanes, *streams, outputs, *choices, *switches, self._room)
        else:
            if self._begins.size:
                first_maxima(many, outputs, *choices)
            if self._switches.size:
                switch(many, outputs, *switches)
        if self._reals.size:
            bounds = self._low, self._high, self._scaled
            bound(many, outputs, self._reals, *bounds, self._bounded)
        return self._assemble(many)


def _choices(part: Discrete | MultiDiscrete) -> list[tuple[int, int]]:
    """(number, start) of each choice of a part."""
    if isinstance(part, Discrete):
        return [(part.n, part.start)]
    return list(zip(part.choices, part.start or (0,) * len(part.choices), strict=True))


class _Plan:
    """Finds the parts of an action in the rows where they are written, in order."""

    def __init__(
        self,
        chosen: NDArray[np.int64],
        switched: NDArray[np.int8],
        bounded: NDArray[np.float32],
    ) -> None:
        self.chosen, self.switched, self.bounded = chosen, switched, bounded

    def of(self, space: Space) -> Assembly:
        """What makes values of the space, which takes its columns off the front."""
        match space:
            case Discrete():
                column, self.chosen = self.chosen[:, 0], self.chosen[:, 1:]
                return lambda many: list(column[:many])
            case MultiDiscrete():
                count = len(space.choices)
                chosen, self.chosen = self.chosen[:, :count], self.chosen[:, count:]
                return _arrays(chosen, space.shape)
            case MultiBinary():
                switched, self.switched = np.split(self.switched, [space.size], axis=1)
                return _arrays(switched, space.shape)
            case Box():
                bounded, self.bounded = np.split(self.bounded, [space.size], axis=1)
                return _arrays(bounded, space.shape)
        parts = [self.of(part) for part in space.spaces]
        if isinstance(space, Tuple):
            return lambda many: list(zip(*(part(many) for part in parts), strict=True))
        names = space.names
        return lambda many: [
            dict(zip(names, values, strict=True))
            for values in zip(*(part(many) for part in parts), strict=True)
        ]


def _arrays(rows: NDArray[Any], shape: tuple[int, ...]) -> Assembly:
    """Rows as arrays of a shape: new ones, since environments may keep what they are given."""
    return lambda many: list(rows[:many].copy().reshape(many, *shape))
