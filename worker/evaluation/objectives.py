"""A function of the parameters as an environment: an episode is one call of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from protocol.objective import ObjectiveSpec
from worker.allowed import imported, require
from worker.evaluation.jobs import EnvironmentUnavailable

NOTHING = np.zeros(1, dtype=np.float32)


class Call:
    """An environment whose only step calls the function with the action, the parameters."""

    metadata: dict[str, Any] = {}  # noqa: RUF012

    def __init__(self, function: Callable[..., Any], seeded: bool, sign: float) -> None:
        self._function, self._seeded, self._sign = function, seeded, sign
        self._seed = 0

    def reset(self, *, seed: int) -> tuple[Any, Any]:
        """Begin an episode."""
        self._seed = seed
        return NOTHING, {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, Any]:
        """Take its only step."""
        value = self._function(action, seed=self._seed) if self._seeded else self._function(action)
        return NOTHING, self._sign * float(value), True, False, {}

    def close(self) -> None:
        """There is nothing to let go of."""


@dataclass(frozen=True)
class Maker:
    """Makes environments of one function.

    Attributes:
        limit: steps after which an episode is cut.
        seeded: whether the function takes a seed.
    """

    function: Callable[..., Any]
    seeded: bool
    sign: float
    limit: int = 1

    def make(self, render_mode: str | None = None) -> Call:
        """A new instance. Raises `EnvironmentUnavailable` where somebody wants to watch it."""
        if render_mode is not None:
            raise EnvironmentUnavailable(
                "the run has an objective, a function, in which there is nothing to see: leave "
                "--render and --video out"
            )
        return Call(self.function, self.seeded, self.sign)


def maker(objective: ObjectiveSpec, allowed: Sequence[str]) -> Maker:
    """The maker of a run's objective.

    Args:
        allowed: modules that the volunteer lets be imported.

    Raises:
        EnvironmentUnavailable: not allowed, not found, or no function.
    """
    path = objective.function
    require(path, "objective", allowed, EnvironmentUnavailable)
    function = imported(path, "objective", EnvironmentUnavailable)
    if not callable(function):
        raise EnvironmentUnavailable(
            f"the objective {path!r} is {type(function).__name__}: it must be a function of the "
            "parameters, a float32 array"
        )
    sign = 1.0 if objective.goal == "maximise" else -1.0
    return Maker(function, takes_seed(function), sign)


def takes_seed(function: Callable[..., Any]) -> bool:
    """Whether a function has a parameter named `seed`."""
    try:
        return "seed" in inspect.signature(function).parameters
    except (TypeError, ValueError):  # compiled, and silent about it
        return False
