"""Members that are never built: the centre, and the signs of their noise, a bit for each.

To write a member's parameters costs about as much as a step of a large policy to read them, and an
episode may be over after ten. A kernel that reads a parameter as centre + or - sigma makes the same
number when it needs it, from memory that 16 members share.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.extending import overload
from numpy.typing import NDArray

OCTET = 8
"""Directions whose signs are in one byte."""


class Signs(NamedTuple):
    """Rows of parameters as kernels read them. They take it as a plain tuple.

    Attributes:
        centres: float32 (groups, size): theta of the members that were written from that group on.
        octets: uint8 (groups, size): bit b of entry j is set where direction b of the group has a 1
            for parameter j, and -1 where it is not.
        centre_of: int64 (rows,), the group that holds the centre of a row.
        steps: float32 (rows,), what is added where the bit is set and taken off elsewhere.
    """

    centres: NDArray[np.float32]
    octets: NDArray[np.uint8]
    centre_of: NDArray[np.int64]
    steps: NDArray[np.float32]


class SignRoom:
    """Room for rows of parameters, which may be sliced where a group begins.

    Attributes:
        signs: of all rows.
    """

    def __init__(self, signs: Signs, per_direction: int, first: int = 0) -> None:
        self.signs = signs
        self._first, self._per_direction = first, per_direction

    @classmethod
    def of(cls, rows: int, size: int, per_direction: int) -> SignRoom:
        """New room; memory that no member has used costs nothing."""
        groups = -(-rows // (OCTET * per_direction))
        signs = Signs(
            np.empty((groups, size), dtype=np.float32),
            np.empty((groups, size), dtype=np.uint8),
            np.zeros(rows, dtype=np.int64),
            np.zeros(rows, dtype=np.float32),
        )
        return cls(signs, per_direction)

    def __getitem__(self, rows: slice) -> SignRoom:
        """The room from a row on."""
        return SignRoom(self.signs, self._per_direction, self._first + rows.start)

    def write_centre(self, theta: NDArray[np.float32]) -> None:
        """The first row becomes theta."""
        group, row = self._group, self._first
        self.signs.centres[group] = theta
        self.signs.octets[group] = 0
        self.signs.centre_of[row], self.signs.steps[row] = group, 0.0

    def write_members(
        self,
        first: int,
        count: int,
        theta: NDArray[np.float32],
        step: np.float32,
        octets_of: Callable[[int], NDArray[np.uint8]],
    ) -> None:
        """The first rows become the members of so many directions; see `protocol.noise.members`.

        Args:
            theta: shape (size,), in the policy's order.
            step: sigma.
            octets_of: gives the noise's bytes for directions 8 b to 8 b + 7, in that order.
        """
        group, each, signs = self._group, self._per_direction, self.signs
        rows = slice(self._first, self._first + each * count)
        signs.centres[group] = theta
        signs.centre_of[rows] = group
        signs.steps[rows] = step
        if each == 2:
            signs.steps[rows][1::2] = -step
        block, shift = divmod(first, OCTET)
        octets = octets_of(block)
        for number in range(-(-count // OCTET)):
            here = signs.octets[group + number]
            np.right_shift(octets, shift, out=here)
            if shift + count > OCTET * (number + 1):
                octets = octets_of(block + number + 1)
                here |= octets << (OCTET - shift) if shift else 0

    @property
    def _group(self) -> int:
        group, within = divmod(self._first, OCTET * self._per_direction)
        if within:
            raise ValueError(f"row {self._first} is in the middle of a group of signs")
        return group


def member(parameters: Any, row: int, per_direction: int) -> Any:
    """A row of parameters, whatever holds it: an array, or a tuple as `Signs` is."""
    raise NotImplementedError("this is for compiled code")


def part(parameters: Any, begin: int, end: int) -> Any:
    """Parameters `begin` to `end` of such a row."""
    raise NotImplementedError("this is for compiled code")


def value(parameters: Any, j: int) -> np.float32:
    """Parameter j of such a row or part."""
    raise NotImplementedError("this is for compiled code")


@overload(member, strict=False)  # the functions have no annotations
def _member(parameters: Any, row: Any, per_direction: Any) -> Any:
    if isinstance(parameters, types.Array):
        return lambda parameters, row, per_direction: parameters[row]

    def of_signs(parameters, row, per_direction):  # type: ignore[no-untyped-def]
        centres, octets, centre_of, steps = parameters
        direction = row // per_direction
        mask = np.uint8(1 << (direction & 7))
        return centres[centre_of[row]], octets[direction >> 3], mask, steps[row]

    return of_signs


@overload(part, strict=False)
def _part(parameters: Any, begin: Any, end: Any) -> Any:
    if isinstance(parameters, types.Array):
        return lambda parameters, begin, end: parameters[begin:end]

    def of_signs(parameters, begin, end):  # type: ignore[no-untyped-def]
        centre, octets, mask, step = parameters
        return centre[begin:end], octets[begin:end], mask, step

    return of_signs


@overload(value, strict=False)
def _value(parameters: Any, j: Any) -> Any:
    if isinstance(parameters, types.Array):
        return lambda parameters, j: parameters[j]

    def of_signs(parameters, j):  # type: ignore[no-untyped-def]
        centre, octets, mask, step = parameters
        return centre[j] + (step if octets[j] & mask else -step)

    return of_signs
