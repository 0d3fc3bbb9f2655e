"""What every strategy is: returns to integers on the one side, exact sums to a state on all."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import ClassVar, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from protocol.errors import ShoalError
from protocol.registry import Registry

Vector: TypeAlias = NDArray[np.float64]

SHARES = 60
"""Multiplier of a fresh cohort; divisible by 1 to 6, so that usual discounts are exact."""
SMALLEST_SIGMA = 1e-10
LARGEST_SIGMA = 1e10
"""Bounds of every adapted sigma, so that members stay apart and finite."""


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
class Returns:
    """All returns of an update, one after the other.

    Attributes:
        plus: of the members at +sigma that are there, cohort by cohort, shape (directions,).
        minus: of their mirrored ones; None where none are mirrored.
        counts: directions of each cohort that have returns.
    """

    plus: NDArray[np.float64]
    minus: NDArray[np.float64] | None
    counts: tuple[int, ...]
    _present: tuple[NDArray[np.bool_], ...] = ()

    @classmethod
    def of(cls, cohorts: Sequence[Cohort]) -> Returns:
        """Those of the cohorts, of which all or none are mirrored."""
        present = tuple(cohort.present for cohort in cohorts)
        plus = [cohort.returns_plus[mask] for cohort, mask in zip(cohorts, present, strict=True)]
        minus = [
            cohort.returns_minus[mask]
            for cohort, mask in zip(cohorts, present, strict=True)
            if cohort.returns_minus is not None
        ]
        if minus and len(minus) < len(plus):
            raise ValueError("mirrored and other directions in one update: must be all or none")
        return cls(
            np.concatenate([np.empty(0), *plus]),
            np.concatenate(minus) if minus else None,
            tuple(int(mask.sum()) for mask in present),
            present,
        )

    @property
    def members(self) -> int:
        """How many returns there are."""
        return self.plus.size * (1 if self.minus is None else 2)

    @property
    def all(self) -> NDArray[np.float64]:
        """Plus, then minus, shape (members,)."""
        return self.plus if self.minus is None else np.concatenate([self.plus, self.minus])

    def differences(self, utilities: NDArray[np.int64]) -> NDArray[np.int64]:
        """What each direction's noise counts, shape (directions,), for utilities in the order of
        `all`: that of its member less that of its mirrored one."""
        if self.minus is None:
            return utilities
        return utilities[: self.plus.size] - utilities[self.plus.size :]

    def sums(self, utilities: NDArray[np.int64]) -> NDArray[np.int64]:
        """What the square of each direction's noise counts: both members have the same."""
        if self.minus is None:
            return utilities
        return utilities[: self.plus.size] + utilities[self.plus.size :]

    def placed(self, values: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
        """One row per cohort, 0 where a direction is missing, of values of those that are there."""
        rows = []
        for mask, end, count in zip(
            self._present, accumulate(self.counts), self.counts, strict=True
        ):
            row = np.zeros(mask.size, dtype=np.int64)
            row[mask] = values[end - count : end]
            rows.append(row)
        return tuple(rows)


@dataclass(frozen=True)
class Situation:
    """Where a run stands when an update is made.

    Attributes:
        version: of the parameters that the update changes.
        size: number of parameters.
        sigma: size of the perturbations of that version; where they have one per parameter, of the
            first version.
        unit: worth of an integer of the noise, `protocol.noise.unit`.
    """

    version: int
    size: int
    sigma: float
    unit: float


@dataclass(frozen=True, eq=False)
class Weighting:
    """What a strategy makes of returns: all that an update tells.

    Attributes:
        weights: per cohort, int64, one weight a direction.
        multipliers: per cohort, the integer that its weights count times; discounts age.
        scale: float64, of the whole sum of noise integers.
        members: how many returns took part.
        squares: per cohort, int64, one weight for the square of each direction's noise; none but
            for a strategy that `needs_gaussian`.
        scalars: further float64 numbers that `Strategy.follow` needs, 16 at most.
    """

    weights: tuple[NDArray[np.int64], ...]
    multipliers: tuple[int, ...]
    scale: float
    members: int
    squares: tuple[NDArray[np.int64], ...] = ()
    scalars: tuple[float, ...] = ()

    @property
    def rests(self) -> bool:
        """Whether there is no step at all, moments and decay included: every weight is zero."""
        return not any(weights.any() for weights in (*self.weights, *self.squares))


@dataclass(frozen=True, eq=False)
class Adapted:
    """What a strategy remembers between updates; without adaptation only sigma.

    Attributes:
        sigma: size of the perturbations, above 0.
        sigmas: one per parameter, float64, shape (size,), above 0; None where all have `sigma`.
        memory: further vectors by name, float64.
    """

    sigma: float
    sigmas: Vector | None = None
    memory: Mapping[str, Vector] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Sums:
    """An update as a replica sees it: the exact sums of its weights over the noise.

    Attributes:
        version: of the parameters that it changes.
        total: int64, shape (size,): sum of multiplier * weight * noise.
        scale: of the update.
        unit: worth of an integer of the noise.
        squares: int64, shape (size,): sum of multiplier * square weight * (noise**2 - 4096**2);
            None but for a strategy that `needs_gaussian`.
        mass: sum of multiplier * square weight.
        scalars: of the update.
    """

    version: int
    total: NDArray[np.int64]
    scale: float
    unit: float
    squares: NDArray[np.int64] | None = None
    mass: int = 0
    scalars: tuple[float, ...] = ()


@dataclass(frozen=True, eq=False)
class Gradient:
    """What the optimizer steps along: total * scale, with integers so that norms are exact."""

    total: NDArray[np.int64]
    scale: float

    @classmethod
    def of(cls, values: Vector) -> Gradient:
        """Of real numbers, in integers below 2**52 of the largest: nearer than float64 adds up.

        Raises ValueError where one is NaN or infinite: machines make different integers of these.
        """
        largest = float(np.abs(values).max(initial=0.0))
        if not math.isfinite(largest):
            raise ValueError("a gradient with NaN or infinity: must be finite")
        if largest == 0.0:
            return cls(np.zeros(values.size, dtype=np.int64), 1.0)
        peak = float(1 << 52)
        return cls(np.rint(values / largest * peak).astype(np.int64), largest / peak)


@dataclass(frozen=True)
class Strategy:
    """Hyperparameters of one kind of strategy; subclasses say what returns do.

    `weigh` is the coordinator's half, whose integers and few scalars travel; `follow` is every
    peer's: elementwise + - * / and sqrt in float64 in a fixed order, and `protocol.exact`.

    Attributes:
        kind: its name in a run spec.
        accepts_stale: whether returns of earlier versions may count in an update.
        needs_gaussian: whether it adapts sigma by the squares of the noise, whose weights its
            updates carry; those of rademacher noise are all 1, so they can't tell it.
        needs_mirrors: whether it compares a member with its mirrored one.
        own_step: whether its step is the paper's own, so that no optimizer may bend it.
        shapes: whether it asks for a `shaping` of the returns; else it has its own.
        defaults: spec values, table by table, that a new run of it has unless told otherwise.
        discount: the power of a cohort's age that its returns are discounted by.
        shaping: name of how returns become utilities, see `protocol.strategies.shapings`.
    """

    kind: ClassVar[str]
    accepts_stale: ClassVar[bool] = False
    needs_gaussian: ClassVar[bool] = False
    needs_mirrors: ClassVar[bool] = False
    own_step: ClassVar[bool] = False
    shapes: ClassVar[bool] = True
    defaults: ClassVar[Mapping[str, Mapping[str, object]]] = {}

    discount: int = 1
    shaping: str = "centred-ranks"

    @property
    def needs_acceptance(self) -> bool:
        """Whether a step is kept only where its centre evaluates better; else it is reverted."""
        return False

    @classmethod
    def settings(cls) -> list[str]:
        """The names of what can be set of it in a spec, besides what all have."""
        names = hyperparameters(cls)
        return [n for n in names if n != "discount" and (cls.shapes or n != "shaping")]

    def weigh(self, cohorts: Sequence[Cohort], situation: Situation) -> Weighting:
        """Integer weights for the directions of an update.

        Equal returns weigh nothing. The weights do not depend on the cut into cohorts, or on their
        order. Raises ValueError where a return is infinite.
        """
        raise NotImplementedError

    def begin(self, size: int, sigma: float) -> Adapted:
        """What it remembers at version 0, of `size` parameters perturbed by `sigma`."""
        return Adapted(sigma)

    def follow(self, sums: Sums, before: Adapted) -> tuple[Gradient, Adapted]:
        """The gradient of an update whose sums are not all zero, and what is remembered after it.

        The arguments stay as they are. A gradient of zeros leaves parameters and optimizer at rest.
        The sigma that is remembered counts for a strategy that `needs_gaussian`, else the update's.
        """
        return Gradient(sums.total, sums.scale), before

    @property
    def judges_sigma(self) -> bool:
        """Whether the size of the perturbations moves with the verdicts on candidates."""
        return False

    def judged_sigma(self, sigma: float, better: bool) -> float:
        """That size after a candidate turned out to be better, or not."""
        return sigma

    def _require(self, name: str, holds: bool, rule: str) -> None:
        if not holds:
            value = getattr(self, name)
            raise ShoalError(f"strategy {self.kind}: {name} = {value}: must satisfy {rule}")


STRATEGIES: Registry[Strategy] = Registry("strategy.kind", "shoal.strategies", Strategy)

_Class = TypeVar("_Class", bound=type[Strategy])


def strategy(kind: _Class) -> _Class:
    """Class decorator: run specs may choose this strategy, by its `kind`."""
    STRATEGIES.add(kind.kind, kind)
    return kind


def bounded(sigmas: Vector) -> Vector:
    """Adapted sigmas within the bounds of all."""
    return np.minimum(np.maximum(sigmas, SMALLEST_SIGMA), LARGEST_SIGMA)


def hyperparameters(kind: type[Strategy]) -> tuple[str, ...]:
    """The names of the hyperparameters that a strategy takes."""
    return tuple(entry.name for entry in dataclasses.fields(kind))


def multiplier(age: int, discount: int = 1) -> int:
    """How many times a cohort of this age counts: 60 // (1 + age)^discount, at least once.

    A fresh one counts 60 times. Discounting keeps returns of earlier versions from acting as
    momentum; with `discount` 0 they count as much.
    """
    if not 0 <= age < SHARES:
        raise ValueError(f"age {age} of a cohort: must lie in 0 .. {SHARES - 1}")
    return max(1, SHARES // (1 + age) ** discount)
