"""Spaces of observations and actions, and how many numbers each is as a flat vector.

A flat vector has a space's elements in the order of Gymnasium's `flatten`: a choice of one is
one-hot, the parts of a composite space follow one another.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal, Union

import msgspec

from protocol.section import Section

MOST_PARTS = 1024
"""Spaces in a space that are no composite ones themselves."""
DEEPEST = 6
"""Composite spaces within one another."""
LARGEST = 1 << 24
"""Numbers that a space may be as a flat vector."""

Shape = Annotated[
    tuple[Annotated[int, msgspec.Meta(ge=1, le=LARGEST)], ...], msgspec.Meta(max_length=8)
]
Choices = Annotated[int, msgspec.Meta(ge=1, le=1 << 20)]
Start = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31)]


class Box(Section, frozen=True, kw_only=True, tag="box", tag_field="kind"):
    """A space of real vectors: `shape`, and for actions the bounds `low` and `high` per element.

    Observations of `dtype` uint8, as images are, become numbers from 0 to 1 when a policy reads
    them.
    """

    later: ClassVar[tuple[str, ...]] = ("dtype",)

    shape: Shape
    low: Annotated[tuple[float, ...], msgspec.Meta(max_length=4096)] = ()
    high: Annotated[tuple[float, ...], msgspec.Meta(max_length=4096)] = ()
    dtype: Literal["float32", "uint8"] = "float32"

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


class Discrete(Section, frozen=True, kw_only=True, tag="discrete", tag_field="kind"):
    """A space of `n` actions or observations, numbered from `start`."""

    n: Choices
    start: Start = 0

    @property
    def size(self) -> int:
        """Number of elements of the one-hot form."""
        return self.n


class MultiDiscrete(Section, frozen=True, kw_only=True, tag="multi-discrete", tag_field="kind"):
    """Several choices at once, in an array of `shape`: `choices` says of how many each is one."""

    choices: Annotated[tuple[Choices, ...], msgspec.Meta(min_length=1, max_length=4096)]
    shape: Shape
    start: Annotated[tuple[Start, ...], msgspec.Meta(max_length=4096)] = ()
    """What each is numbered from; from 0 where there is none."""

    @property
    def size(self) -> int:
        """Number of elements of the one-hot forms, one after the other."""
        return sum(self.choices)


class MultiBinary(Section, frozen=True, kw_only=True, tag="multi-binary", tag_field="kind"):
    """An array of switches, each 0 or 1."""

    shape: Shape

    @property
    def size(self) -> int:
        """Number of switches."""
        return math.prod(self.shape)


class Tuple(Section, frozen=True, kw_only=True, tag="tuple", tag_field="kind"):
    """Spaces side by side."""

    spaces: Annotated[tuple[Space, ...], msgspec.Meta(min_length=1, max_length=256)]

    @property
    def size(self) -> int:
        """Number of elements of all of them."""
        return sum(space.size for space in self.spaces)


class Dict(Section, frozen=True, kw_only=True, tag="dict", tag_field="kind"):
    """Spaces side by side, each with a name, in the environment's own order."""

    names: Annotated[
        tuple[Annotated[str, msgspec.Meta(max_length=64)], ...],
        msgspec.Meta(min_length=1, max_length=256),
    ]
    spaces: Annotated[tuple[Space, ...], msgspec.Meta(min_length=1, max_length=256)]

    @property
    def size(self) -> int:
        """Number of elements of all of them."""
        return sum(space.size for space in self.spaces)


Leaf = Box | Discrete | MultiDiscrete | MultiBinary
Space = Union[Box, Discrete, MultiDiscrete, MultiBinary, Tuple, Dict]  # noqa: UP007 - recursive


def leaves(space: Space) -> Iterator[Leaf]:
    """The spaces that a composite one is made of, in the order of its flat vector."""
    if isinstance(space, Tuple | Dict):
        for part in space.spaces:
            yield from leaves(part)
    else:
        yield space


def fits(expected: Space, found: Space) -> bool:
    """Whether observations of a space found are what a spec expects.

    Bounds do not matter, and a spec may read numbers as they are that others read as images.
    """
    if isinstance(expected, Box) and isinstance(found, Box):
        return expected.shape == found.shape and expected.dtype in ("float32", found.dtype)
    if isinstance(expected, Tuple | Dict) and isinstance(found, Tuple | Dict):
        bare = msgspec.structs.replace(expected, spaces=found.spaces)
        pairs = zip(expected.spaces, found.spaces, strict=False)
        same = len(expected.spaces) == len(found.spaces) and all(fits(*pair) for pair in pairs)
        return same and bare == found
    return expected == found


def fault(space: Space) -> str:
    """What is wrong with a space beyond its fields' types; empty where nothing is."""
    if _depth(space, DEEPEST + 1) > DEEPEST:
        return f"has composite spaces more than {DEEPEST} deep in one another: use fewer levels"
    if sum(1 for _ in leaves(space)) > MOST_PARTS:
        return f"has more than {MOST_PARTS:,} parts: join some of them into a Box"
    if space.size > LARGEST:
        return f"has {space.size:.3g} numbers, over the limit of {LARGEST:,}: use a smaller one"
    return _own_fault(space)


def _depth(space: Space, most: int) -> int:
    """Composite spaces within one another; counting ends at `most`."""
    if not most or not isinstance(space, Tuple | Dict):
        return 0
    return 1 + max(_depth(part, most - 1) for part in space.spaces)


def _own_fault(space: Space) -> str:
    if isinstance(space, Box) and any(map(math.isnan, (*space.low, *space.high))):
        return "has a bound that is NaN: bounds are numbers"
    if isinstance(space, MultiDiscrete):
        count = math.prod(space.shape)
        if len(space.choices) != count or len(space.start) not in (0, count):
            return (
                f"has {len(space.choices)} choices and {len(space.start)} starts in an array of "
                f"shape {list(space.shape)}: give one of each per element, or no start"
            )
    if isinstance(space, Dict):
        names = set(space.names)
        if not len(names) == len(space.names) == len(space.spaces):
            return (
                f"has {len(space.spaces)} spaces and {len(names)} different names: give each space "
                "a name of its own"
            )
        if not all(name.isprintable() for name in names):
            return "has a name that can't be printed: use letters"
    if isinstance(space, Tuple | Dict):
        return next(filter(None, map(_own_fault, space.spaces)), "")
    return ""
