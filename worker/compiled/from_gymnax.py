"""Environments of gymnax as functional ones."""

from __future__ import annotations

import dataclasses
from typing import Any

import gymnax
import numpy as np
from gymnax.environments import spaces

from protocol.spaces import Box, Dict, Discrete, Space, Tuple
from worker.compiled.environment import Functional
from worker.evaluation.jobs import EnvironmentUnavailable


def make(name: str, **kwargs: Any) -> Functional:
    """The environment of that name.

    Args:
        kwargs: its parameters, such as `max_steps_in_episode`, or what its class is called with.

    Raises:
        EnvironmentUnavailable: gymnax has none of that name, or its spaces are none of ours.
    """
    if name not in gymnax.registered_envs:
        raise EnvironmentUnavailable(
            f"gymnax has no environment {name!r}: it has {', '.join(gymnax.registered_envs)}"
        )
    fields = _fields(gymnax.make(name)[1])
    made, parameters = gymnax.make(name, **{k: v for k, v in kwargs.items() if k not in fields})
    parameters = parameters.replace(**{k: v for k, v in kwargs.items() if k in fields})

    def reset(key: Any) -> tuple[Any, Any]:
        observation, state = made.reset_env(key, parameters)
        return state, observation

    def step(state: Any, action: Any, key: Any) -> tuple[Any, Any, Any, Any]:
        observation, state, reward, terminated, _ = made.step_env(key, state, action, parameters)
        return state, observation, reward, terminated

    return Functional(
        _space(made.observation_space(parameters), name, bounded=False),
        _space(made.action_space(parameters), name, bounded=True),
        int(parameters.max_steps_in_episode),
        reset,
        step,
    )


def _fields(parameters: Any) -> set[str]:
    return {field.name for field in dataclasses.fields(parameters)}


def _space(space: Any, name: str, *, bounded: bool) -> Space:
    """A space in the run spec's words; bounds are said of actions."""
    if isinstance(space, spaces.Discrete):
        return Discrete(n=int(space.n))
    if isinstance(space, spaces.Box):
        shape = tuple(map(int, np.atleast_1d(space.shape))) or (1,)
        low, high = (np.broadcast_to(bound, shape).ravel() for bound in (space.low, space.high))
        if not bounded:
            return Box(shape=shape)
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            raise EnvironmentUnavailable(
                f"the actions of gymnax:{name} have no finite bounds, which built-in policies need"
            )
        return Box(shape=shape, low=tuple(map(float, low)), high=tuple(map(float, high)))
    if isinstance(space, spaces.Tuple):
        return Tuple(spaces=tuple(_space(part, name, bounded=bounded) for part in space.spaces))
    if isinstance(space, spaces.Dict):
        parts = tuple(_space(part, name, bounded=bounded) for part in space.spaces.values())
        return Dict(names=tuple(space.spaces), spaces=parts)
    raise EnvironmentUnavailable(f"gymnax:{name} has a space that no policy here takes, {space}")
