"""A functional environment as one that is stepped, for who watches it and for our own kernels."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from protocol.spaces import Dict, MultiDiscrete, Tuple
from worker.compiled.environment import Functional
from worker.compiled.values import inputs


class Stepped:
    """One instance, with the seeds and steps of compiled lanes; episodes end by themselves, or are
    cut after `limit` steps where it is not 0.

    Composite observations come flat, as those of our other environments do.
    """

    metadata: dict[str, Any] = {"render_fps": 30}  # noqa: RUF012

    def __init__(self, functional: Functional, limit: int = 0) -> None:
        self.functional, self._limit = functional, limit
        self._flat = isinstance(functional.observation, Tuple | Dict | MultiDiscrete)
        self._reset, self._step = jax.jit(self._begin), jax.jit(self._advance)
        self._state: Any = None
        self._key: Any = None
        self._time = 0

    def reset(self, *, seed: int) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        self._state, observation, self._key = self._reset(np.uint32(seed))
        self._time = 0
        return jax.tree.map(np.asarray, observation), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take one step."""
        moved = self._step(self._state, _typed(action), self._key, self._time)
        self._state, observation, reward, terminated = moved
        self._time += 1
        cut = self._time == self._limit
        return np.asarray(observation), float(reward), bool(terminated), cut, {}

    def render(self) -> Any:
        """A picture of where the episode is; see `Functional.draw`."""
        assert self.functional.draw is not None, "nobody is given one to see that is not drawn"
        return self.functional.draw(jax.tree.map(np.asarray, self._state))

    def close(self) -> None:
        """There is nothing to let go of."""

    def _begin(self, seed: Any) -> tuple[Any, Any, Any]:
        reset, steps = jax.random.split(jax.random.key(seed))
        state, observation = self.functional.reset(reset)
        return state, self._seen(observation), steps

    def _advance(self, state: Any, action: Any, key: Any, time: Any) -> tuple[Any, Any, Any, Any]:
        moved = self.functional.step(state, action, jax.random.fold_in(key, time))
        return moved[0], self._seen(moved[1]), *moved[2:]

    def _seen(self, observation: Any) -> Any:
        if self._flat:
            return inputs(self.functional.observation, observation)
        return observation


def _typed(action: Any) -> Any:
    """An action with integers as JAX has them."""

    def typed(value: Any) -> Any:
        array = np.asarray(value)
        return array.astype(np.int32) if array.dtype == np.int64 else array

    return jax.tree.map(typed, action)
