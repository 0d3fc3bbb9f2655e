"""Shapings by name: how the returns of an update become integer utilities of its members."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from protocol.ranking import centred_ranks
from protocol.registry import Registry

PEAK = 32767
"""Magnitude of the largest of utilities that were not integers."""
CLIP = 5.0
"""Deviations from the mean beyond which a return counts no more, where it is not ranked."""


@dataclass(frozen=True, eq=False)
class Shaped:
    """Utilities of members: `integers / divisor`.

    Attributes:
        integers: int64, shape (members,).
        divisor: above 0.
    """

    integers: NDArray[np.int64]
    divisor: float


class Shaping:
    """A registered shaping; it has no state and no settings.

    Attributes:
        kind: its name in a run spec.
    """

    kind: ClassVar[str]

    @staticmethod
    def utilities(returns: NDArray[np.float64]) -> Shaped:
        """The utilities of finite returns, not all equal, float64, shape (members,), members >= 2.

        That of a member must be a function of its return and of all returns, not of their order.
        """
        raise NotImplementedError


SHAPINGS: Registry[Shaping] = Registry("strategy.shaping", "shoal.shapings", Shaping)

_Class = TypeVar("_Class", bound=type[Shaping])


def shaping(kind: _Class) -> _Class:
    """Class decorator: run specs may choose this shaping, by its `kind`."""
    SHAPINGS.add(kind.kind, kind)
    return kind


def shape(name: str, returns: ArrayLike) -> Shaped:
    """The utilities of returns; all 0 where they are equal, whatever the shaping.

    Raises:
        ValueError: a return is NaN or infinite, or the shape is not (members,).
        ShoalError: no shaping has that name.
    """
    chosen = SHAPINGS.find(name)
    values = finite(returns)
    if values.size < 2 or values.min() == values.max():
        return Shaped(np.zeros(values.size, dtype=np.int64), 1.0)
    return chosen.utilities(values)


def quantised(utilities: ArrayLike) -> Shaped:
    """Real utilities as integers, the largest +-32767: rint(x / max|x| * 32767)."""
    values = finite(utilities)
    largest = float(np.abs(values).max(initial=0.0))
    if largest == 0.0:
        return Shaped(np.zeros(values.size, dtype=np.int64), 1.0)
    return Shaped(np.rint(values / largest * PEAK).astype(np.int64), PEAK / largest)


def finite(returns: ArrayLike) -> NDArray[np.float64]:
    """Returns as float64, shape (members,). Raises ValueError where one is NaN or infinite."""
    values = np.asarray(returns, dtype=np.float64)
    if values.ndim != 1:
        raise ValueError(f"returns of shape {values.shape}: must have one dimension")
    good = np.isfinite(values)
    if not good.all():
        position = int(np.argmin(good))
        raise ValueError(f"return {values[position]} at position {position}: must be finite")
    return values


def moments(returns: NDArray[np.float64]) -> tuple[float, float]:
    """Mean and deviation of returns, of which there is one at least; in any order the same."""
    mean = math.fsum(returns) / returns.size
    apart = returns - mean
    span = float(np.abs(apart).max())
    if span == 0.0:
        return mean, 0.0
    return mean, span * math.sqrt(math.fsum((apart / span) ** 2) / returns.size)


def clipped(returns: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns within `CLIP` deviations of their mean: one stranger's number outweighs no crowd."""
    mean, deviation = moments(returns)
    return np.clip(returns, mean - CLIP * deviation, mean + CLIP * deviation)


def in_units(values: NDArray[np.float64], unit: float) -> NDArray[np.float64]:
    """The values divided by the unit; all 0 where returns are so near that it rounds to 0."""
    return values / unit if unit > 0.0 else np.zeros_like(values)


@shaping
class CentredRanks(Shaping):
    """Ranks from -0.5 to 0.5, ties shared (Salimans et al. 2017)."""

    kind = "centred-ranks"

    @staticmethod
    def utilities(returns: NDArray[np.float64]) -> Shaped:
        """See `Shaping.utilities`."""
        return Shaped(centred_ranks(returns), 2.0 * (returns.size - 1))


@shaping
class ZScore(Shaping):
    """Distances from the mean in deviations."""

    kind = "z-score"

    @staticmethod
    def utilities(returns: NDArray[np.float64]) -> Shaped:
        """See `Shaping.utilities`."""
        values = clipped(returns)
        mean, deviation = moments(values)
        return quantised(in_units(values - mean, deviation))


@shaping
class Sign(Shaping):
    """1 above the median, -1 below it, 0 on it."""

    kind = "sign"

    @staticmethod
    def utilities(returns: NDArray[np.float64]) -> Shaped:
        """See `Shaping.utilities`."""
        return Shaped(np.sign(returns - np.median(returns)).astype(np.int64), 1.0)


@shaping
class Raw(Shaping):
    """The returns less their mean: steps grow with them."""

    kind = "raw"

    @staticmethod
    def utilities(returns: NDArray[np.float64]) -> Shaped:
        """See `Shaping.utilities`."""
        values = clipped(returns)
        return quantised(values - moments(values)[0])


@shaping
class Normalised(Shaping):
    """The returns less their mean, divided by the distance from the lowest to the highest."""

    kind = "normalised"

    @staticmethod
    def utilities(returns: NDArray[np.float64]) -> Shaped:
        """See `Shaping.utilities`."""
        values = clipped(returns)
        return quantised(in_units(values - moments(values)[0], values.max() - values.min()))
