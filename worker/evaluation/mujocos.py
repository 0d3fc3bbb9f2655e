"""Gymnasium's MuJoCo tasks in lanes: one model for all, and what their steps tell by one kernel.

Their own `step` takes half as long again as the simulation in it: checks of shapes, arrays of
parts, dictionaries of what nobody reads, forces that most tasks don't tell of. And instances with a
model each push one another out of the caches.
"""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from worker.evaluation import mujoco_steps
from worker.evaluation.environments import Maker
from worker.evaluation.mujoco_steps import Rules
from worker.evaluation.vector import Share, Step, Told, Vector, VectorMaker
from worker.policies.calls import prepared


class Task(NamedTuple):
    """What sets one of the tasks apart.

    Attributes:
        entry_point: as Gymnasium registers it.
        tell, steer: kernels.
        hidden: coordinates that are not observed, unless the arguments say that all are.
        slow: observed velocities are cut at that many units.
        fields: of a simulation, that the kernels read beside positions, velocities and controls.
    """

    entry_point: str
    tell: Any
    steer: Any = mujoco_steps.steer
    hidden: int = 1
    slow: float = np.inf
    fields: tuple[str, ...] = ("qpos",)


HUMANOID = ("xipos", "cfrc_ext", "cinert", "cvel", "qfrc_actuator")
TASKS = {
    "HalfCheetah-v5": Task("half_cheetah_v5:HalfCheetahEnv", mujoco_steps.tell_cheetah),
    "Swimmer-v5": Task("swimmer_v5:SwimmerEnv", mujoco_steps.tell_cheetah, hidden=2),
    "Hopper-v5": Task("hopper_v5:HopperEnv", mujoco_steps.tell_walker, slow=10.0),
    "Walker2d-v5": Task("walker2d_v5:Walker2dEnv", mujoco_steps.tell_walker, slow=10.0),
    "InvertedPendulum-v5": Task(
        "inverted_pendulum_v5:InvertedPendulumEnv", mujoco_steps.tell_pendulum, hidden=0
    ),
    "Ant-v5": Task(
        "ant_v5:AntEnv", mujoco_steps.tell_ant, hidden=2, fields=("main body", "cfrc_ext")
    ),
    "Humanoid-v5": Task(
        "humanoid_v5:HumanoidEnv",
        mujoco_steps.tell_humanoid,
        mujoco_steps.steer_humanoid,
        hidden=2,
        fields=HUMANOID,
    ),
}
MODULES = "gymnasium.envs.mujoco."
"""Where their entry points are."""
ARGUMENTS = frozenset(
    {
        "frame_skip",
        "forward_reward_weight",
        "ctrl_cost_weight",
        "contact_cost_weight",
        "healthy_reward",
        "terminate_when_unhealthy",
        "reset_noise_scale",
        "exclude_current_positions_from_observation",
    }
)
"""Those that change no more than what is read off the instance; another model would."""
ANYTHING = (-np.inf, np.inf)


def rules_of(task: Task, single: Any) -> Rules:
    """What steps of an instance tell."""

    def number(name: str) -> float:
        return float(getattr(single, name, 0.0))

    def bounds(name: str) -> tuple[float, float]:
        low, high = getattr(single, name, ANYTHING)
        return float(low), float(high)

    return Rules(
        task.hidden if getattr(single, "_exclude_current_positions_from_observation", True) else 0,
        task.slow,
        float(single.dt),
        number("_forward_reward_weight"),
        number("_ctrl_cost_weight"),
        number("_contact_cost_weight"),
        bounds("_contact_force_range"),
        bounds("_contact_cost_range"),
        bool(number("_terminate_when_unhealthy")),
        number("_healthy_reward"),
        bounds("_healthy_z_range"),
        bounds("_healthy_angle_range"),
        hasattr(single, "_healthy_state_range"),
        bounds("_healthy_state_range"),
    )


class Mujocos(Vector):
    """Environments of one task; `single` is one of them, alone."""

    as_one = False

    def __init__(self, task: Task, single: Any) -> None:
        import mujoco  # type: ignore[import-untyped]

        super().__init__()
        self._mujoco, self._task, self._single = mujoco, task, single
        self._model = single.model
        mass = np.expand_dims(self._model.body_mass, axis=1)
        self._masses = np.append(mass, np.sum(mass))
        self._rules = rules_of(task, single)
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
        self._single.data = self._data[number]
        return self._single.reset(seed=seed)[0]

    def prepare_step(self, numbers: NDArray[np.int64]) -> Step:
        """What takes a step in each; see `Vector.prepare_step`."""
        mujoco, model, skip = self._mujoco, self._model, self._single.frame_skip
        data = [self._data[number] for number in numbers]  # keeps what the kernels write to
        where = np.array([self._where(each) for each in data], dtype=np.uint64)
        actions, begun = np.empty((len(data), model.nu), dtype=np.float32), np.empty(len(data))
        observations = np.empty((len(data), *self._single.observation_space.shape))
        rewards, ended = np.empty(len(data)), np.empty(len(data), dtype=np.bool_)
        given = where, actions, self._masses, begun
        rules = (model.nq, model.nv), tuple(self._rules)
        steer = prepared(self._task.steer, *given)
        tell = prepared(self._task.tell, *given, *rules, observations, rewards, ended)
        simulate, failure = mujoco.mj_step, mujoco.FatalError
        forces = mujoco.mj_rnePostConstraint if "cfrc_ext" in self._task.fields else None

        def step(chosen: NDArray[Any]) -> Told:
            actions[...] = chosen
            steer()
            broken = []
            for place, each in enumerate(data):
                try:
                    simulate(model, each, skip)
                    if forces is not None:
                        forces(model, each)
                except failure:
                    broken.append(place)
            tell()
            if broken:
                rewards[broken] = np.nan  # which no episode may have; the others go on
                ended[broken] = True
            return observations, rewards, ended

        return step

    def _where(self, data: Any) -> list[int]:
        """Where a simulation's numbers are that the kernels want, which is for as long as it is."""
        arrays = [
            data.body(self._single._main_body).xpos if name == "main body" else getattr(data, name)
            for name in ("qpos", "qvel", "ctrl", *self._task.fields)
        ]
        return [array.__array_interface__["data"][0] for array in arrays]


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
    if type(getattr(single, "_ctrl_cost_weight", 0.0)) not in (int, float):
        return None  # which would make the cost of an action's effort another kind of number
    return VectorMaker(Mujocos(task, single), maker.limit)
