"""Gymnasium's MuJoCo tasks in lanes: one model for all, and what a step tells by one kernel.

Their own `step` takes half as long again as the simulation in it: checks of shapes, arrays of
parts, dictionaries of what nobody reads, forces that most tasks don't tell of. And instances with a
model each push one another out of the caches.
"""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from worker.evaluation.environments import Maker
from worker.evaluation.vector import Share, Step, Told, Vector, VectorMaker, stream
from worker.policies.calls import prepared


class Task(NamedTuple):
    """What sets one of the tasks apart.

    Attributes:
        entry_point: as Gymnasium registers it.
        hidden: coordinates that are not observed, unless the arguments say that all are.
        slow: observed velocities are cut at that many units.
        normal: velocities begin normally distributed, not uniformly.
        healthy: staying in some ranges is rewarded, and may be what an episode lasts for.
    """

    entry_point: str
    hidden: int = 1
    slow: float = np.inf
    normal: bool = False
    healthy: bool = False


TASKS = {
    "HalfCheetah-v5": Task("half_cheetah_v5:HalfCheetahEnv", normal=True),
    "Swimmer-v5": Task("swimmer_v5:SwimmerEnv", hidden=2),
    "Hopper-v5": Task("hopper_v5:HopperEnv", slow=10.0, healthy=True),
    "Walker2d-v5": Task("walker2d_v5:Walker2dEnv", slow=10.0, healthy=True),
}
MODULES = "gymnasium.envs.mujoco."
"""Where their entry points are."""
ARGUMENTS = frozenset(
    {
        "frame_skip",
        "forward_reward_weight",
        "ctrl_cost_weight",
        "healthy_reward",
        "terminate_when_unhealthy",
        "reset_noise_scale",
        "exclude_current_positions_from_observation",
    }
)
"""Those that change no more than what is read off the instance; another model would."""
ANYTHING = (-np.inf, np.inf)


class Rules(NamedTuple):
    """What a step tells, in numbers; kernels take it as a plain tuple.

    Attributes:
        hidden, slow: see `Task`.
        seconds: of a step.
        forward: reward of a unit of distance in a second.
        effort: cost of an action's square, float32 as actions are.
        healthy, lasting: whether ranges are rewarded, and end the episode where they are left.
        reward: of a step within them.
        height, angle: of the second and third coordinate.
        checked: whether all coordinates from the third on, and velocities, have a range, `state`.
    """

    hidden: int
    slow: float
    seconds: float
    forward: float
    effort: np.float32
    healthy: bool
    lasting: bool
    reward: float
    height: tuple[float, float]
    angle: tuple[float, float]
    checked: bool
    state: tuple[float, float]

    @classmethod
    def of(cls, task: Task, single: Any) -> Rules:
        """Those of an instance."""
        return cls(
            task.hidden if single._exclude_current_positions_from_observation else 0,
            task.slow,
            float(single.dt),
            float(single._forward_reward_weight),
            np.float32(single._ctrl_cost_weight),
            task.healthy,
            bool(getattr(single, "_terminate_when_unhealthy", False)),
            float(getattr(single, "_healthy_reward", 0.0)),
            _range(getattr(single, "_healthy_z_range", ANYTHING)),
            _range(getattr(single, "_healthy_angle_range", ANYTHING)),
            hasattr(single, "_healthy_state_range"),
            _range(getattr(single, "_healthy_state_range", ANYTHING)),
        )


def _range(bounds: Any) -> tuple[float, float]:
    low, high = bounds
    return float(low), float(high)


@njit(inline="always", error_model="numpy")
def within(value: float, bounds: tuple[float, float]) -> bool:
    """Whether a value lies between two others."""
    return bounds[0] < value < bounds[1]


@njit(cache=True, error_model="numpy")
def tell(
    actions: NDArray[np.float32],
    begun: NDArray[np.float64],
    coordinates: NDArray[np.float64],
    velocities: NDArray[np.float64],
    rules: Rules,
    observations: NDArray[np.float64],
    rewards: NDArray[np.float64],
    ended: NDArray[np.bool_],
) -> None:
    """What steps tell: the tasks' own expressions in their own order, so that it is the same bits.

    Args:
        actions: shape (l, actuators), fewer than 8, which NumPy would add up in another order.
        begun: shape (l,), first coordinates before the step.
        coordinates, velocities: shape (l, positions) and (l, degrees of freedom), after the step.
        observations, rewards, ended: of `l` rows each, written.
    """
    (hidden, slow, seconds, forward, effort) = rules[:5]
    (healthy, lasting, reward, height, angle, checked, state) = rules[5:]
    for place in range(begun.size):
        position, velocity = coordinates[place], velocities[place]
        seen = observations[place]
        shown = position.size - hidden
        for i in range(shown):
            seen[i] = position[hidden + i]
        for i in range(velocity.size):
            value = velocity[i]
            value = -slow if value < -slow else value
            seen[shown + i] = slow if value > slow else value
        squares = np.float32(0.0)
        for i in range(actions.shape[1]):
            squares += actions[place, i] * actions[place, i]
        told = forward * ((position[0] - begun[place]) / seconds)
        ended[place] = False
        if healthy:
            well = within(position[1], height) and within(position[2], angle)
            if checked:
                for i in range(2, position.size):
                    well = well and within(position[i], state)
                for i in range(velocity.size):
                    well = well and within(velocity[i], state)
            told += (1.0 if well else 0.0) * reward
            ended[place] = lasting and not well
        rewards[place] = told - np.float64(effort * squares)


class Mujocos(Vector):
    """Environments of one task; `single` is one of them, alone."""

    as_one = False

    def __init__(self, task: Task, single: Any) -> None:
        import mujoco  # type: ignore[import-untyped]

        super().__init__()
        self._mujoco, self._single, self._model = mujoco, single, single.model
        self._normal, self._scale = task.normal, single._reset_noise_scale
        self._rules = Rules.of(task, single)
        self._data: list[Any] = []

    def share(self) -> Share:
        """One more of its environments."""
        share = super().share()
        if share.number == len(self._data):
            self._data.append(None)
        self._data[share.number] = self._mujoco.MjData(self._model)
        return share

    def release(self, number: int) -> None:
        """Let go of one of its environments."""
        super().release(number)
        self._data[number] = None

    def reset(self, number: int, seed: int) -> Any:
        """Begin an episode; see `Vector.reset`."""
        single, scale, generator = self._single, self._scale, stream(seed)
        model, data = self._model, self._data[number]
        self._mujoco.mj_resetData(model, data)
        data.qpos[:] = single.init_qpos + generator.uniform(-scale, scale, model.nq)
        data.qvel[:] = single.init_qvel + (
            scale * generator.standard_normal(model.nv)
            if self._normal
            else generator.uniform(-scale, scale, model.nv)
        )
        self._mujoco.mj_forward(model, data)
        slow = self._rules.slow
        seen = data.qpos[self._rules.hidden :], np.clip(data.qvel, -slow, slow)
        return np.concatenate(seen)

    def prepare_step(self, numbers: NDArray[np.int64]) -> Step:
        """What takes a step in each; see `Vector.prepare_step`."""
        model, rules, count = self._model, self._rules, numbers.size
        actions = np.empty((count, model.nu), dtype=np.float32)
        coordinates, velocities = np.empty((count, model.nq)), np.empty((count, model.nv))
        observations = np.empty((count, model.nq - rules.hidden + model.nv))
        begun, rewards, ended = np.empty(count), np.empty(count), np.empty(count, dtype=np.bool_)
        simulated = actions, begun, coordinates, velocities
        tell_all = prepared(tell, *simulated, tuple(rules), observations, rewards, ended)
        lanes = [
            (place, data, data.ctrl, data.qpos, data.qvel, actions[place], *rows)
            for place, (data, *rows) in enumerate(
                zip(map(self._data.__getitem__, numbers), coordinates, velocities, strict=True)
            )
        ]
        simulate, failure = self._mujoco.mj_step, self._mujoco.FatalError
        skip = self._single.frame_skip

        def step(chosen: NDArray[Any]) -> Told:
            actions[...] = chosen
            broken = []
            for place, data, control, qpos, qvel, action, coordinate, velocity in lanes:
                begun[place] = qpos[0]
                control[:] = action
                try:
                    simulate(model, data, skip)
                except failure:
                    broken.append(place)
                coordinate[:] = qpos
                velocity[:] = qvel
            tell_all()
            if broken:
                rewards[broken] = np.nan  # which no episode may have; the others go on
                ended[broken] = True
            return observations, rewards, ended

        return step


def vectorised(maker: Maker) -> VectorMaker | None:
    """The maker of the same episodes in lanes that step as one, where there may be one."""
    spec, registration = maker.environment, maker.registration
    task = TASKS.get(spec.id)
    if task is None or spec.wrappers or registration.additional_wrappers:
        return None
    if not ARGUMENTS.issuperset([*registration.kwargs, *spec.kwargs]):
        return None
    module, name = (MODULES + task.entry_point).split(":")
    kind = getattr(importlib.import_module(module), name)
    # Somebody may have registered another environment, or another way to it, under the id.
    if registration.entry_point not in (kind, MODULES + task.entry_point):
        return None
    single: Any = maker.make().unwrapped
    if type(single) is not kind or type(single._ctrl_cost_weight) not in (int, float):
        return None
    return VectorMaker(Mujocos(task, single), maker.limit)
