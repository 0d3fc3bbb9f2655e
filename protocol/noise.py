"""Perturbations named by an integer: directions, members built from them, exact sums over them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from protocol import kernels
from protocol.streams import (
    EPISODE_SEED_MASK,
    Domain,
    episode_seed,
    require_unsigned,
    stream,
)

__all__ = [
    "GAUSSIAN",
    "KINDS",
    "RADEMACHER",
    "Domain",
    "add_weighted_sum",
    "directions",
    "episode_seed",
    "episode_seeds",
    "gaussian_table",
    "largest",
    "magnitude",
    "member",
    "members",
    "require_exact",
    "require_exact_moment",
    "scale",
    "second_moment",
    "stream",
    "unit",
    "weighted_sum",
]

RADEMACHER = "rademacher"
GAUSSIAN = "gaussian"
KINDS = (RADEMACHER, GAUSSIAN)

Spread: TypeAlias = float | NDArray[np.float64] | NDArray[np.float32]
"""Sizes of perturbations: of all parameters, or one for each, shape (size,)."""

DIRECTION_LIMIT = 1 << 63
SUM_LIMIT = 1 << 53  # a sum below it is the same number in float64
MOMENT_LIMIT = 1 << 63
GAUSSIAN_ONE = 4096  # one standard deviation
DIRECTIONS_AT_ONCE = 8192  # bounds the look-up tables of a sum to 2 MiB


@dataclass(frozen=True)
class _Kind:
    unit: float
    largest: int


_KINDS = {
    RADEMACHER: _Kind(unit=1.0, largest=1),
    GAUSSIAN: _Kind(unit=1 / GAUSSIAN_ONE, largest=17715),
}


def unit(kind: str) -> float:
    """What an integer of this noise is worth, in standard deviations."""
    return _kind(kind).unit


def largest(kind: str) -> int:
    """The largest magnitude among the integers of this noise."""
    return _kind(kind).largest


@cache
def gaussian_table() -> NDArray[np.int16]:
    """Normal quantiles for 16-bit words, shape (65536,): round(4096 * quantile((i + 0.5) / 65536)).

    Shipped as a file, since the last bit of a quantile is the platform's mathematics library's.
    """
    table: NDArray[np.int16] = np.load(
        Path(__file__).with_name("gaussian_table.npy"), allow_pickle=False
    )
    table.setflags(write=False)
    return table


@cache
def _moment_table() -> NDArray[np.int32]:
    return gaussian_table().astype(np.int32) ** 2 - np.int32(GAUSSIAN_ONE**2)


def directions(kind: str, run_seed: int, start: int, count: int, size: int) -> NDArray[np.int64]:
    """The noise of `count` directions from `start` on, in integers of `unit(kind)`.

    The definition, in plain NumPy: the compiled sums and members are tested against it.

    Returns:
        Shape (count, size). Rademacher: +1 where bit d % 8 of byte j of stream d // 8 is set,
        else -1. Gaussian: the table's entry at 16-bit word j of stream d.
    """
    _kind(kind)
    _require_directions(start, count)
    rows = np.empty((count, size), dtype=np.int64)
    for row, direction in enumerate(range(start, start + count)):
        if kind == RADEMACHER:
            octets = stream(run_seed, Domain.NOISE, direction // 8, size)
            rows[row] = (octets >> (direction % 8) & 1).astype(np.int64) * 2 - 1
        else:
            halves = stream(run_seed, Domain.NOISE, direction, 2 * size).view("<u2")
            rows[row] = gaussian_table()[halves]
    return rows


def member(
    kind: str,
    run_seed: int,
    direction: int,
    sign: int,
    theta: NDArray[np.float32],
    sigma: Spread,
) -> NDArray[np.float32]:
    """The parameters of one member: theta + float32(sigma * unit * sign) * float32(noise).

    The product and the sum each round to float32: a fused multiply-add gives other parameters.

    Args:
        sign: +1, or -1 for the mirrored member.
        theta: shape (size,).
        sigma: size of the perturbation, in standard deviations of the noise; of all parameters, or
            one for each, shape (size,).
    """
    if sign not in (1, -1):
        raise ValueError(f"sign {sign}: must be 1 or -1")
    noise = directions(kind, run_seed, direction, 1, theta.size)[0].astype(np.float32)
    product = scale(kind, sigma, sign) * noise
    return theta.astype(np.float32, copy=False) + product


def members(
    kind: str,
    run_seed: int,
    first_direction: int,
    count: int,
    theta: NDArray[np.float32],
    sigma: Spread,
    out: NDArray[np.float32] | None = None,
    order: NDArray[np.int32] | None = None,
    per_direction: int = 2,
) -> NDArray[np.float32]:
    """The members of each of `count` directions; bit for bit those of `member`.

    Args:
        theta: float32, shape (size,).
        sigma: as in `member`.
        out: float32, C-contiguous, shape (per_direction * count, size); made where there is none.
        order: int32, shape (size,), a permutation: entry j of `theta`, of a `sigma` for each and of
            each row is parameter order[j]. Parameter j where there is none.
        per_direction: 2 with the mirrored ones, or 1.

    Returns:
        `out`: rows +, - of the first direction, then +, - of the next; or + of each.
    """
    if per_direction not in (1, 2):
        raise ValueError(f"{per_direction} members of a direction: must be 1 or 2")
    _require_directions(first_direction, count)
    require_unsigned("run seed", run_seed)
    theta = _own(theta, np.float32)
    shape = (per_direction * count, theta.size)
    if out is None:
        out = np.empty(shape, dtype=np.float32)
    elif out.shape != shape or out.dtype != np.float32 or not out.flags.c_contiguous:
        raise ValueError(
            f"out of shape {out.shape}, {out.dtype}: must be {shape}, float32, contiguous"
        )
    if order is None:
        order = np.arange(theta.size, dtype=np.int32)
    elif order.shape != theta.shape or order.dtype != np.int32:
        raise ValueError(
            f"order of shape {order.shape}, {order.dtype}: must be {theta.shape}, int32"
        )
    seed, worth = np.uint64(run_seed), scale(kind, sigma)
    if worth.shape not in ((), theta.shape):
        raise ValueError(f"sigmas of shape {worth.shape}: must be {theta.shape}, or one number")
    if kind == RADEMACHER:
        kernels.rademacher_members(seed, first_direction, per_direction, theta, worth, order, out)
    else:
        first = np.uint64(first_direction)
        table = gaussian_table()
        kernels.table_members(seed, first, per_direction, table, theta, worth, order, out)
    return out


def weighted_sum(
    kind: str, run_seed: int, start: int, weights: ArrayLike, size: int
) -> NDArray[np.int64]:
    """The sum over i of weights[i] * direction (start + i): exact, without building a direction.

    The same integers in any order and for any cut of the directions, so sums of parts add up.

    Args:
        weights: integers of any sign, shape (count,).
        size: number of parameters.

    Returns:
        Shape (size,), in integers of `unit(kind)`.

    Raises:
        OverflowError: sum |weights| * max |noise| reaches 2**53.
    """
    total = np.zeros(size, dtype=np.int64)
    add_weighted_sum(kind, run_seed, start, weights, total)
    return total


def warm_up(kind: str) -> None:
    """Load what is compiled for sums of this kind, which takes most of a second the first time."""
    weighted_sum(kind, 0, 0, np.ones(1, dtype=np.int64), 1)


def add_weighted_sum(
    kind: str, run_seed: int, start: int, weights: ArrayLike, total: NDArray[np.int64]
) -> None:
    """Add `weighted_sum` to `total`, int64, shape (size,); sums of several calls are the caller's.

    Raises:
        OverflowError: as in `weighted_sum`.
    """
    whole = _integer_weights(weights)
    _require_directions(start, whole.size)
    require_unsigned("run seed", run_seed)
    require_exact(magnitude(whole), largest(kind))
    seed = np.uint64(run_seed)
    if kind == GAUSSIAN:
        kernels.add_table_sum(seed, np.uint64(start), whole, gaussian_table(), total)
        return
    for begin in range(0, whole.size, DIRECTIONS_AT_ONCE):
        part = whole[begin : begin + DIRECTIONS_AT_ONCE]
        kernels.add_rademacher_sum(seed, start + begin, part, total)


def second_moment(
    kind: str, run_seed: int, start: int, weights: ArrayLike, size: int
) -> NDArray[np.int64]:
    """The sum over i of weights[i] * (noise**2 - one**2), in units of `unit(kind)**2`.

    What an adapted sigma follows (Sehnke et al. 2010, PGPE); arguments as in `weighted_sum`.

    Raises:
        ValueError: the noise is not gaussian; the square of rademacher noise is always 1.
        OverflowError: the sum could reach 2**63.
    """
    if kind != GAUSSIAN:
        raise ValueError(f"noise {kind!r}: only gaussian noise has a second moment that varies")
    whole = _integer_weights(weights)
    _require_directions(start, whole.size)
    require_unsigned("run seed", run_seed)
    require_exact_moment(magnitude(whole))
    total = np.zeros(size, dtype=np.int64)
    kernels.add_table_sum(np.uint64(run_seed), np.uint64(start), whole, _moment_table(), total)
    return total


def episode_seeds(
    run_seed: int, indices: ArrayLike, domain: int = Domain.EPISODE
) -> NDArray[np.int64]:
    """`episode_seed` for each of `indices`, about a thousand times as fast; same shape."""
    require_unsigned("run seed", run_seed)
    wanted = np.ascontiguousarray(indices, dtype=np.uint64)
    seeds = np.empty(wanted.shape, dtype=np.uint64)
    kernels.first_words(
        np.uint64(run_seed), np.uint64(domain), wanted.reshape(-1), seeds.reshape(-1)
    )
    return (seeds & np.uint64(EPISODE_SEED_MASK)).astype(np.int64)


def magnitude(weights: NDArray[np.int64]) -> int:
    """The exact sum of |weights|."""
    return sum(map(abs, weights.tolist()))


def require_exact(weight: int, noise: int, limit: int = SUM_LIMIT) -> None:
    """Raise OverflowError unless a sum of total weight `weight` stays below `limit`."""
    if weight * noise >= limit:
        raise OverflowError(
            f"weights of total size {weight} on noise up to {noise}: the product must stay below "
            f"2**{limit.bit_length() - 1} to be exact; use smaller weights or fewer members"
        )


def scale(kind: str, sigma: Spread, sign: int = 1) -> np.float32 | NDArray[np.float32]:
    """What an integer of the noise is worth in a member: one number, or one for each parameter.

    Sigmas may be given as float32: the unit is a power of two, so they are rounded once anyway.
    """
    if isinstance(sigma, np.ndarray):
        return (sigma.astype(np.float64) * unit(kind) * sign).astype(np.float32)
    return np.float32(sigma * unit(kind) * sign)


def require_exact_moment(weight: int) -> None:
    """As `require_exact`, for second moments of gaussian noise: these must stay below 2**63."""
    require_exact(weight, largest(GAUSSIAN) ** 2 - GAUSSIAN_ONE**2, MOMENT_LIMIT)


def _kind(kind: str) -> _Kind:
    try:
        return _KINDS[kind]
    except KeyError:
        raise ValueError(f"noise {kind!r}: must be one of {', '.join(KINDS)}") from None


def _integer_weights(weights: ArrayLike) -> NDArray[np.int64]:
    whole = np.asarray(weights)
    if whole.ndim != 1:
        raise ValueError(f"weights of shape {whole.shape}: must have one dimension")
    if whole.size == 0:
        return np.empty(0, dtype=np.int64)
    if not np.can_cast(whole.dtype, np.int64):
        raise TypeError(f"weights of type {whole.dtype}: must be integers of up to 64 bits")
    return _own(whole, np.int64)


def _own(array: ArrayLike, dtype: DTypeLike) -> NDArray[Any]:
    """A writeable copy: kernels are compiled anew for arrays that are read-only or have gaps."""
    return np.array(array, dtype=dtype, order="C")


def _require_directions(start: int, count: int) -> None:
    if start < 0 or count < 0 or start + count > DIRECTION_LIMIT:
        raise ValueError(f"directions {start} .. {start} + {count}: must lie in 0 .. 2**63 - 1")
