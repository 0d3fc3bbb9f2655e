from __future__ import annotations

import random
import tracemalloc

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.packing import (
    MAX_LIST,
    MAX_MAP,
    MAX_MESSAGE,
    WireError,
    pack,
    pack_integers,
    pack_reals,
    unpack,
    unpack_integers,
    unpack_reals,
)

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@settings(max_examples=200, deadline=None)
@given(VALUES)
def test_plain_values_come_back(value: object) -> None:
    assert unpack(pack(value)) == value


def test_what_is_longer_than_a_message_is_refused_unread() -> None:
    assert unpack(pack(bytes(MAX_MESSAGE - 5))) == bytes(MAX_MESSAGE - 5)
    with pytest.raises(WireError, match="262,145 bytes where 262,144 are the most"):
        unpack(bytes(MAX_MESSAGE + 1))
    with pytest.raises(WireError, match="5 bytes where 4"):
        unpack(bytes(5), limit=4)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",  # never used
        b"\x91",  # a list without its entry
        b"\x01\x02",  # two values
        b"\xd9\x02\xff\xfe",  # text that is not UTF-8
        b"\xa3\xed\xb2\x80",  # a lone surrogate
        b"\xd4\x01\x00",  # an extension type
        b"\xd6\xff\x00\x00\x00\x00",  # a time stamp, which is one too
        b"\x81\x01\x02",  # a map with a number for a key
        b"\x81\x90\x02",  # a map with a list for a key
        b"\xdd\xff\xff\xff\xff",  # a list of 4 billion
        b"\xdf\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\x91" * 5000,  # nested too deeply
        b"\x81\xa1a" * 5000,
    ],
)
def test_what_is_no_plain_value_is_refused(data: bytes) -> None:
    with pytest.raises(WireError) as caught:
        unpack(data)
    assert "\n" not in str(caught.value)


def test_lists_and_maps_are_bounded() -> None:
    assert len(unpack(pack([0] * MAX_LIST))) == MAX_LIST
    assert len(unpack(pack({str(n): n for n in range(MAX_MAP)}))) == MAX_MAP
    for value in ([0] * (MAX_LIST + 1), {str(n): n for n in range(MAX_MAP + 1)}):
        with pytest.raises(WireError):
            unpack(pack(value))


def test_headers_that_promise_long_lists_cost_little() -> None:
    """Nested promises of lists as long as the message: without a bound each level reserves one."""
    bomb = b"\xdd\x00\x03\xe8\x00" * (MAX_MESSAGE // 5)
    tracemalloc.start()
    try:
        with pytest.raises(WireError):
            unpack(bomb)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MAX_MESSAGE


def test_random_bytes_raise_nothing_but_wire_errors() -> None:
    source = random.Random(7)
    for _ in range(20_000):
        data = source.randbytes(source.randrange(40))
        for decode in (
            unpack,
            lambda data: unpack_integers(data, 16),
            lambda data: unpack_reals(data, 16),
        ):
            try:
                decode(data)
            except WireError:
                continue


# Arrays.


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20))
def test_integers_come_back_in_the_narrowest_width(values: list[int]) -> None:
    array = np.array(values, dtype=np.int64)
    data = pack_integers(array)
    assert np.array_equal(unpack_integers(data, len(values)), array)
    width = (len(data) - 1) // len(values) if values else 1
    narrower = {8: 4, 4: 2, 2: 1}.get(width)
    if narrower and values:
        limit = 2 ** (8 * narrower - 1)
        assert not all(-limit <= value < limit for value in values)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.floats(width=64), max_size=20) | st.lists(st.floats(width=32), max_size=20))
def test_reals_come_back_exactly(values: list[float]) -> None:
    array = np.array(values, dtype=np.float64)
    back = unpack_reals(pack_reals(array), len(values))
    assert back.dtype == np.float64
    assert np.array_equal(back, array, equal_nan=True)


@pytest.mark.parametrize(
    ("values", "width"),
    [
        ([1.0, 500.0], 2),
        ([-128.0, 127.0], 1),
        ([0.5, 0.25], 4),
        ([0.1], 8),
        ([1e300], 8),
        ([float("nan"), 1.0], 4),
        ([2.0**31], 4),
    ],
)
def test_reals_take_no_more_bytes_than_they_need(values: list[float], width: int) -> None:
    assert len(pack_reals(np.array(values))) == 1 + width * len(values)


def test_integers_over_63_bits_do_not_pack() -> None:
    with pytest.raises(OverflowError):
        pack_integers(np.array([2**63], dtype=np.uint64))


@pytest.mark.parametrize(
    ("data", "most", "complaint"),
    [
        (b"", 4, "no bytes"),
        (b"\x06", 4, "width 6"),
        (b"\xff\x00", 4, "width 255"),
        (b"\x01\x00", 4, "1 bytes is not up to 4 x 2"),
        (b"\x00" + bytes(5), 4, "5 bytes is not up to 4 x 1"),
        (b"\x03" + bytes(7), 4, "7 bytes is not up to 4 x 8"),
        (b"\x04" + bytes(4), 4, "width 4"),  # reals where integers are due
        (b"\x05" + bytes(8), 4, "width 5"),
    ],
)
def test_malformed_integers_are_refused(data: bytes, most: int, complaint: str) -> None:
    with pytest.raises(WireError, match=complaint):
        unpack_integers(data, most)


def test_the_format_is_the_one_that_other_languages_read() -> None:
    assert pack_integers(np.array([1, -2])) == b"\x00\x01\xfe"
    assert pack_integers(np.array([1, 300])) == b"\x01\x01\x00\x2c\x01"
    assert pack_reals(np.array([0.5])) == b"\x04" + np.float32(0.5).tobytes()
    assert msgpack.unpackb(pack({"a": b"b"})) == {"a": b"b"}
