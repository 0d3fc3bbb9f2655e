"""An environment's spaces in the run spec's words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from protocol.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple
from worker.evaluation.jobs import EnvironmentUnavailable

Environment = gymnasium.Env[Any, Any]
ReadBox = Callable[[gymnasium.spaces.Box, Environment], Box]


def observations(environment: Environment) -> Space:
    """The observation space. Raises `EnvironmentUnavailable`."""
    return _read(environment.observation_space, environment, "observations", _seen)


def actions(environment: Environment) -> Space:
    """The action space. Raises `EnvironmentUnavailable`."""
    return _read(environment.action_space, environment, "actions", _taken)


def name(environment: Environment) -> str:
    """The id of an instance, for messages."""
    return environment.spec.id if environment.spec else type(environment).__name__


def shown(value: object) -> str:
    """A space as one short line."""
    return " ".join(str(value).split())[:120]


def _read(space: Any, environment: Environment, what: str, box: ReadBox) -> Space:
    """A space of `what`, in which `box` reads the boxes."""
    if isinstance(space, gymnasium.spaces.Box):
        return box(space, environment)
    if isinstance(space, gymnasium.spaces.Discrete):
        return Discrete(n=int(space.n), start=int(space.start))
    if isinstance(space, gymnasium.spaces.MultiBinary):
        return MultiBinary(shape=tuple(space.shape))
    if isinstance(space, gymnasium.spaces.MultiDiscrete):
        start = tuple(map(int, space.start.ravel()))
        return MultiDiscrete(
            choices=tuple(map(int, space.nvec.ravel())),
            shape=tuple(space.shape),
            start=start if any(start) else (),
        )
    if isinstance(space, gymnasium.spaces.Tuple):
        parts = tuple(_read(part, environment, what, box) for part in space.spaces)
        return Tuple(spaces=parts)
    if isinstance(space, gymnasium.spaces.Dict) and all(isinstance(key, str) for key in space):
        parts = tuple(_read(part, environment, what, box) for part in space.values())
        return Dict(names=tuple(space), spaces=parts)
    raise EnvironmentUnavailable(
        f"the {what} of {name(environment)} have a space that no policy here takes, "
        f"{shown(space)}: wrap the environment so that it has Box, Discrete, MultiDiscrete, "
        "MultiBinary, Tuple or Dict spaces, with names that are texts"
    )


def _seen(space: gymnasium.spaces.Box, environment: Environment) -> Box:
    if space.dtype.kind not in "fiub":
        raise EnvironmentUnavailable(
            f"the observations of {name(environment)} are {shown(space)}: wrap the environment so "
            "that they are real numbers"
        )
    image = space.dtype == np.uint8 and not space.low.any() and (space.high == 255).all()
    return Box(shape=tuple(space.shape), dtype="uint8" if image else "float32")


def _taken(space: gymnasium.spaces.Box, environment: Environment) -> Box:
    if space.dtype.kind != "f":
        raise EnvironmentUnavailable(
            f"the actions of {name(environment)} are {shown(space)}: a Box must be of real "
            "numbers; wrap the environment so that it takes these, or Discrete ones"
        )
    if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        raise EnvironmentUnavailable(
            f"the actions of {name(environment)} are {shown(space)}: built-in policies need "
            "finite bounds; wrap the environment with RescaleAction"
        )
    low, high = (tuple(map(float, bound.ravel())) for bound in (space.low, space.high))
    return Box(shape=tuple(space.shape), low=low, high=high)
