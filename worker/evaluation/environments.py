"""Makes environments: only registered ones, as bare as their registration lets them be."""

from __future__ import annotations

import dataclasses
import difflib
import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec, registry

from protocol.spec import LONGEST_EPISODE, Box, Discrete, EnvironmentSpec, Space
from worker.evaluation.jobs import EnvironmentUnavailable
from worker.evaluation.words import words_of

Environment = gymnasium.Env[Any, Any]

IMPORTING = frozenset({"GymV21Environment-v0", "GymV26Environment-v0"})
"""Registered, but they import whatever module their arguments name."""


@dataclasses.dataclass(frozen=True)
class Maker:
    """Makes instances of one run's environment.

    Attributes:
        limit: steps after which an episode is cut; 0 where nothing cuts it.
    """

    environment: EnvironmentSpec
    registration: EnvSpec
    limit: int

    def make(self) -> Environment:
        """A new instance, with the spaces that the spec says. Raises `EnvironmentUnavailable`."""
        instance = make(self.registration, self.environment.kwargs)
        try:
            _require_same("observation", self.environment, observations(instance))
            _require_same("action", self.environment, actions(instance))
        except EnvironmentUnavailable:
            instance.close()
            raise
        return instance


def maker(environment: EnvironmentSpec, allowed: Sequence[str] = ()) -> Maker:
    """The maker of a run's environment.

    Args:
        allowed: modules that the volunteer lets register environments.

    Raises:
        EnvironmentUnavailable: not registered here.
    """
    registration = registered(environment.id, allowed)
    limits = (environment.max_steps, registration.max_episode_steps)
    return Maker(
        environment, registration, min(limit for limit in (*limits, LONGEST_EPISODE) if limit)
    )


def registered(environment_id: str, allowed: Sequence[str] = ()) -> EnvSpec:
    """What Gymnasium knows of an id, after the `allowed` modules were imported.

    Raises:
        EnvironmentUnavailable: unknown, or an id that would import a module that isn't allowed.
    """
    for module in allowed:
        try:
            importlib.import_module(module)
        except Exception as error:
            raise EnvironmentUnavailable(
                f"the allowed module {module!r} can't be imported ({words_of(error)}): "
                "install it or take it off the list"
            ) from None
    module, colon, name = environment_id.rpartition(":")
    if colon:
        raise EnvironmentUnavailable(
            f"{environment_id!r} would import the module {module!r}: ids that name a module are "
            f"refused; allow the module with --allow-module {module} and use the id {name!r}"
        )
    registration = registry.get(environment_id)
    if registration is None:
        close = difflib.get_close_matches(environment_id, registry, n=3)
        hint = "install the package that registers it and allow its module with --allow-module"
        if close:
            hint = f"did you mean {' or '.join(close)}?"
        raise EnvironmentUnavailable(
            f"no environment {environment_id!r} is registered here: {hint}"
        )
    if environment_id in IMPORTING:
        raise EnvironmentUnavailable(
            f"{environment_id!r} imports any module that its arguments name, so it is refused: "
            "register the environment with Gymnasium itself"
        )
    return registration


def make(
    registration: EnvSpec, kwargs: Mapping[str, Any], render_mode: str | None = None
) -> Environment:
    """An instance without checker, order enforcing or time limit, which its caller counts.

    Wrappers that the registration demands stay, and the time limit with them: it lies below them
    and may count other steps than we do. `render_mode` is what somebody who watches asks for.
    Raises `EnvironmentUnavailable`.
    """
    if str(kwargs.get("render_mode")).endswith("_list"):
        raise EnvironmentUnavailable(
            f"environment.kwargs.render_mode is {kwargs['render_mode']!r}, which keeps every frame "
            "in memory: leave it out, and film a run with `shoal play --video`"
        )
    if kwargs.get("render_mode") == "human":
        raise EnvironmentUnavailable(
            "environment.kwargs.render_mode is 'human', which would open windows on volunteers' "
            "screens: leave it out, and watch a run with `shoal play`"
        )
    bare = dataclasses.replace(registration, order_enforce=False, disable_env_checker=True)
    if not bare.additional_wrappers:
        bare.max_episode_steps = None
    try:
        if render_mode is not None:
            kwargs = {**kwargs, "render_mode": render_mode}
        return gymnasium.make(bare, **kwargs)
    except gymnasium.error.DependencyNotInstalled as error:
        raise EnvironmentUnavailable(f"{registration.id} can't be made here: {error}") from None
    except TypeError as error:
        raise EnvironmentUnavailable(
            f"{registration.id} can't be made ({words_of(error)}): give it arguments that it takes"
        ) from None
    except Exception as error:
        raise EnvironmentUnavailable(
            f"{registration.id} can't be made here ({words_of(error)}): mend its installation, or "
            "join a run of another environment"
        ) from None


def observations(environment: Environment) -> Space:
    """The observation space in the spec's words. Raises `EnvironmentUnavailable`."""
    space = environment.observation_space
    if isinstance(space, gymnasium.spaces.Discrete):
        return Discrete(n=int(space.n), start=int(space.start))
    if isinstance(space, gymnasium.spaces.Box) and space.dtype.kind in "fiub":
        return Box(shape=tuple(space.shape))
    raise EnvironmentUnavailable(
        f"the observations of {name(environment)} are {shown(space)}: only Box and Discrete spaces "
        "are supported; wrap the environment, for example with FlattenObservation"
    )


def actions(environment: Environment) -> Space:
    """The action space in the spec's words. Raises `EnvironmentUnavailable`."""
    space = environment.action_space
    if isinstance(space, gymnasium.spaces.Discrete):
        return Discrete(n=int(space.n), start=int(space.start))
    if isinstance(space, gymnasium.spaces.Box) and space.dtype.kind == "f":
        if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
            raise EnvironmentUnavailable(
                f"the actions of {name(environment)} are {shown(space)}: built-in policies need "
                "finite bounds; wrap the environment with RescaleAction"
            )
        low, high = (tuple(map(float, bound.ravel())) for bound in (space.low, space.high))
        return Box(shape=tuple(space.shape), low=low, high=high)
    raise EnvironmentUnavailable(
        f"the actions of {name(environment)} are {shown(space)}: only Discrete spaces and Box "
        "spaces of real numbers are supported; wrap the environment so that it takes one of these"
    )


def name(environment: Environment) -> str:
    """The id of an instance, for messages."""
    return environment.spec.id if environment.spec else type(environment).__name__


def shown(value: object) -> str:
    """A space as one short line."""
    return " ".join(str(value).split())[:120]


def _require_same(what: str, environment: EnvironmentSpec, found: Space) -> None:
    expected: Space = getattr(environment, what)
    if what == "observation" and isinstance(expected, Box):
        expected = Box(shape=expected.shape)
    if expected != found:
        raise EnvironmentUnavailable(
            f"the {what} space of {environment.id} is {found} here but {expected} in the run's "
            f"spec (Gymnasium {gymnasium.__version__} here): install the version that the host has"
        )
