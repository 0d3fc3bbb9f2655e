"""Environments of several lanes that are stepped as one, where that gives the same bits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

COPIES = 11
"""In a rehearsal: enough for whole registers of a vector unit, and for a rest."""


class Vector(ABC):
    """Environments that begin episodes one by one and step together."""

    def __init__(self) -> None:
        self.size = 0
        """shares that were given out"""

    def share(self) -> Share:
        """One more of its environments."""
        self.size += 1
        return Share(self, self.size - 1)

    @abstractmethod
    def reset(self, number: int, seed: int) -> Any:
        """Begin an episode in one of them, as the environment alone would with this seed; the
        observation."""

    @abstractmethod
    def step(
        self, numbers: NDArray[np.int64], actions: list[Any]
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.bool_]]:
        """Take one step in each of those: observations, rewards, and whether that ends its episode,
        bit for bit as the environment alone would tell; its time limit is the caller's to count."""


class Share:
    """One environment of a `Vector`, for who steps it alone."""

    def __init__(self, vector: Vector, number: int) -> None:
        self.vector, self.number = vector, number

    def reset(self, *, seed: int) -> tuple[Any, Any]:
        """Begin an episode."""
        return self.vector.reset(self.number, seed), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, Any]:
        """Take one step; copies of it that step beside it must agree."""
        numbers = np.full(COPIES, self.number)
        observations, rewards, terminated = self.vector.step(numbers, [action] * COPIES)
        for values in (observations, rewards, terminated):
            if not (values == values[0]).all():
                raise ValueError("steps of the same environment side by side differ")
        return observations[0], rewards[0], bool(terminated[0]), False, {}

    def close(self) -> None:
        """Nothing of its own is open."""


@dataclass(frozen=True)
class VectorMaker:
    """Makes shares of a vector; see `worker.evaluation.playing.Maker`."""

    vector: Vector
    limit: int

    def make(self) -> Share:
        """A new share."""
        return self.vector.share()
