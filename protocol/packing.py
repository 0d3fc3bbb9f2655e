"""Plain values and number arrays as bounded msgpack: the bytes below every message."""

from __future__ import annotations

from typing import Any

import msgpack
import numpy as np
from numpy.typing import NDArray

MAX_MESSAGE = 256 * 1024
"""Bytes of the largest message that any peer accepts."""

MAX_LIST = 4096
"""Entries of the longest list in any message. Without a bound, a header of five bytes would make
the decoder reserve a list as long as the whole message, at each of a thousand levels."""
MAX_MAP = 256
"""Entries of the largest map."""

_INTEGERS: tuple[np.dtype[Any], ...] = tuple(map(np.dtype, ("<i1", "<i2", "<i4", "<i8")))
_REALS: tuple[np.dtype[Any], ...] = (np.dtype("<f4"), np.dtype("<f8"))
_DTYPES: dict[int, np.dtype[Any]] = dict(enumerate((*_INTEGERS, *_REALS)))
_CODES = {dtype: code for code, dtype in _DTYPES.items()}


class WireError(Exception):
    """Bytes from the wire that break a rule; never more than one line, never fatal to a peer."""


def pack(value: Any) -> bytes:
    """msgpack bytes of plain values."""
    return bytes(msgpack.packb(value, use_bin_type=True))


def unpack(data: bytes, limit: int = MAX_MESSAGE) -> Any:
    """Plain values of msgpack bytes: at most `limit` bytes, bounded lists, no extension types.

    Raises `WireError`.
    """
    if len(data) > limit:
        raise WireError(f"{len(data):,} bytes where {limit:,} are the most")
    try:
        return msgpack.unpackb(
            data,
            raw=False,
            strict_map_key=True,
            max_ext_len=0,
            max_array_len=MAX_LIST,
            max_map_len=MAX_MAP,
        )
    except (ValueError, msgpack.exceptions.UnpackException, RecursionError) as error:
        raise WireError(f"not valid msgpack ({type(error).__name__})") from None


def pack_integers(values: NDArray[np.integer[Any]]) -> bytes:
    """One byte for the width, then the values in the narrowest little-endian that holds all."""
    for dtype in _INTEGERS:
        info = np.iinfo(dtype)
        if values.size == 0 or (values.min() >= info.min and values.max() <= info.max):
            return bytes([_CODES[dtype]]) + values.astype(dtype).tobytes()
    raise OverflowError("an unsigned value over 2^63 can't be packed")


def unpack_integers(data: bytes, most: int) -> NDArray[np.int64]:
    """The int64 array of `pack_integers`, of at most `most` values. Raises `WireError`."""
    return _unpack_array(data, most, "iu").astype(np.int64)


def pack_reals(values: NDArray[np.float64]) -> bytes:
    """As `pack_integers` where all values are integers, else float32 where exact, else float64."""
    values = np.asarray(values, dtype=np.float64)
    if np.all(np.abs(values) < 2**31) and np.array_equal(values, np.rint(values)):
        # -0.0 becomes 0: returns compare and rank equal either way.
        return pack_integers(values.astype(np.int64))
    with np.errstate(over="ignore"):
        single = values.astype("<f4")
    if np.array_equal(single.astype(np.float64), values, equal_nan=True):
        return bytes([_CODES[_REALS[0]]]) + single.tobytes()
    return bytes([_CODES[_REALS[1]]]) + values.astype("<f8").tobytes()


def unpack_reals(data: bytes, most: int) -> NDArray[np.float64]:
    """The float64 array of `pack_reals`, of at most `most` values. Raises `WireError`."""
    with np.errstate(invalid="ignore"):  # a stranger's signalling NaN is refused, not warned of
        return _unpack_array(data, most, "iuf").astype(np.float64)


def _unpack_array(data: bytes, most: int, kinds: str) -> NDArray[Any]:
    if not data:
        raise WireError("an array of no bytes: its first byte names its width")
    dtype = _DTYPES.get(data[0])
    if dtype is None or dtype.kind not in kinds:
        raise WireError(f"array width {data[0]} is not one of {sorted(_DTYPES)}")
    count, rest = divmod(len(data) - 1, dtype.itemsize)
    if rest or count > most:
        raise WireError(f"an array of {len(data) - 1} bytes is not up to {most} x {dtype.itemsize}")
    return np.frombuffer(data, dtype=dtype, offset=1)
