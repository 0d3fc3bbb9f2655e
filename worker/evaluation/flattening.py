"""Composite observations as the vectors of Gymnasium's `flatten`, at a fraction of its cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from protocol.spaces import Dict, Discrete, MultiDiscrete, Space, Tuple

Environment = gymnasium.Env[Any, Any]
Write = Callable[[Any], None]
"""Writes a value of a space where it belongs, into zeros."""


class FlatObservation(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment whose observations are float32 vectors, shape (space.size,).

    Each is written over the one before: whoever keeps one copies it.
    """

    def __init__(self, environment: Environment, space: Space) -> None:
        super().__init__(environment)
        self._vector = np.zeros(space.size, dtype=np.float32)
        self._write = _writer(space, self._vector)
        self._step = environment.step

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Begin an episode."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._vector.fill(0.0)
        self._write(observation)
        return self._vector, info

    def step(self, action: Any) -> tuple[NDArray[np.float32], Any, bool, bool, dict[str, Any]]:
        """Take one step."""
        observation, reward, terminated, truncated, info = self._step(action)
        self._vector.fill(0.0)
        self._write(observation)
        return self._vector, reward, terminated, truncated, info


def flattened(environment: Environment, space: Space) -> Environment:
    """The environment with observations that are one array, where those of `space` are not.

    Of single choices it is left to the policy to make vectors.
    """
    if isinstance(space, Tuple | Dict | MultiDiscrete):
        return FlatObservation(environment, space)
    return environment


def _writer(space: Space, vector: NDArray[np.float32]) -> Write:
    """What writes values of a space to its part of a vector."""
    match space:
        case Discrete():
            return _choice_writer(space.n, space.start, vector)
        case MultiDiscrete():
            return _choices_writer(space, vector)
        case Tuple() | Dict():
            parts, begin = [], 0
            for part in space.spaces:
                parts.append(_writer(part, vector[begin : begin + part.size]))
                begin += part.size
            if isinstance(space, Tuple):
                return _tuple_writer(parts)
            return _dict_writer(list(zip(space.names, parts, strict=True)))
    array = vector.reshape(space.shape or (1,))

    def write(value: Any) -> None:
        array[...] = value

    return write


def _choice_writer(n: int, start: int, vector: NDArray[np.float32]) -> Write:
    def write(value: Any) -> None:
        place = int(value) - start
        if not 0 <= place < n:
            raise ValueError(f"{value} was observed, which is none of {start} to {start + n - 1}")
        vector[place] = 1.0

    return write


def _choices_writer(space: MultiDiscrete, vector: NDArray[np.float32]) -> Write:
    count = len(space.choices)
    first = np.array(space.start or (0,) * count)
    last = first + space.choices - 1
    places = np.cumsum((0, *space.choices[:-1])) - first

    def write(value: Any) -> None:
        chosen = np.ravel(value)
        if (chosen < first).any() or (chosen > last).any():
            raise ValueError(f"choices {chosen[:20]} were observed, some outside of their space")
        vector[places + chosen] = 1.0

    return write


def _tuple_writer(parts: list[Write]) -> Write:
    def write(value: Any) -> None:
        for part, item in zip(parts, value, strict=True):
            part(item)

    return write


def _dict_writer(parts: list[tuple[str, Write]]) -> Write:
    def write(value: Any) -> None:
        for name, part in parts:
            part(value[name])

    return write
