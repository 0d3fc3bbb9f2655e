"""Makes environments: only registered ones, as bare as their registration lets them be."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec, registry

from protocol.spaces import Space, fits
from protocol.spec import LONGEST_EPISODE, EnvironmentSpec
from protocol.wrappers import SLOW, Wrapper
from worker.allowed import import_registrars
from worker.evaluation.flattening import flattened
from worker.evaluation.jobs import EnvironmentUnavailable
from worker.evaluation.spaces import actions, observations, shown
from worker.evaluation.words import words_of
from worker.evaluation.wrappers import wrap

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

    def make(self, render_mode: str | None = None) -> Environment:
        """A new instance, with the spaces that the spec says; composite observations come flat.

        Raises:
            EnvironmentUnavailable: it can't be made here, or not with these spaces.
        """
        spec = self.environment
        instance = make(self.registration, spec.kwargs, spec.wrappers, render_mode)
        try:
            found = observations(instance)
            _require(fits(spec.observation, found), "observation", spec.observation, found, spec)
            taken = actions(instance)
            _require(spec.action == taken, "action", spec.action, taken, spec)
        except EnvironmentUnavailable:
            instance.close()
            raise
        return flattened(instance, spec.observation)


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
    import_registrars(allowed, EnvironmentUnavailable)
    module, colon, name = environment_id.rpartition(":")
    if colon:
        raise EnvironmentUnavailable(
            f"{environment_id!r} would import the module {module!r}: ids that name a module are "
            f"refused; allow the module with --allow-module {module} and use the id {name!r}"
        )
    registration = registry.get(environment_id)
    if registration is None:
        close = difflib.get_close_matches(environment_id, registry, n=3)
        hint = (
            "install the package that registers it and allow its module with --allow-module, "
            "in Python with environments=[...]"
        )
        if close:
            hint = f"did you mean {' or '.join(close)}? Else {hint}"
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
    registration: EnvSpec,
    kwargs: Mapping[str, Any],
    wrappers: Sequence[Wrapper] = (),
    render_mode: str | None = None,
) -> Environment:
    """An instance without checker, order enforcing or time limit, which its caller counts.

    Wrappers that the registration demands stay, and the time limit with them: it lies below them
    and may count other steps than we do; below `wrappers` of several steps too. `render_mode` is
    what somebody who watches asks for. Raises `EnvironmentUnavailable`.
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
    if not bare.additional_wrappers and not any(isinstance(each, SLOW) for each in wrappers):
        bare.max_episode_steps = None
    try:
        if render_mode is not None:
            kwargs = {**kwargs, "render_mode": render_mode}
        instance = gymnasium.make(bare, **kwargs)
    except gymnasium.error.DependencyNotInstalled as error:
        raise EnvironmentUnavailable(f"{registration.id} can't be made here: {error}") from None
    except TypeError as error:
        raise EnvironmentUnavailable(
            f"{registration.id} can't be made ({words_of(error)}): give it arguments that it takes"
        ) from None
    except Exception as error:
        given, these = "", ""
        if kwargs:
            given, these = f" with environment.kwargs {shown(dict(kwargs))}", "these, or "
        raise EnvironmentUnavailable(
            f"{registration.id} can't be made here{given} ({words_of(error)}): mend {these}its "
            "installation, or join a run of another environment"
        ) from None
    for wrapper in wrappers:
        instance = _wrapped(instance, wrapper, registration.id)
    return instance


def _wrapped(instance: Environment, wrapper: Wrapper, environment_id: str) -> Environment:
    """The instance in a wrapper; closed where it does not go into it."""
    try:
        return wrap(instance, wrapper)
    except Exception as error:
        kind = wrapper.__struct_config__.tag
        instance.close()
        if isinstance(error, gymnasium.error.DependencyNotInstalled):
            remedy = "install what it needs"
        else:
            remedy = "take it off environment.wrappers, or mend its arguments or the environment's"
        raise EnvironmentUnavailable(
            f"{environment_id} can't be wrapped in {kind!r} ({words_of(error)}): {remedy}"
        ) from None


def _require(
    same: bool, what: str, expected: Space, found: Space, environment: EnvironmentSpec
) -> None:
    if not same:
        raise EnvironmentUnavailable(
            f"the {what} space of {environment.id} is {shown(found)} here but {shown(expected)} in "
            f"the run's spec (Gymnasium {gymnasium.__version__} here): install the version that "
            "the host has, or mend the spec"
        )
