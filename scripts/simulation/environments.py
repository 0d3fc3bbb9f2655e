"""Episodes by formula, and the run specs of runs that evaluate them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from protocol import spec as run_spec
from protocol.messages import TaskKind
from protocol.spec import RunSpec

Lengths = Literal["constant", "uniform", "geometric", "heavy"]
Returns = Literal["unrelated", "long", "short"]
Played = tuple[NDArray[np.float64], NDArray[np.int64]]

BLOCK = 4096
"""Units that are computed at once."""
MOST_BLOCKS = 256
"""Blocks that are remembered."""
LONGEST = 50
"""No episode is longer than so many times the mean, however heavy the tail."""

CARTPOLE = {
    "id": "CartPole-v1",
    "observation": {"kind": "box", "shape": [4]},
    "action": {"kind": "discrete", "n": 2},
}


class Environment(Protocol):
    """What workers evaluate. A NaN return is that of an episode which raised."""

    def play(self, kind: TaskKind, version: int, first: int, count: int) -> Played:
        """(returns, lengths) of `count` units from `first` on, evaluated at `version`.

        Float64 and int64, shape (count, 2) for members, +sigma first, (count,) for the centre. The
        same arguments give the same values.
        """
        ...


@dataclass(frozen=True)
class Formula:
    """Episodes that depend on their number and version alone.

    `lengths`: all `mean`; uniform in `mean - spread .. mean + spread`; geometric; or a Pareto tail
    (index 2, cut at 50 times the mean). `returns`: unrelated to the length, or good episodes are
    the long or the short ones. `level` (of a version) is added to the return. Episodes of the
    directions that are `failing` raise.
    """

    mean: int = 100
    spread: int = 50
    lengths: Lengths = "uniform"
    returns: Returns = "unrelated"
    level: Callable[[int], float] = float
    failing: frozenset[int] = frozenset()
    _blocks: dict[tuple[TaskKind, int, int], Played] = field(
        default_factory=dict, repr=False, compare=False
    )

    def play(self, kind: TaskKind, version: int, first: int, count: int) -> Played:
        """As `Environment` says; the arrays can't be written to."""
        begin, end = first // BLOCK, (first + count - 1) // BLOCK
        blocks = [self._block(kind, version, number) for number in range(begin, end + 1)]
        rows = slice(first - begin * BLOCK, first - begin * BLOCK + count)
        if len(blocks) == 1:
            returns, lengths = blocks[0]
            return returns[rows], lengths[rows]
        return (
            np.concatenate([returns for returns, _ in blocks])[rows],
            np.concatenate([lengths for _, lengths in blocks])[rows],
        )

    def _block(self, kind: TaskKind, version: int, number: int) -> Played:
        key = (kind, version, number)
        found = self._blocks.get(key)
        if found is None:
            while len(self._blocks) >= MOST_BLOCKS:
                del self._blocks[next(iter(self._blocks))]
            found = self._blocks[key] = self._compute(kind, version, number * BLOCK)
        return found

    def _compute(self, kind: TaskKind, version: int, first: int) -> Played:
        units = np.arange(first, first + BLOCK)
        salts = (3,) if kind == "centre" else (1, 2)
        raw = np.stack([_mixed(version, units, salt) for salt in salts], axis=1)
        lengths = self._lengths(raw)
        returns = self.level(version) + self._returns(raw, lengths)
        if kind == "centre":
            returns, lengths = returns[:, 0], lengths[:, 0]
        elif self.failing:
            returns[np.isin(units, list(self.failing))] = np.nan
        returns.flags.writeable = lengths.flags.writeable = False
        return returns, lengths

    def _lengths(self, raw: NDArray[np.int64]) -> NDArray[np.int64]:
        match self.lengths:
            case "constant":
                return np.full_like(raw, self.mean)
            case "uniform":
                return self.mean - self.spread + raw % (2 * self.spread + 1)
        uniform = (raw + 1.0) / 2.0**32
        if self.lengths == "geometric":
            lengths = -self.mean * np.log(uniform)
        else:
            lengths = 0.5 * self.mean / np.sqrt(uniform)
        return np.clip(np.rint(lengths), 1, LONGEST * self.mean).astype(np.int64)

    def _returns(self, raw: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.float64]:
        match self.returns:
            case "long":
                return lengths.astype(np.float64)
            case "short":
                return -lengths.astype(np.float64)
        return (raw % 1000) / 1000.0


def _mixed(version: int, units: NDArray[np.int64], salt: int) -> NDArray[np.int64]:
    """Numbers in 0 .. 2**32 - 1 that look random and depend on nothing else."""
    x = (units.astype(np.uint64) + np.uint64(version * 7919 + salt * 104729)) * np.uint64(
        0x9E3779B1
    )
    x ^= x >> np.uint64(15)
    x = x * np.uint64(0x85EBCA77) & np.uint64(0xFFFFFFFF)
    return ((x ^ (x >> np.uint64(13))) & np.uint64(0xFFFFFFFF)).astype(np.int64)


def spec(population: int = 32, **sections: object) -> RunSpec:
    """A run spec of that population, which judges no centre; sections are laid over it."""
    base = {
        "name": "simulated",
        "environment": CARTPOLE,
        "strategy": {"population": population},
        "centre": {"evaluate_every": 0},
    }
    return run_spec.parse(run_spec.merge(base, sections))
