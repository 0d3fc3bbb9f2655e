"""Where the functional environment of a run comes from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from protocol.spaces import fits
from protocol.spec import LONGEST_EPISODE, EnvironmentSpec
from worker.compiled.environment import OURS, Functional, functional
from worker.evaluation.jobs import EnvironmentUnavailable
from worker.evaluation.spaces import shown

if TYPE_CHECKING:
    from worker.compiled.stepping import Stepped


@dataclass(frozen=True)
class CompiledMaker:
    """A run's functional environment.

    Attributes:
        limit: steps after which an episode is cut; 0 where nothing cuts it.
    """

    environment: EnvironmentSpec
    functional: Functional
    limit: int

    def make(self, render_mode: str | None = None, limit: int = 0) -> Stepped:
        """An instance that is stepped, and cut after `limit` steps where it is not 0. Raises
        `EnvironmentUnavailable` for who wants to see what is not drawn."""
        from worker.compiled.stepping import Stepped

        if render_mode is not None and self.functional.draw is None:
            raise EnvironmentUnavailable(
                f"{self.environment.id} is computed by JAX, and nothing draws it: play it "
                "without a window and without a film"
            )
        if render_mode not in (None, "rgb_array"):
            raise EnvironmentUnavailable(
                f"{self.environment.id} is computed by JAX, and has no window: make a film of it "
                "(shoal record)"
            )
        return Stepped(self.functional, limit)


def maker(environment: EnvironmentSpec, allowed: Sequence[str] = ()) -> CompiledMaker:
    """The maker of a run's environment, with the spaces that the spec says.

    Args:
        allowed: modules that the volunteer lets register environments.

    Raises:
        EnvironmentUnavailable: it can't be had here, or not with these spaces.
    """
    name = environment.id
    if environment.backend != "jax":
        name = f"{OURS}:{name}"  # the equivalent of another backend's
    found = functional(name, environment.kwargs, allowed)
    for what, expected, here, same in (
        (
            "observation",
            environment.observation,
            found.observation,
            fits(environment.observation, found.observation),
        ),
        ("action", environment.action, found.action, environment.action == found.action),
    ):
        if not same:
            raise EnvironmentUnavailable(
                f"the {what} space of {name} is {shown(here)} here but {shown(expected)} in the "
                "run's spec: install the version that the host has, or mend the spec"
            )
    limits = (environment.max_steps, found.limit, LONGEST_EPISODE)
    return CompiledMaker(environment, found, min(limit for limit in limits if limit))
