"""What holds in a run otherwise than its spec says, as a state has it and a snapshot tells it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from protocol.batches import Layout, Stretch
from protocol.packing import WireError, pack, unpack
from protocol.proof import Data

MOST_BYTES = 8192
"""Of it in a snapshot."""
MOST_VALUES = 64
MOST_STRETCHES = 64
"""Changes of the batch that the last `max_staleness` versions can have seen are far fewer."""
MOST_COUNT = 1 << 53
"""No index, direction or number of them is larger."""
LONGEST_LABEL = 64


@dataclass(frozen=True, slots=True)
class Amended:
    """The settings of a version that updates have changed; `protocol.amendments` makes them.

    Attributes:
        values: (field of the run spec, its value), by field ascending.
        layout: of the batches that may still count; None where all are as large as the spec says.
    """

    values: tuple[tuple[str, float], ...] = ()
    layout: Layout | None = None

    def reached(self, version: int, window: int) -> Amended:
        """The same at that version, without the batches whose returns can't count any more: those
        that are `window` versions old."""
        if self.layout is None:
            return self
        return Amended(self.values, self.layout.since(version - window + 1))

    def to_bytes(self) -> bytes:
        """Canonical bytes; none where nothing was changed, so that the states of a run whose
        settings never change are what they always were."""
        if self == NOTHING:
            return b""
        stretches = () if self.layout is None else self.layout.stretches
        return pack([list(map(list, self.values)), list(map(_numbers, stretches))])


NOTHING = Amended()


def from_bytes(data: Data) -> Amended:
    """What `to_bytes` wrote. Raises `WireError` for anything else; whether its values fit the run
    is for `protocol.amendments.check`."""
    if not len(data):
        return NOTHING
    octets = bytes(data)
    try:
        values, stretches = unpack(octets, MOST_BYTES)
        if len(values) > MOST_VALUES or len(stretches) > MOST_STRETCHES:
            raise WireError("more amended settings than there are")
        found = Amended(
            tuple((label, value) for label, value in values),
            Layout(tuple(Stretch(*each) for each in stretches)) if stretches else None,
        )
    except (TypeError, ValueError):
        raise WireError("amended settings of another form") from None
    if not (_are_settings(found.values) and _is_layout(found.layout)):
        raise WireError("amended settings that no state has")
    if found.to_bytes() != octets:
        raise WireError("amended settings that are not written as they must be")
    return found


def _are_settings(values: tuple[tuple[str, float], ...]) -> bool:
    labels = [label for label, _ in values]
    if not all(isinstance(label, str) and len(label) <= LONGEST_LABEL for label in labels):
        return False
    return labels == sorted(set(labels)) and all(
        isinstance(value, float) and math.isfinite(value) for _, value in values
    )


def _is_layout(layout: Layout | None) -> bool:
    if layout is None:
        return True
    numbers = [number for stretch in layout.stretches for number in _numbers(stretch)]
    if not all(type(number) is int and 0 <= number <= MOST_COUNT for number in numbers):
        return False
    return all(stretch.count for stretch in layout.stretches) and layout.fits_together


def _numbers(stretch: Stretch) -> list[int]:
    return [stretch.index, stretch.first, stretch.count]
