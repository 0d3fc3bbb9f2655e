"""What all policies share: which lanes play what, and how they see observations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from protocol import noise
from protocol.kernels import observe_frame
from protocol.policies import reals
from protocol.spec import RunSpec, outputs
from worker.policies.actions import Actions, Chosen
from worker.policies.inputs import Inputs
from worker.policies.layers import order

Act = Callable[[], Chosen | None]
"""Gives the actions of some lanes, or None; see `Policy.act`."""
Forward = Callable[[], int]
"""Writes the outputs of some lanes; gives the number of those whose observation is not finite, and
where there is one, nothing else has been done."""


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


class Policy(ABC):
    """One run's policy on some lanes.

    Whoever steps the lanes calls `begin` when an episode begins, writes `targets` and calls `act`,
    or what `prepare_act` gives.

    Attributes:
        observations: float32 (lanes, inputs), what each lane saw when it acted last, as a vector.
        targets: row by row what an observation of a lane's environment is assigned to.
        rows: int64 (lanes,), the row of the parameters that each lane plays.
        slots: int64 (lanes,), the entry of the observation sums that counts a lane's frames, or -1.
        order: int32 (size,): `act` reads parameter order[j] at j.
        outputs: float32 (lanes, outputs), of the lanes that acted last, in their order.
        path: how lanes are computed: `kernel`, ours; by PyTorch `vmap`, together, or `loop`, one
            after the other.
        remark: a line on that for people, empty where there is nothing to say.
        numerics: what decides the last bits of outputs beside the environment; empty for our own
            kernels, which give the same on any machine.
        gives_deviations: whether learned deviations of the noise on actions are among the outputs,
            and not left to be read from the parameters.
        direction_bytes: what the members of one direction take.
        block_bytes: what the members that are built at once may take; 0 where the policy does not
            care.
    """

    path = "kernel"
    remark = ""
    numerics = ""
    gives_deviations = False
    block_bytes = 0

    def __init__(self, spec: RunSpec, lanes: int) -> None:
        self._noise = spec.strategy.noise, spec.seed
        self._per_direction = spec.members_per_direction
        self.inputs = Inputs(spec.environment.observation, lanes)
        self.observations, self.targets = self.inputs.vectors, self.inputs.targets
        self.actions = Actions(spec, lanes, apart=self.gives_deviations)
        self.order = order(spec.tensors)
        self.direction_bytes = 4 * self._per_direction * spec.size
        self.rows = np.zeros(lanes, dtype=np.int64)
        self.slots = np.full(lanes, -1, dtype=np.int64)
        many = outputs(spec.policy, spec.environment)
        if self.gives_deviations and spec.policy.action_noise == "learned":
            many += reals(spec.environment.action)
        self.outputs = np.empty((lanes, many), dtype=np.float32)

    def room(self, rows: int) -> Any:
        """Memory for so many rows of parameters, all of which or some `act` takes."""
        return np.empty((rows, self.order.size), dtype=np.float32)

    def members(
        self,
        first: int,
        count: int,
        theta: NDArray[np.float32],
        sigma: noise.Spread,
        room: Any,
    ) -> None:
        """Write the members of so many directions, + and -, or + alone, to the first rows of a
        room.

        Args:
            theta: shape (size,), in the policy's `order`, as members are.
            sigma: one number, or as `theta` one for each parameter.
        """
        kind, seed = self._noise
        per_direction = self._per_direction
        rows = room[: per_direction * count]
        noise.members(kind, seed, first, count, theta, sigma, rows, self.order, per_direction)

    def centre(self, theta: NDArray[np.float32], room: Any) -> None:
        """Write theta, in the policy's `order`, to the first row of a room."""
        room[0] = theta

    def begin(self, lane: int, row: int, slot: int, seed: int, quiet: bool = False) -> None:
        """An episode with that seed begins in the lane, with that row of the parameters and slot of
        the sums; a quiet one has no noise on its actions."""
        self.rows[lane] = row
        self.slots[lane] = slot
        self.actions.begin(lane, seed, quiet)

    def act(
        self, lanes: NDArray[np.int64], parameters: NDArray[np.float32], view: View
    ) -> Chosen | None:
        """The actions of `lanes`, in that order, as `action_space.sample` would give them.

        None, no frame counted and nothing drawn, where an observation of theirs is not `sound`. The
        same observation, parameters, seed and step give the same action bit for bit, whatever the
        other lanes do.

        Args:
            lanes: int64, shape (l,).
            parameters: what `members` gave, or theta in the policy's `order`, shape (1, size);
                `rows` points into it.
        """
        return self.prepare_act(lanes, parameters, view)()

    def prepare_act(self, lanes: NDArray[np.int64], parameters: Any, view: View) -> Act:
        """`act` with these arguments, for many calls."""
        read = self.inputs.prepare_read(lanes)
        forward = self.prepare_forward(lanes, parameters, view)
        actions = self.actions.prepare(lanes, self.outputs, self.rows, parameters)

        def act() -> Chosen | None:
            read()
            return None if forward() else actions()

        return act

    def sound(self, lane: int) -> bool:
        """Whether what the lane saw last is finite and, in a Discrete space, one of its values."""
        return bool(np.isfinite(self.observations[lane]).all())

    @abstractmethod
    def prepare_forward(self, lanes: NDArray[np.int64], parameters: Any, view: View) -> Forward:
        """What writes `outputs` for the lanes; arguments as those of `act`."""
