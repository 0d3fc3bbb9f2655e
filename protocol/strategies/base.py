"""What every strategy is: a pure function from returns to integer weights and one scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

SHARES = 60
"""Multiplier of a fresh cohort; divisible by 1 to 6, so that usual discounts are exact."""


@dataclass(frozen=True, eq=False)
class Cohort:
    """Returns of consecutive directions that were evaluated at the same version.

    Attributes:
        first_direction: direction of the first return.
        version: of the parameters that were perturbed.
        age: versions between those and the parameters that the update will change.
        returns_plus: of the members at +sigma, float64, shape (count,); NaN where a direction is
            missing or dropped, finite elsewhere.
        returns_minus: likewise of the mirrored members; NaN in the same places. None where no
            members are mirrored.
    """

    first_direction: int
    version: int
    age: int
    returns_plus: NDArray[np.float64]
    returns_minus: NDArray[np.float64] | None

    def __post_init__(self) -> None:
        """Raise ValueError where the returns do not fit together."""
        if self.returns_minus is None:
            return
        if self.returns_plus.ndim != 1 or self.returns_plus.shape != self.returns_minus.shape:
            raise ValueError(
                f"returns of shapes {self.returns_plus.shape} and {self.returns_minus.shape}: "
                "must be one row each, of equal length"
            )
        if (np.isnan(self.returns_plus) != np.isnan(self.returns_minus)).any():
            raise ValueError("a direction with one of its two returns missing: must miss both")

    @property
    def present(self) -> NDArray[np.bool_]:
        """Which directions have returns, shape (count,)."""
        return ~np.isnan(self.returns_plus)


@dataclass(frozen=True, eq=False)
class Weighting:
    """What a strategy makes of returns: gradient = scale * sum of multiplier * weight * noise.

    Attributes:
        weights: per cohort, int64, one weight a direction.
        multipliers: per cohort, the integer that its weights count times; discounts age.
        scale: float64, of the whole sum of noise integers.
        members: how many returns took part.
    """

    weights: tuple[NDArray[np.int64], ...]
    multipliers: tuple[int, ...]
    scale: float
    members: int

    @property
    def rests(self) -> bool:
        """Whether there is no step at all, moments and decay included: every weight is zero."""
        return not any(weights.any() for weights in self.weights)


class Strategy(Protocol):
    """A registered strategy; instances are frozen and hold its hyperparameters.

    Attributes:
        kind: its name in a run spec.
        accepts_stale: whether returns of earlier versions may count in an update.
        needs_gaussian: whether it adapts sigma, which rademacher noise can't tell it.
        needs_acceptance: whether a step is kept only once its centre evaluates better.
    """

    kind: ClassVar[str]
    accepts_stale: ClassVar[bool]
    needs_gaussian: ClassVar[bool]
    needs_acceptance: ClassVar[bool]

    def __init__(self, discount: int = 1) -> None:
        """`discount`: the power of a cohort's age that its returns are discounted by."""
        ...

    def weigh(self, cohorts: Sequence[Cohort], sigma: float, unit: float) -> Weighting:
        """Integer weights for the directions of an update.

        Args:
            cohorts: all that counts in the update.
            sigma: size of the perturbations.
            unit: worth of an integer of the noise, `protocol.noise.unit`.
        """
        ...


def multiplier(age: int, discount: int = 1) -> int:
    """How many times a cohort of this age counts: 60 // (1 + age)^discount, at least once.

    A fresh one counts 60 times. Discounting keeps returns of earlier versions from acting as
    momentum; with `discount` 0 they count as much.
    """
    if not 0 <= age < SHARES:
        raise ValueError(f"age {age} of a cohort: must lie in 0 .. {SHARES - 1}")
    return max(1, SHARES // (1 + age) ** discount)
