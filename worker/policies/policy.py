"""What all policies share: how lanes see observations, and how outputs become actions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from protocol.kernels import observe_frame
from protocol.spec import Box, Discrete, RunSpec
from worker.policies.activations import tanh
from worker.policies.layers import order

ZERO = np.float32(0.0)


class View(NamedTuple):
    """How a version's policy sees observations, and where its frames are counted.

    Kernels take it as a plain tuple: the name of its type would cost each call a microsecond.

    Attributes:
        mean, inverse_deviation: float32, (inputs,), or (0,) where observations are not normalised.
        clip: of normalised observations.
        shift, scale, sums: see `protocol.kernels.observe_frame`; one (inputs, 4) table per slot.
    """

    mean: NDArray[np.float32]
    inverse_deviation: NDArray[np.float32]
    clip: np.float32
    shift: NDArray[np.float64]
    scale: NDArray[np.float64]
    sums: NDArray[np.uint64]


@njit(error_model="numpy")
def unsound(lanes: NDArray[np.int64], observations: NDArray[np.float32]) -> int:
    """How many of the lanes have an observation that is not finite."""
    broken = 0
    for lane in lanes:
        for i in range(observations.shape[1]):
            if not np.isfinite(observations[lane, i]):
                broken += 1
                break
    return broken


@njit(inline="always", error_model="numpy")
def see(
    observation: NDArray[np.float32], slot: int, view: View, room: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Count a frame in its slot, and give the policy's inputs: the observation, or normalised in
    `room`. Slot -1 counts nowhere."""
    mean, inverse_deviation, clip, shift, scale, sums = view
    if slot >= 0:
        observe_frame(observation, shift, scale, sums[slot])
    seen = observation
    if mean.size:
        seen = room[: observation.size]
        for i in range(observation.size):
            value = (observation[i] - mean[i]) * inverse_deviation[i]
            value = clip if value > clip else value
            seen[i] = -clip if value < -clip else value
    return seen


@njit(cache=True, error_model="numpy")
def one_hot(
    lanes: NDArray[np.int64],
    indices: NDArray[np.int64],
    start: int,
    observations: NDArray[np.float32],
) -> None:
    """Rows of `observations` become 1 at index - start and else 0; all NaN where that's outside."""
    for lane in lanes:
        index = indices[lane, 0] - start
        inside = 0 <= index < observations.shape[1]
        observations[lane, :] = ZERO if inside else np.float32(np.nan)
        if inside:
            observations[lane, index] = np.float32(1.0)


@njit(cache=True, error_model="numpy")
def first_maxima(
    outputs: NDArray[np.float32], count: int, start: int, chosen: NDArray[np.int64]
) -> None:
    """chosen[i] = start + where row i of `outputs` has its first maximum, for i < count."""
    for position in range(count):
        best = 0
        for action in range(1, outputs.shape[1]):
            if outputs[position, action] > outputs[position, best]:
                best = action
        chosen[position] = start + best


@njit(cache=True, error_model="numpy")
def bound(
    outputs: NDArray[np.float32],
    low: NDArray[np.float32],
    high: NDArray[np.float32],
    scaled: bool,
    actions: NDArray[np.float32],
) -> None:
    """Rows of `outputs` as actions in [low, high]: by tanh `scaled` to them, or clipped."""
    half = np.float32(0.5)
    for position in range(actions.shape[0]):
        for i in range(actions.shape[1]):
            value = outputs[position, i]
            if scaled:
                centre = half * low[i] + half * high[i]
                value = centre + (half * high[i] - half * low[i]) * tanh(value)
            value = high[i] if value > high[i] else value
            actions[position, i] = low[i] if value < low[i] else value


class Policy(ABC):
    """One run's policy on some lanes.

    Whoever steps the lanes calls `begin` when an episode begins, writes `targets` and calls `act`.

    Attributes:
        observations: float32 (lanes, inputs), what each lane saw last; one-hot for Discrete spaces.
        targets: per lane the array that an observation of the environment is assigned to.
        rows: int64 (lanes,), the row of the parameters that each lane plays.
        slots: int64 (lanes,), the entry of the observation sums that counts a lane's frames, or -1.
        order: int32 (size,): `act` reads parameter order[j] at j.
        outputs: float32 (lanes, outputs), of the lanes that acted last, in their order.
    """

    def __init__(self, spec: RunSpec, lanes: int) -> None:
        self._seen, self._action = spec.environment.observation, spec.environment.action
        self.order = order(spec.tensors)
        self.observations = np.zeros((lanes, self._seen.size), dtype=np.float32)
        self.rows = np.zeros(lanes, dtype=np.int64)
        self.slots = np.full(lanes, -1, dtype=np.int64)
        self._indices = np.zeros((lanes, 1), dtype=np.int64)
        self.targets: list[NDArray[Any]] = list(
            self.observations.reshape(lanes, *self._seen.shape)
            if isinstance(self._seen, Box)
            else self._indices
        )
        self._scaled = spec.policy.squash == "tanh"
        self.outputs = np.empty((lanes, self._action.size), dtype=np.float32)
        self._chosen = np.empty(lanes, dtype=np.int64)
        if isinstance(self._action, Box):
            self._low = np.array(self._action.low, dtype=np.float32)
            self._high = np.array(self._action.high, dtype=np.float32)

    def begin(self, lane: int, row: int, slot: int, seed: int) -> None:
        """An episode with that seed begins in the lane, with that row of the parameters and slot of
        the sums."""
        self.rows[lane] = row
        self.slots[lane] = slot

    def act(
        self, lanes: NDArray[np.int64], parameters: NDArray[np.float32], view: View
    ) -> list[Any] | None:
        """The actions of `lanes`, in that order, as `action_space.sample` would give them: NumPy
        integers (spaces check them sooner than Python's), or float32 arrays of the space's shape.

        None, and no frame counted, where an observation of theirs is not `sound`. The same
        observation and parameters give the same action bit for bit, whatever the other lanes do.

        Args:
            lanes: int64, shape (l,).
            parameters: members in the policy's `order`; `rows` points into it.
        """
        if isinstance(self._seen, Discrete):
            one_hot(lanes, self._indices, self._seen.start, self.observations)
        if self.forward(lanes, parameters, view):
            return None
        if isinstance(self._action, Discrete):
            first_maxima(self.outputs, lanes.size, self._action.start, self._chosen)
            return list(self._chosen[: lanes.size])
        # A new array each time, since environments may keep the actions that they are given.
        actions = np.empty((lanes.size, self._action.size), dtype=np.float32)
        bound(self.outputs, self._low, self._high, self._scaled, actions)
        return list(actions.reshape(lanes.size, *self._action.shape))

    def sound(self, lane: int) -> bool:
        """Whether what the lane saw last is finite and, in a Discrete space, one of its values."""
        return bool(np.isfinite(self.observations[lane]).all())

    @abstractmethod
    def forward(self, lanes: NDArray[np.int64], parameters: NDArray[np.float32], view: View) -> int:
        """Write `outputs` for the lanes; or the number of those whose observation is not finite,
        and nothing is done."""
