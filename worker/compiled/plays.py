"""A list of episodes that compiled lanes play, many at a time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from protocol.messages import LARGEST_RETURN, MAX_FAILURE_REASON
from worker.compiled.booking import UNSOUND
from worker.evaluation.blocks import Episodes


class CompiledPlay:
    """As `worker.evaluation.playing.Play`, with the lanes of a chunk taken together.

    Attributes:
        rows, groups, slots, seeds, quiet: of the episodes; see `Episodes`.
        limit: steps after which one is cut; 0 never.
        totals: float64, sum of rewards of each.
        lengths: int64, steps of each.
        failures: position and reason per group, those of its first episode that failed.
        playing: int64, lanes in the middle of an episode.
    """

    def __init__(self, episodes: Episodes, limit: int) -> None:
        self.rows, self.groups, self.slots, self.seeds, self.quiet = episodes
        self.limit = limit
        self.totals = np.zeros(len(self.rows))
        self.lengths = np.zeros(len(self.rows), dtype=np.int64)
        self.failures: dict[int, tuple[int, str]] = {}
        self.begun = 0
        """episodes that were started, or never will be"""
        self.playing = np.empty(0, dtype=np.int64)
        self._positions = np.empty(0, dtype=np.int64)
        """which episode each of them plays"""

    @property
    def left(self) -> int:
        """Episodes that lanes may start."""
        return len(self.rows) - self.begun

    @property
    def pending(self) -> bool:
        """Whether there are episodes that a lane may start."""
        return self.left > 0

    @property
    def over(self) -> bool:
        """Whether nothing is left to play."""
        return not (self.playing.size or self.pending)

    def join(self, lanes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Let lanes that play nothing play along, the first of them where there is not enough for
        all; the episodes that they begin."""
        end = min(self.begun + len(lanes), len(self.rows))
        positions = np.arange(self.begun, end)
        self.begun = end
        if self.failures:
            positions = positions[~np.isin(self.groups[positions], list(self.failures))]
        self.playing = np.concatenate([self.playing, lanes[: positions.size]])
        self._positions = np.concatenate([self._positions, positions])
        return positions

    def book(
        self,
        codes: NDArray[np.int8],
        totals: NDArray[np.float64],
        steps: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        """Book what is over by a chunk, of arrays with an entry for each lane; its lanes."""
        over = codes[self.playing] != 0
        lanes, positions = self.playing[over], self._positions[over]
        self.playing, self._positions = self.playing[~over], self._positions[~over]
        total = totals[lanes]
        good = (codes[lanes] != UNSOUND) & (np.abs(total) <= LARGEST_RETURN)
        self.totals[positions[good]] = total[good]
        self.lengths[positions[good]] = steps[lanes[good]]
        for lane, position in zip(lanes[~good], positions[~good], strict=True):
            if codes[lane] == UNSOUND:
                what = f"the observation after step {steps[lane]} is not finite or not in its space"
            else:
                what = f"{steps[lane]} steps' rewards add up to {totals[lane]}"
            self._fail(int(position), what)
        return lanes

    def finished(self) -> int:
        """How many groups, from the first on, have nothing left to play; asked between chunks."""
        first = int(self._positions.min()) if self._positions.size else len(self.rows)
        first = min(first, self.begun)
        last = int(self.groups[-1]) + 1
        return last if first == len(self.rows) else int(self.groups[first])

    def renumber(self, places: NDArray[np.int64]) -> None:
        """Lane i is called places[i] from now on."""
        self.playing = places[self.playing]

    def _fail(self, position: int, reason: str) -> None:
        group = int(self.groups[position])
        known = self.failures.get(group)
        if known is None or position < known[0]:
            self.failures[group] = (position, reason[:MAX_FAILURE_REASON])
