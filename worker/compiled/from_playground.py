"""Environments of MuJoCo Playground, whose physics is MJX, as functional ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from mujoco_playground import registry

from protocol.spaces import Box
from worker.compiled.environment import Functional
from worker.evaluation.jobs import EnvironmentUnavailable

SEEN = "state"
"""Of several observations that which a policy is to act by; others are for who trains it."""


def make(name: str, **kwargs: Any) -> Functional:
    """The environment of that name. Actions are -1 to 1, which it scales itself.

    Args:
        kwargs: of its configuration, such as `episode_length`; `impl` is `jax` unless it is said,
            since that is the same in every lane.

    Raises:
        EnvironmentUnavailable: Playground has none of that name.
    """
    if name not in registry.ALL_ENVS:
        raise EnvironmentUnavailable(
            f"MuJoCo Playground has no environment {name!r}: it has CheetahRun, WalkerWalk, "
            "CartpoleBalance, Go1JoystickFlatTerrain and others"
        )
    config = registry.get_default_config(name)
    made = registry.load(name, config=config, config_overrides={"impl": "jax", **kwargs})

    def reset(key: Any) -> tuple[Any, Any]:
        state = made.reset(key)
        return state, _seen(state.obs)

    def step(state: Any, action: Any, key: Any) -> tuple[Any, Any, Any, Any]:
        del key  # the state has its own
        # As with brax, a step may write into the dictionaries of the state that it is given.
        own = jax.tree.map(lambda array: array, state)
        moved = made.step(own, action)
        return moved, _seen(moved.obs), moved.reward, jnp.asarray(moved.done, jnp.bool_)

    size: Any = made.observation_size
    if isinstance(size, Mapping):
        size = size[SEEN]
    shape = tuple(size) if isinstance(size, tuple | list) else (int(size),)
    actions = int(made.action_size)
    bounds = Box(shape=(actions,), low=(-1.0,) * actions, high=(1.0,) * actions)
    length = int(kwargs.get("episode_length", config.episode_length))
    return Functional(Box(shape=shape), bounds, length, reset, step)


def _seen(observation: Any) -> Any:
    return observation[SEEN] if isinstance(observation, Mapping) else observation
