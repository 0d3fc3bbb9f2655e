"""Whether observation sums lie far from what all have seen so far; pure."""

from __future__ import annotations

from protocol import normalizer

FAR = 32
"""Deviations of all frames so far that those of a result may lie around their mean, as the root of
the mean square: honest frames do where a dimension begins to vary, and then for everybody."""
BAND = (FAR << normalizer.RESOLUTION_BITS) ** 2


def are_far(observed: bytes, dims: int) -> bool:
    """Whether these sums, of a later version than the first, are out of the band in any dimension.

    A version measures around the mean of all frames before it, in steps of which a deviation has
    about 2 ** `normalizer.RESOLUTION_BITS`: so the sums themselves tell.
    """
    sums = normalizer.from_bytes(observed, dims)
    most = sums.count * BAND
    return any(square > most for square in sums.square)
