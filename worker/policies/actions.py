"""What environments take, made of a policy's outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from protocol.spaces import Box, Discrete, MultiBinary, MultiDiscrete, Space, Tuple, leaves
from protocol.spec import RunSpec
from worker.policies.action_noise import ActionNoise
from worker.policies.activations import tanh
from worker.policies.calls import prepared
from worker.policies.sampling import softmax_choice, switched_on, uniform


@njit(cache=True, error_model="numpy")
def first_maxima(
    many: int,
    outputs: NDArray[np.float32],
    choices: NDArray[np.int64],
    chosen: NDArray[np.int64],
) -> None:
    """Each choice of row i < many is its start + the place of the first maximum of its outputs.

    Args:
        choices: shape (c, 3), of each choice the first of its outputs, their end, and its start.
            One array, since each that a kernel is called with costs a third of a microsecond.
        chosen: shape (at least many, c).
    """
    for position in range(many):
        for choice in range(choices.shape[0]):
            begin = best = choices[choice, 0]
            for place in range(begin + 1, choices[choice, 1]):
                if outputs[position, place] > outputs[position, best]:
                    best = place
            chosen[position, choice] = choices[choice, 2] + best - begin


@njit(cache=True, error_model="numpy")
def draw(
    lanes: NDArray[np.int64],
    run_seed: np.uint64,
    episodes: NDArray[np.int64],
    outputs: NDArray[np.float32],
    choices: NDArray[np.int64],
    chosen: NDArray[np.int64],
    columns: NDArray[np.int64],
    switches: NDArray[np.int8],
    room: NDArray[np.float64],
) -> None:
    """As `first_maxima` and `switch`, drawn: each choice and each switch takes the episode's next
    number, in the order of the outputs.

    Args:
        lanes: shape (l,); row i of `outputs`, `chosen` and `switches` belongs to lanes[i].
        episodes: shape (L, 2), of each lane's episode the seed, and how many numbers it has had.
        room: for as many numbers as the widest choice has.
    """
    block = np.empty(8, np.uint64)
    for position in range(lanes.size):
        seed, number = np.uint64(episodes[lanes[position], 0]), episodes[lanes[position], 1]
        choice = place = 0
        while choice < choices.shape[0] or place < columns.size:
            share = uniform(run_seed, seed, number, block)
            number += 1
            if place == columns.size or (
                choice < choices.shape[0] and choices[choice, 0] < columns[place]
            ):
                logits = outputs[position, choices[choice, 0] : choices[choice, 1]]
                found = softmax_choice(logits, share, room)
                chosen[position, choice] = choices[choice, 2] + found
                choice += 1
            else:
                switches[position, place] = switched_on(outputs[position, columns[place]], share)
                place += 1
        episodes[lanes[position], 1] = number


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
    bounds: NDArray[np.float32],
    scaled: bool,
    actions: NDArray[np.float32],
) -> None:
    """The outputs in `columns` as actions in `bounds`, shape (2, c), low and high: by tanh `scaled`
    to them, or clipped."""
    half = np.float32(0.5)
    low, high = bounds[0], bounds[1]
    for position in range(many):
        for i in range(columns.size):
            value = outputs[position, columns[i]]
            if scaled:
                centre = half * low[i] + half * high[i]
                value = centre + (half * high[i] - half * low[i]) * tanh(value)
            value = high[i] if value > high[i] else value
            actions[position, i] = low[i] if value < low[i] else value


Chosen = list[Any] | NDArray[Any]
"""Of some lanes an action each."""
Make = Callable[[], Chosen]
"""Gives a value for each of some rows."""
Assembly = Callable[[int], Make]
"""Gives what makes those of the first so many."""


class Actions:
    """Makes the actions of some lanes, as `action_space.sample` would give them.

    Choices are NumPy integers, which spaces check sooner than Python's.
    """

    def __init__(self, spec: RunSpec, lanes: int, *, apart: bool = False) -> None:
        """`apart`: see `ActionNoise`."""
        space = spec.environment.action
        self._scaled = spec.policy.squash == "tanh"
        self._sampled = spec.policy.choice == "sample"
        self._run_seed = np.uint64(spec.seed)
        self._episodes = np.zeros((lanes, 2), dtype=np.int64)
        noisy = spec.policy.action_noise != "none"
        self._noise = ActionNoise(spec, lanes, apart=apart) if noisy else None
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
        self._choices = np.array(choices, dtype=np.int64).reshape(len(choices), 3)
        self._switches, self._reals = (
            np.array(columns, dtype=np.int64) for columns in (switches, reals)
        )
        self._bounds = np.array([low, high], dtype=np.float32)
        self._room = np.empty(max([end - begin for begin, end, _ in choices], default=0))
        self._chosen = np.empty((lanes, len(choices)), dtype=np.int64)
        self._switched = np.empty((lanes, self._switches.size), dtype=np.int8)
        self._bounded = np.empty((lanes, self._reals.size), dtype=np.float32)
        self._assemble = _Plan(self._chosen, self._switched, self._bounded).of(space)

    def begin(self, lane: int, seed: int, quiet: bool = False) -> None:
        """An episode with that seed begins in the lane, without noise where it is quiet."""
        self._episodes[lane] = seed, 0
        if self._noise is not None:
            self._noise.quiet[lane] = quiet

    def prepare(
        self,
        lanes: NDArray[np.int64],
        outputs: NDArray[np.float32],
        rows: NDArray[np.int64],
        parameters: Any,
    ) -> Make:
        """What makes the actions of `lanes`, whose outputs are the first rows of `outputs`, in that
        order.

        Noise is added to these; what it has learned is in the `rows` of `parameters` that each lane
        plays.
        """
        many = lanes.size
        choices = self._choices, self._chosen
        switches = self._switches, self._switched
        calls = []
        if self._sampled:
            episodes = self._run_seed, self._episodes
            calls.append(prepared(draw, lanes, *episodes, outputs, *choices, *switches, self._room))
        else:
            if self._choices.size:
                calls.append(prepared(first_maxima, many, outputs, *choices))
            if self._switches.size:
                calls.append(prepared(switch, many, outputs, *switches))
        if self._noise is not None:
            calls += self._noise.prepare(
                lanes, self._episodes, self._reals, outputs, rows, parameters
            )
        if self._reals.size:
            reals = self._reals, self._bounds, self._scaled, self._bounded
            calls.append(prepared(bound, many, outputs, *reals))
        assemble = self._assemble(many)

        def make() -> Chosen:
            for call in calls:
                call()
            return assemble()

        return make


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
                return lambda many: column[:many].copy
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
        return _tuples(parts) if isinstance(space, Tuple) else _dicts(space.names, parts)


def _arrays(rows: NDArray[Any], shape: tuple[int, ...]) -> Assembly:
    """Rows as arrays of a shape: new ones, since environments may keep what they are given."""

    def assembly(many: int) -> Make:
        first = rows[:many].reshape(many, *shape)
        return first.copy

    return assembly


def _tuples(parts: list[Assembly]) -> Assembly:
    def assembly(many: int) -> Make:
        makes = [part(many) for part in parts]
        return lambda: list(zip(*(make() for make in makes), strict=True))

    return assembly


def _dicts(names: tuple[str, ...], parts: list[Assembly]) -> Assembly:
    tuples = _tuples(parts)

    def assembly(many: int) -> Make:
        make = tuples(many)
        return lambda: [dict(zip(names, values, strict=True)) for values in make()]

    return assembly
