"""The evaluation of one version's centre: its episodes, screening, and verdict."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from coordinator.pool.confidence import lowest
from coordinator.pool.ranges import NOBODY
from coordinator.pool.work import Lease, Work


class Evaluation:
    """Episodes `[0, episodes)` of the unperturbed policy of `version`.

    The first `screening` run alone. With a target the rest follows only where the screened mean
    plus three standard errors reaches it; after `make_full` it always does. Both rules look at
    nothing but the episodes, so every pool comes to the same verdict.
    """

    def __init__(
        self,
        version: int,
        episodes: int,
        screening: int,
        target: float | None,
        confidence: float = 0.0,
    ) -> None:
        """`confidence`: of the interval whose lower end has to reach the target; 0: the mean."""
        self.version = version
        self.episodes = episodes
        self.target = target
        self.confidence = confidence
        self.work = Work(0, screening)
        self._returns = np.full(episodes, np.nan)
        self._lengths = np.zeros(episodes, dtype=np.int64)
        self._workers = np.full(episodes, "", dtype=object)
        """who evaluated each"""

    def aim(self, target: float | None, confidence: float) -> None:
        """The target is another now."""
        self.target, self.confidence = target, confidence
        if self.finished and self._worth_the_rest():
            self.make_full()

    def record(
        self,
        first: int,
        returns: NDArray[np.float64],
        lengths: NDArray[np.int64],
        worker: str = "",
        lease: Lease | None = None,
    ) -> None:
        """Take the returns (n,) and lengths (n,) of those episodes from `first` on that are open,
        of a worker, under a `lease` that is out, if any.

        NaN returns stay open, for others than the worker first.
        """
        avoid = frozenset({worker}) if worker else NOBODY
        taken = self.work.accept(first, ~np.isnan(returns), avoid, lease)
        end = first + len(returns)
        self._returns[first:end][taken] = returns[taken]
        self._lengths[first:end][taken] = lengths[taken]
        self._workers[first:end][taken] = worker
        if self.finished and self._worth_the_rest():
            self.make_full()

    def withdraw(self, worker: str) -> int:
        """Take out all that a worker evaluated: how many episodes are for others now."""
        mine = self._workers[: self.work.size] == worker
        if not mine.any():
            return 0
        again = self.work.reopen(0, mine, frozenset({worker}))
        self._returns[: self.work.size][mine] = np.nan
        self._lengths[: self.work.size][mine] = 0
        self._workers[: self.work.size][mine] = ""
        return again

    def make_full(self) -> None:
        """Ask for all episodes, whatever the screening says."""
        if not self.full:
            self.work.extend(self.episodes - self.work.size)

    def has(self, end: int) -> bool:
        """Whether episodes before `end`, which somebody was asked for, are a part of it.

        That more than the screening was asked for proves, where it is not known yet, that the
        screening let it go on: who returned that may be slower to come back to a new coordinator.
        """
        if self.work.size < end <= self.episodes:
            self.make_full()
        return end <= self.work.size

    @property
    def full(self) -> bool:
        """Whether all episodes are asked for."""
        return self.work.size == self.episodes

    @property
    def finished(self) -> bool:
        """Whether all that were asked for are here."""
        return self.work.missing == 0

    @property
    def mean(self) -> float:
        """Mean return of what was asked for."""
        return float(self._returns[: self.work.size].mean())

    @property
    def deviation(self) -> float:
        """Sample deviation of the returns, 0 for one."""
        return float(self._returns[: self.work.size].std(ddof=1)) if self.work.size > 1 else 0.0

    @property
    def steps(self) -> int:
        """Environment steps of what was asked for."""
        return int(self._lengths[: self.work.size].sum())

    @property
    def reached(self) -> bool:
        """Whether a full evaluation meets the target."""
        if not self.full or self.target is None:
            return False
        return lowest(self.mean, self.deviation, self.episodes, self.confidence) >= self.target

    def _worth_the_rest(self) -> bool:
        if self.target is None:
            return False
        return self.mean + 3.0 * self.deviation / math.sqrt(self.work.size) >= self.target
