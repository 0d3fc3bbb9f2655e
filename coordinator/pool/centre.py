"""The evaluation of one version's centre: its episodes, screening, and verdict."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from coordinator.pool.ranges import Ranges


@dataclass(slots=True)
class Evaluation:
    """Episodes `[0, episodes)` of the unperturbed policy of `version`.

    The first `screening` run alone. With a target the rest follows only where the screened mean
    plus three standard errors reaches it; a `full` evaluation always runs whole. Both rules look at
    nothing but the episodes, so every pool comes to the same verdict.
    """

    version: int
    episodes: int
    screening: int
    target: float | None
    full: bool
    ranges: Ranges = field(init=False)
    returns: NDArray[np.float64] = field(init=False)
    lengths: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        first_part = self.episodes if self.full else self.screening
        self.ranges = Ranges(0, first_part)
        self.returns = np.full(self.episodes, np.nan)
        self.lengths = np.zeros(self.episodes, dtype=np.int64)

    def has(self, first: int, count: int) -> bool:
        """Whether any of these episodes has its return already."""
        return bool(np.any(~np.isnan(self.returns[first : first + count])))

    def record(self, first: int, returns: NDArray[np.float64], lengths: NDArray[np.int64]) -> None:
        """Take the returns (n,) and lengths (n,) of episodes `[first, first + n)`."""
        end = first + len(returns)
        self.ranges.remove(first, end)
        self.returns[first:end] = returns
        self.lengths[first:end] = lengths
        if self.finished and not self.full and self._worth_the_rest():
            self.full = True
            self.ranges.add(self.screening, self.episodes)

    def make_full(self) -> None:
        """Ask for all episodes, whatever the screening says."""
        if not self.full:
            self.full = True
            self.ranges.add(self.screening, self.episodes)

    @property
    def asked(self) -> int:
        """Episodes asked for so far."""
        return self.episodes if self.full else self.screening

    @property
    def finished(self) -> bool:
        """Whether all that were asked for are here."""
        return not np.any(np.isnan(self.returns[: self.asked]))

    @property
    def unfinished(self) -> int:
        """Episodes asked for that are not here."""
        return int(np.isnan(self.returns[: self.asked]).sum())

    @property
    def mean(self) -> float:
        """Mean return of what was asked for."""
        return float(self.returns[: self.asked].mean())

    @property
    def deviation(self) -> float:
        """Sample deviation of the returns, 0 for one."""
        return float(self.returns[: self.asked].std(ddof=1)) if self.asked > 1 else 0.0

    @property
    def steps(self) -> int:
        """Environment steps of what was asked for."""
        return int(self.lengths[: self.asked].sum())

    @property
    def reached(self) -> bool:
        """Whether a full evaluation meets the target."""
        return self.full and self.target is not None and self.mean >= self.target

    def _worth_the_rest(self) -> bool:
        if self.target is None or self.episodes == self.screening:
            return self.target is not None
        return self.mean + 3.0 * self.deviation / math.sqrt(self.asked) >= self.target
