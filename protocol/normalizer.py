"""Exact observation sums, and the running statistics that every update makes of them.

A frame x is measured as the integer q = rint((x - shift) * 2**exponent), with shift and exponent
per dimension. They belong to a version, since evaluations of several versions meet in one update.
Counts and sums of q and q**2 are exact, so they add up the same for any cut of the work. Once per
update the sums become running statistics in float64, from which the next shift and exponent follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protocol.packing import WireError

LIMIT = 1 << 47
"""Bound of |q|: observations beyond shift +- LIMIT / 2**exponent count as if they lay there."""
MAX_COUNT = 1 << 32
"""Frames that one set of sums holds at most; squares of so many still fit 128 bits."""

INITIAL_EXPONENT = 26  # version 0 measures +-2**21 in steps of 1.5e-8
LOWEST_EXPONENT = -100
HIGHEST_EXPONENT = 40
RESOLUTION_BITS = 20
"""A deviation measures 2**19 to 2**20 steps. Rounding moves mean and deviation by half a step at
most, which is less than 1e-6 of the deviation."""

SMALLEST_DEVIATION = 1e-7
"""A dimension that deviates less counts as constant: the policy gets 0 for it, as in ARS."""

_COUNT_BYTES = 5
_HEADER_BYTES = _COUNT_BYTES + 2
_WIDEST = 16


@dataclass(frozen=True)
class ObservationSums:
    """Exact sums over the frames of some directions, all measured under one version.

    Attributes:
        count: frames, 0 .. MAX_COUNT.
        linear: sum of q, one a dimension.
        square: sum of q**2, one a dimension.
    """

    count: int
    linear: tuple[int, ...]
    square: tuple[int, ...]

    @property
    def dims(self) -> int:
        """Number of observation dimensions."""
        return len(self.linear)


def no_observations(dims: int) -> ObservationSums:
    """The sums over no frame."""
    return ObservationSums(0, (0,) * dims, (0,) * dims)


def from_words(count: int, words: NDArray[np.uint64]) -> ObservationSums:
    """The sums that `protocol.kernels.observe_frame` added up over `count` frames.

    Args:
        words: shape (dims, 4): the sum of q as a signed 128-bit integer (low word, high word), the
            sum of q**2 as an unsigned one.
    """
    linear, square = [], []
    for low, high, square_low, square_high in words.tolist():
        linear.append((high << 64 | low) - (high >> 63 << 128))
        square.append(square_high << 64 | square_low)
    return ObservationSums(count, tuple(linear), tuple(square))


def merge(parts: Sequence[ObservationSums]) -> ObservationSums:
    """The sums over all frames of `parts`, at least one; the same in whatever order.

    Raises:
        OverflowError: more than MAX_COUNT frames.
    """
    count = sum(part.count for part in parts)
    if count > MAX_COUNT:
        raise OverflowError(f"{count} frames in one update: at most {MAX_COUNT} can be counted")
    return ObservationSums(
        count,
        tuple(map(sum, zip(*(part.linear for part in parts), strict=True))),
        tuple(map(sum, zip(*(part.square for part in parts), strict=True))),
    )


def to_bytes(sums: ObservationSums) -> bytes:
    """The wire form: count (5 bytes), bytes of a sum, bytes of a square, sums, squares.

    All little-endian, sums signed; one width for all dimensions, the narrowest that holds them.
    About 11 bytes a dimension for an episode of a few hundred frames.
    """
    linear_width = max((_signed_width(value) for value in sums.linear), default=0)
    square_width = max(((value.bit_length() + 7) // 8 for value in sums.square), default=0)
    return b"".join(
        (
            sums.count.to_bytes(_COUNT_BYTES, "little"),
            bytes((linear_width, square_width)),
            *(value.to_bytes(linear_width, "little", signed=True) for value in sums.linear),
            *(value.to_bytes(square_width, "little") for value in sums.square),
        )
    )


def from_bytes(data: bytes, dims: int) -> ObservationSums:
    """The sums that `to_bytes` packed, checked to be possible for that many frames.

    Raises:
        WireError: not the sums of up to MAX_COUNT frames of `dims` dimensions.
    """
    if len(data) < _HEADER_BYTES:
        raise WireError(f"observation sums of {len(data)} bytes, shorter than their header")
    count = int.from_bytes(data[:_COUNT_BYTES], "little")
    linear_width, square_width = data[_COUNT_BYTES:_HEADER_BYTES]
    split = _HEADER_BYTES + dims * linear_width
    end = split + dims * square_width
    if max(linear_width, square_width) > _WIDEST or len(data) != end:
        raise WireError(f"observation sums of {len(data)} bytes do not fit {dims} dimensions")
    if count > MAX_COUNT:
        raise WireError(f"observation sums of {count} frames where {MAX_COUNT} are the most")
    linear = _integers(data[_HEADER_BYTES:split], linear_width, dims, signed=True)
    square = _integers(data[split:], square_width, dims, signed=False)
    for total, total_square in zip(linear, square, strict=True):
        if total * total > count * total_square or total_square > count * LIMIT**2:
            raise WireError(f"observation sums {total}, {total_square} fit no {count} frames")
    return ObservationSums(count, linear, square)


@dataclass(frozen=True, eq=False)
class NormalizerState:
    """Running statistics of all frames that ever counted, and how recent versions measure.

    Attributes:
        count: frames, as float64.
        mean: float64, shape (dims,).
        squares: float64, shape (dims,): sum of squared deviations from the mean.
        shifts: float64, shape (window, dims): row a is the shift of the version a updates ago.
        exponents: int16, shape (window, dims): likewise.
    """

    count: float
    mean: NDArray[np.float64]
    squares: NDArray[np.float64]
    shifts: NDArray[np.float64]
    exponents: NDArray[np.int16]

    @property
    def dims(self) -> int:
        """Number of observation dimensions."""
        return self.mean.size

    @property
    def window(self) -> int:
        """How many versions may still be measured under: the current one and earlier ones."""
        return self.shifts.shape[0]

    def measure(self, age: int = 0) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(shift, scale) of the version `age` updates ago, float64, shape (dims,) each.

        These are what `protocol.kernels.observe_frame` takes; scale = 2**exponent.
        """
        return self.shifts[age], np.ldexp(1.0, self.exponents[age])

    def deviation(self) -> NDArray[np.float64]:
        """Standard deviation of all frames so far, shape (dims,); 1 before the second frame."""
        if self.count < 2.0:
            return np.ones(self.dims)
        return np.sqrt(self.squares / self.count)

    def policy_input(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """(mean, 1 / deviation), float32, shape (dims,) each: policies see (x - mean) * inverse.

        The inverse is 0 where the deviation is below SMALLEST_DEVIATION; a mean beyond float32 is
        its largest value, so that what a policy sees stays finite.
        """
        deviation = self.deviation()
        varies = deviation >= SMALLEST_DEVIATION
        inverse = np.where(varies, 1.0 / np.where(varies, deviation, 1.0), 0.0)
        largest = float(np.finfo(np.float32).max)
        mean = np.clip(self.mean, -largest, largest)
        return mean.astype(np.float32), inverse.astype(np.float32)


def initial_state(dims: int, window: int) -> NormalizerState:
    """The statistics of version 0, with room for `window` versions' measures."""
    return NormalizerState(
        count=0.0,
        mean=np.zeros(dims),
        squares=np.zeros(dims),
        shifts=np.zeros((window, dims)),
        exponents=np.full((window, dims), INITIAL_EXPONENT, dtype=np.int16),
    )


def continued(
    count: float, mean: NDArray[np.float64], squares: NDArray[np.float64], window: int
) -> NormalizerState:
    """The statistics of a version 0 that begins with what another run has seen, with room for
    `window` versions' measures; `count`, `mean` and `squares` as in `NormalizerState`.

    It measures as that run's version did. Those of the window before it measure nothing.
    """
    dims = mean.size
    blank = np.full(dims, INITIAL_EXPONENT, dtype=np.int16)
    shift, exponents = _measure(count, mean, squares, blank)
    return NormalizerState(
        count=count,
        mean=mean,
        squares=squares,
        shifts=np.tile(shift, (window, 1)),
        exponents=np.tile(exponents, (window, 1)),
    )


def advance(
    state: NormalizerState, observations: Sequence[tuple[int, ObservationSums]]
) -> NormalizerState:
    """The statistics of the next version.

    Sums join the oldest measure first, by Chan, Golub and LeVeque 1979 ("Updating formulae and a
    pairwise algorithm for computing sample variances"). The next version measures around the mean
    in steps that RESOLUTION_BITS sets; a dimension that never varied keeps its steps.

    Args:
        observations: (age, sums) of each version that was measured under, each age once, in
            0 .. window - 1.

    Raises:
        ValueError: an age twice or outside the window, or another number of dimensions.
    """
    _require_ages(state, observations)
    count, mean, squares = state.count, state.mean, state.squares
    for age, sums in sorted(observations, key=lambda pair: -pair[0]):
        if sums.count == 0:
            continue
        part = float(sums.count)
        part_mean, part_squares = _moments(sums, state.shifts[age], state.exponents[age])
        total = count + part
        difference = part_mean - mean
        mean = mean + difference * (part / total)
        squares = squares + part_squares + difference * difference * (count * part / total)
        count = total
    shift, exponents = _measure(count, mean, squares, state.exponents[0])
    return NormalizerState(
        count=count,
        mean=mean,
        squares=squares,
        shifts=np.vstack((shift[np.newaxis], state.shifts[:-1])),
        exponents=np.vstack((exponents[np.newaxis], state.exponents[:-1])),
    )


def _measure(
    count: float,
    mean: NDArray[np.float64],
    squares: NDArray[np.float64],
    exponents: NDArray[np.int16],
) -> tuple[NDArray[np.float64], NDArray[np.int16]]:
    """Shift and exponents of the version that has these statistics; `exponents` are those before,
    which dimensions keep that never varied."""
    if count >= 2.0:
        _, power = np.frexp(np.sqrt(squares / count))
        ideal = np.clip(RESOLUTION_BITS - power, LOWEST_EXPONENT, HIGHEST_EXPONENT)
        exponents = np.where(squares > 0.0, ideal, exponents).astype(np.int16)
    # A shift of whole steps: else values on a grid, as float32 is, would all round the same way.
    return np.ldexp(np.rint(np.ldexp(mean, exponents)), -exponents), exponents


def _moments(
    sums: ObservationSums, shift: NDArray[np.float64], exponents: NDArray[np.int16]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    # Python divides integers of any size with a single rounding.
    count = sums.count
    offset = np.array([linear / count for linear in sums.linear])
    spread = np.array(
        [
            (count * square - linear * linear) / count
            for linear, square in zip(sums.linear, sums.square, strict=True)
        ]
    )
    steps = exponents.astype(np.int32)
    return shift + np.ldexp(offset, -steps), np.ldexp(spread, -2 * steps)


def _require_ages(
    state: NormalizerState, observations: Sequence[tuple[int, ObservationSums]]
) -> None:
    ages = [age for age, _ in observations]
    if len(set(ages)) != len(ages) or not all(0 <= age < state.window for age in ages):
        raise ValueError(
            f"observation sums of versions {ages} updates ago: each once, 0 .. {state.window - 1}"
        )
    for _, sums in observations:
        if sums.dims != state.dims:
            raise ValueError(f"observation sums of {sums.dims} dimensions: must be {state.dims}")


def _signed_width(value: int) -> int:
    magnitude = value if value >= 0 else ~value
    return magnitude.bit_length() // 8 + 1 if value else 0


def _integers(data: bytes, width: int, dims: int, *, signed: bool) -> tuple[int, ...]:
    return tuple(
        int.from_bytes(data[width * d : width * (d + 1)], "little", signed=signed)
        for d in range(dims)
    )
