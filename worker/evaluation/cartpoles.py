"""CartPole in many lanes: the dynamics of Gymnasium's own vector version, episodes one by one.

The vector version alone can't be used: it begins all episodes from one stream of random numbers,
and those of a run have seeds of their own.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleEnv, CartPoleVectorEnv
from gymnasium.spaces import MultiDiscrete
from numpy.typing import NDArray

from worker.evaluation.environments import Maker
from worker.evaluation.vector import Step, Told, Vector, VectorMaker

IDS = frozenset({"CartPole-v0", "CartPole-v1"})
ENTRY_POINTS = (CartPoleEnv, f"{CartPoleEnv.__module__}:{CartPoleEnv.__qualname__}")
START = 0.05
FEW = 8  # below it the vector version takes longer than one after the other


def vectorised(maker: Maker) -> VectorMaker | None:
    """The maker of the same episodes in lanes that step as one, where there may be one."""
    spec, registration = maker.environment, maker.registration
    altered = (
        spec.kwargs or spec.wrappers or registration.kwargs or registration.additional_wrappers
    )
    # Somebody may have registered another environment, or another way to it, under the id.
    if spec.id not in IDS or altered or registration.entry_point not in ENTRY_POINTS:
        return None
    single = maker.make().unwrapped
    return VectorMaker(CartPoles(single), maker.limit) if type(single) is CartPoleEnv else None


@cache
def _actions(count: int) -> MultiDiscrete:
    return MultiDiscrete(np.full(count, 2))


class CartPoles(Vector):
    """CartPoles of default arguments; `single` is one of them, alone."""

    def __init__(self, single: CartPoleEnv) -> None:
        super().__init__()
        self._single: Any = single
        self._many: Any = CartPoleVectorEnv()
        self._states = np.empty((4, 0))

    def reset(self, number: int, seed: int) -> Any:
        """Begin an episode; see `Vector.reset`."""
        if number >= self._states.shape[1]:
            more = np.empty((4, number + 1))
            self._states = np.concatenate((self._states, more), axis=1)
        # What `CartPoleEnv.reset` does, less what else it looks after, which takes as long again.
        generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
        state = self._states[:, number] = generator.uniform(-START, START, 4)
        return state.astype(np.float32)

    def prepare_step(self, numbers: NDArray[np.int64]) -> Step:
        """What takes a step in each; see `Vector.prepare_step`."""
        return partial(self._step_singly if numbers.size < FEW else self._step, numbers)

    def _step(self, numbers: NDArray[np.int64], actions: NDArray[np.int64]) -> Told:
        many, count = self._many, numbers.size
        many.action_space = _actions(count)
        many.state = self._states[:, numbers]
        # Neither its time limit nor its way to begin anew.
        many.steps, many.prev_done = np.zeros(count, np.int32), np.zeros(count, np.bool_)
        observations, rewards, terminated, _, _ = many.step(actions)
        self._states[:, numbers] = many.state
        return observations, rewards, terminated

    def _step_singly(self, numbers: NDArray[np.int64], actions: NDArray[np.int64]) -> Told:
        single, told = self._single, []
        for number, action in zip(numbers.tolist(), actions, strict=True):
            single.state, single.steps_beyond_terminated = self._states[:, number], None
            told.append(single.step(action)[:3])
            self._states[:, number] = single.state
        observations, rewards, terminated = zip(*told, strict=True)
        return np.array(observations), np.array(rewards), np.array(terminated)
