"""Environments of brax as functional ones."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from brax import envs

from protocol.spaces import Box
from worker.compiled.environment import Functional
from worker.evaluation.jobs import EnvironmentUnavailable

EPISODE_STEPS = 1000
"""After which brax's own training cuts an episode."""


def make(name: str, **kwargs: Any) -> Functional:
    """The environment of that name.

    Args:
        kwargs: what its class is called with, such as `backend`, the physics.

    Raises:
        EnvironmentUnavailable: brax has none of that name.
    """
    try:
        made = envs.get_environment(name, **kwargs)
    except KeyError:
        raise EnvironmentUnavailable(
            f"brax has no environment {name!r}: it has ant, halfcheetah, hopper, humanoid, "
            "walker2d and others, in small letters"
        ) from None

    def reset(key: Any) -> tuple[Any, Any]:
        state = made.reset(key)
        return state, state.obs

    def step(state: Any, action: Any, key: Any) -> tuple[Any, Any, Any, Any]:
        del key
        # brax writes the new metrics into the dictionary of the state that it is given.
        own = jax.tree.map(lambda array: array, state)
        moved = made.step(own, action)
        return moved, moved.obs, moved.reward, jnp.asarray(moved.done, jnp.bool_)

    bounds = np.asarray(made.sys.actuator.ctrl_range, np.float64)
    low, high = (tuple(map(float, bound)) for bound in bounds.T)
    return Functional(
        Box(shape=(int(made.observation_size),)),
        Box(shape=(len(low),), low=low, high=high),
        EPISODE_STEPS,
        reset,
        step,
    )
