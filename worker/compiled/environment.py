"""Functional environments: what one is, and which is meant by an id."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from protocol import backends
from protocol.spaces import Space
from worker.allowed import import_registrars
from worker.evaluation.jobs import EnvironmentUnavailable
from worker.evaluation.words import words_of

OURS = backends.JAX
"""Before the colon of an id, or nothing: what we bring, and what users register."""
PACKAGES = {
    "gymnax": ("gymnax", "worker.compiled.from_gymnax"),
    "brax": ("brax", "worker.compiled.from_brax"),
    "playground": ("mujoco_playground", "worker.compiled.from_playground"),
}
"""Of other ids: the package that has them, and our module whose `make` takes its names."""
BUILT_IN = {
    "CartPole-v1": "worker.compiled.cartpole",
    "CliffWalking-v0": "worker.compiled.cliff_walking",
    "GridWorld-v0": "worker.compiled.grid_world",
}
"""Our own, each with the module whose `make` takes its arguments."""


@dataclass(frozen=True)
class Functional:
    """An environment as two pure functions of JAX, for one episode, without a batch dimension.

    States are any pytree of arrays, whose shapes and types stay as `reset` made them. Observations
    are what their space says: float32 of a box's shape, or bytes of an image's; an integer that
    counts from `start` for a `Discrete` space; an array of such integers, or of switches, for
    `MultiDiscrete` and `MultiBinary`; tuples and dicts of these. Actions come likewise, integers as
    int32.

    Attributes:
        observation, action: the spaces.
        limit: steps after which an episode is cut; 0 where nothing cuts it.
        reset: `key -> (state, observation)`, with a key of `jax.random.key`.
        step: `(state, action, key) -> (state, observation, reward, terminated)`; the last two are
            scalars, a float32 and a bool.
        threshold: mean return that counts as solved, or None.
        draw: a picture of a state, whose arrays are NumPy's, as uint8 of shape (height, width, 3);
            None where nothing draws it.
    """

    observation: Space
    action: Space
    limit: int
    reset: Callable[[Any], tuple[Any, Any]]
    step: Callable[[Any, Any, Any], tuple[Any, Any, Any, Any]]
    threshold: float | None = None
    draw: Callable[[Any], Any] | None = None


Factory = Callable[..., Functional]
"""Makes an environment of the arguments in `environment.kwargs`."""

_registered: dict[str, Factory] = {}


def register(name: str, factory: Factory) -> None:
    """Let runs name an environment of one's own as `jax:<name>`.

    To be called when a module is imported that volunteers allow with `--allow-module`. Registering
    a name once more replaces what it meant.

    Raises:
        ValueError: the name is one of ours, or has a colon.
    """
    if name in BUILT_IN or ":" in name:
        raise ValueError(f"an environment can't be called {name!r}: choose a name of your own")
    _registered[name] = factory


def functional(
    environment_id: str, kwargs: Mapping[str, Any], allowed: Sequence[str] = ()
) -> Functional:
    """The environment that an id means.

    Args:
        environment_id: `gymnax:NAME`, `brax:NAME`, `playground:NAME`, or `jax:NAME`, whose prefix
            may be left out.
        kwargs: its arguments.
        allowed: modules that the volunteer lets register environments.

    Raises:
        EnvironmentUnavailable: unknown, not installed, or it can't be made with these arguments.
    """
    import_registrars(allowed, EnvironmentUnavailable)
    require_jax(environment_id)
    make = _factory(environment_id)
    try:
        return make(**kwargs)
    except EnvironmentUnavailable:
        raise
    except TypeError as error:
        raise EnvironmentUnavailable(
            f"{environment_id} can't be made ({words_of(error)}): give it arguments that it takes"
        ) from None
    except Exception as error:
        raise EnvironmentUnavailable(
            f"{environment_id} can't be made here ({words_of(error)}): mend its arguments or its "
            "installation, or join a run of another environment"
        ) from None


def require_jax(environment_id: str) -> None:
    """Raises `EnvironmentUnavailable` where JAX is not installed."""
    if importlib.util.find_spec("jax") is None:
        raise EnvironmentUnavailable(
            f"{environment_id} is computed by JAX, which is not installed here: pip install "
            "'shoal[jax]', or join a run of another environment"
        )


def _factory(environment_id: str) -> Factory:
    prefix, colon, name = environment_id.partition(":")
    if not colon or prefix == OURS:
        return _ours(name if colon else environment_id)
    if prefix not in PACKAGES:
        raise EnvironmentUnavailable(
            f"{environment_id!r} begins with {prefix!r}: an environment of JAX is named "
            f"{', '.join(f'{one}:NAME' for one in PACKAGES)} or {OURS}:NAME"
        )
    package, module = PACKAGES[prefix]
    if importlib.util.find_spec(package) is None:
        raise EnvironmentUnavailable(
            f"{environment_id} needs {package}, which is not installed here: pip install "
            f"'shoal[{prefix}]', or join a run of another environment"
        )
    make = importlib.import_module(module).make
    return lambda **kwargs: make(name, **kwargs)


def _ours(name: str) -> Factory:
    if name in BUILT_IN:
        factory: Factory = importlib.import_module(BUILT_IN[name]).make
        return factory
    if name in _registered:
        return _registered[name]
    known = [*BUILT_IN, *_registered]
    hint = (
        "register it with worker.compiled.environment.register in a module, and allow that with "
        "--allow-module"
    )
    if close := difflib.get_close_matches(name, known, n=3):
        hint = f"did you mean {' or '.join(close)}? Else {hint}"
    raise EnvironmentUnavailable(f"no environment {name!r} of JAX is registered here: {hint}")
