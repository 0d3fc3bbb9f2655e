"""Environments of several lanes that are stepped as one, where that gives the same bits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

COPIES = 11
"""In a rehearsal: enough for whole registers of a vector unit, and for a rest."""

Told = tuple[NDArray[Any], NDArray[Any], NDArray[np.bool_]]
"""Observations, rewards, and whether that ends the episode, of some environments; the arrays may be
written over by the next step."""
Step = Callable[[Any], Told]
"""Takes one step in each of some environments, with these actions, an array of as many."""


class Vector(ABC):
    """Environments that begin episodes one by one and step together."""

    as_one = True
    """whether a step of many takes about as long as of one; else they go one after the other, and
    none may be twice in a step"""

    def __init__(self) -> None:
        self.size = 0
        """numbers of environments that were given out"""
        self._released: list[int] = []

    def share(self) -> Share:
        """One more of its environments."""
        if self._released:
            return Share(self, self._released.pop())
        self.size += 1
        return Share(self, self.size - 1)

    def release(self, number: int) -> None:
        """Let go of one of its environments."""
        self._released.append(number)

    @abstractmethod
    def reset(self, number: int, seed: int) -> Any:
        """Begin an episode in one of them, as the environment alone would with this seed; the
        observation."""

    @abstractmethod
    def prepare_step(self, numbers: NDArray[np.int64]) -> Step:
        """What takes a step in each of those, bit for bit as the environment alone would tell; its
        time limit is the caller's to count."""


class Share:
    """One environment of a `Vector`, for who steps it alone."""

    def __init__(self, vector: Vector, number: int) -> None:
        self.vector, self.number = vector, number

    def reset(self, *, seed: int) -> tuple[Any, Any]:
        """Begin an episode."""
        return self.vector.reset(self.number, seed), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, Any]:
        """Take one step; copies of it that step beside it, where they may, must agree."""
        copies = COPIES if self.vector.as_one else 1
        step = self.vector.prepare_step(np.full(copies, self.number))
        observations, rewards, terminated = step(np.array([action] * copies))
        for values in (observations, rewards, terminated):
            if not (values == values[0]).all():
                raise ValueError("steps of the same environment side by side differ")
        return observations[0], rewards[0], bool(terminated[0]), False, {}

    def close(self) -> None:
        """Let go of it."""
        self.vector.release(self.number)


@dataclass(frozen=True)
class VectorMaker:
    """Makes shares of a vector; see `worker.evaluation.playing.Maker`."""

    vector: Vector
    limit: int

    def make(self) -> Share:
        """A new share."""
        return self.vector.share()
