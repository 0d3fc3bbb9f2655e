"""What lanes saw last, and the vectors that policies read of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from protocol.spaces import Box, Discrete, MultiBinary, Space, leaves
from worker.policies.calls import prepared

ZERO = np.float32(0.0)
BRIGHTEST = np.float32(255.0)


@njit(cache=True, error_model="numpy")
def one_hot(
    lanes: NDArray[np.int64],
    indices: NDArray[np.int64],
    start: int,
    observations: NDArray[np.float32],
) -> None:
    """Rows of `observations` become 1 at index - start and else 0; all NaN where that's outside."""
    for lane in lanes:
        index = indices[lane, 0] - start
        inside = 0 <= index < observations.shape[1]
        observations[lane, :] = ZERO if inside else np.float32(np.nan)
        if inside:
            observations[lane, index] = np.float32(1.0)


@njit(cache=True, error_model="numpy")
def divide(
    lanes: NDArray[np.int64],
    seen: NDArray[Any],
    divisors: NDArray[np.float32],
    observations: NDArray[np.float32],
) -> None:
    """Rows of `observations` become those of `seen` over `divisors`."""
    for lane in lanes:
        for i in range(divisors.size):
            observations[lane, i] = np.float32(seen[lane, i]) / divisors[i]


class Inputs:
    """The inputs of some lanes from a space of observations.

    Images stay the bytes that they are until they are read.

    Attributes:
        vectors: float32 (lanes, space.size), as they were read last.
        targets: row by row what an observation of a lane's environment is assigned to.
    """

    def __init__(self, space: Space, lanes: int) -> None:
        self.vectors = np.zeros((lanes, space.size), dtype=np.float32)
        self._start = space.start if isinstance(space, Discrete) else 0
        self._indices = np.zeros((lanes, 1 if isinstance(space, Discrete) else 0), dtype=np.int64)
        images = [isinstance(part, Box) and part.dtype == "uint8" for part in leaves(space)]
        self._divisors = np.empty(0, dtype=np.float32)
        seen: NDArray[Any] = self.vectors
        if any(images):
            sizes = [part.size for part in leaves(space)]
            self._divisors = np.repeat(np.where(images, BRIGHTEST, np.float32(1.0)), sizes)
            seen = np.zeros_like(seen, dtype=np.uint8 if isinstance(space, Box) else np.float32)
        self._seen = seen
        shape = space.shape if isinstance(space, Box | MultiBinary) else ()
        self.targets: NDArray[Any] = (
            self._indices if isinstance(space, Discrete) else seen.reshape(lanes, *(shape or (-1,)))
        )

    def prepare_read(self, lanes: NDArray[np.int64]) -> Callable[[], None]:
        """What writes the vectors of `lanes`, where they are not the targets themselves."""
        if self._divisors.size:
            return prepared(divide, lanes, self._seen, self._divisors, self.vectors)
        if self._indices.size:
            return prepared(one_hot, lanes, self._indices, self._start, self.vectors)
        return _nothing


def _nothing() -> None:
    """There is nothing to write."""
