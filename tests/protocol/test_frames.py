from __future__ import annotations

import paho.mqtt.client as paho
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.frames import (
    MAX_PACKET,
    PUBLISH,
    Packet,
    PacketReader,
    Publication,
    acknowledgement,
    packet_bytes,
    publication,
    publish_packet,
)
from protocol.packing import MAX_MESSAGE, WireError
from protocol.topics import MAX_TOPIC_BYTES


def packet(first: int, body: bytes) -> bytes:
    """A packet of any content; its length is encoded by paho, not by us."""
    header = bytearray([first])
    paho.Client(paho.CallbackAPIVersion.VERSION2)._pack_remaining_length(header, len(body))
    return bytes(header) + body


PACKETS = st.lists(
    st.builds(
        packet,
        st.integers(0, 255),
        st.binary(max_size=300) | st.integers(0, 70_000).map(bytes),
    ),
    max_size=6,
)


@settings(max_examples=60)
@given(PACKETS, st.lists(st.integers(1, 400), min_size=1, max_size=20))
def test_packets_come_out_whole_however_the_stream_is_cut(
    packets: list[bytes], cuts: list[int]
) -> None:
    stream, reader, out = b"".join(packets), PacketReader(), []
    position, turn = 0, 0
    while position < len(stream):
        step = cuts[turn % len(cuts)] if turn < 200 else len(stream)
        out += reader.feed(stream[position : position + step])
        position, turn = position + step, turn + 1
    assert [packet_bytes(one) for one in out] == packets
    assert [one.size for one in out] == [len(one) for one in packets]


def test_packets_come_out_byte_by_byte() -> None:
    packets = [packet(0x30, bytes(range(200))), packet(0xD0, b""), packet(0x40, b"\0\1")]
    reader = PacketReader()
    out = [one for byte in b"".join(packets) for one in reader.feed(bytes([byte]))]
    assert [packet_bytes(one) for one in out] == packets


def test_a_packet_is_there_as_soon_as_its_last_byte() -> None:
    whole = packet(0x30, bytes(1000))
    reader = PacketReader()
    assert reader.feed(whole[:-1]) == []
    assert len(reader.feed(whole[-1:])) == 1
    assert len(reader.feed(whole + whole[:5])) == 1
    assert len(reader.feed(whole[5:])) == 1


@pytest.mark.parametrize("chunk", [1 << 16, 1000, 37])
@pytest.mark.parametrize("extra", [0, 1, 500_000])
def test_a_packet_over_the_limit_streams_past(chunk: int, extra: int) -> None:
    topic = b"shoal/1/run"
    largest = MAX_PACKET - 4 - 2 - len(topic) - 2
    giant = publish_packet(topic, bytes(largest + extra), 1, False, 77)
    assert len(giant) == MAX_PACKET + extra
    small = publish_packet(b"shoal/1/who", b"after", 0, False, 0)
    stream, reader, out, most = giant + small + giant + small, PacketReader(), [], 0
    for position in range(0, len(stream), chunk):
        out += reader.feed(stream[position : position + chunk])
        most = max(most, len(reader._held))
    assert [one.size for one in out] == [len(giant), len(small)] * 2
    assert [one.complete for one in out] == [extra == 0, True] * 2
    assert publication(out[0]).topic == topic
    assert publication(out[0]).packet_id == 77
    assert publication(out[1]).payload == b"after"
    assert most <= MAX_PACKET
    if extra:
        assert len(out[0].body) <= 2 + MAX_TOPIC_BYTES + 2
        assert most < 2000 + chunk


def test_the_largest_message_fits_on_the_longest_topic() -> None:
    whole = publish_packet(b"t" * MAX_TOPIC_BYTES, bytes(MAX_MESSAGE), 1, True, 1)
    (one,) = PacketReader().feed(whole)
    assert one.complete
    assert len(publication(one).payload) == MAX_MESSAGE


def test_a_length_of_five_bytes_ends_the_stream() -> None:
    for stream in (b"\x30\xff\xff\xff\xff", b"\x30\xff\xff\xff\xff\x01", b"\x30" + b"\x80" * 9):
        with pytest.raises(WireError, match="more than four bytes"):
            PacketReader().feed(stream)
    reader = PacketReader()
    assert reader.feed(b"\x30\xff\xff\xff") == []
    with pytest.raises(WireError):
        reader.feed(b"\xff")


@given(st.lists(st.binary(max_size=40), max_size=30))
def test_any_bytes_are_packets_or_an_error(chunks: list[bytes]) -> None:
    reader = PacketReader()
    try:
        for chunk in chunks:
            for one in reader.feed(chunk):
                assert one.size >= 2 + len(one.body)
                assert 0 <= one.kind <= 15
    except WireError:
        return


@given(
    st.binary(min_size=1, max_size=MAX_TOPIC_BYTES),
    st.binary(max_size=400),
    st.sampled_from([0, 1]),
    st.booleans(),
    st.integers(1, 65535),
)
def test_a_publish_packet_reads_back(
    topic: bytes, payload: bytes, qos: int, retain: bool, packet_id: int
) -> None:
    whole = publish_packet(topic, payload, qos, retain, packet_id)
    (one,) = PacketReader().feed(whole)
    assert one.kind == PUBLISH
    assert publication(one) == Publication(topic, packet_id if qos else 0, payload)
    assert one.first & 1 == retain
    assert (one.first >> 1) & 3 == qos


@given(
    st.text("abc/", min_size=1, max_size=30),
    st.binary(max_size=300),
    st.sampled_from([0, 1]),
    st.booleans(),
)
def test_a_publish_packet_is_what_paho_writes(
    topic: str, payload: bytes, qos: int, retain: bool
) -> None:
    client = paho.Client(paho.CallbackAPIVersion.VERSION2)
    client._sock = object()  # type: ignore[assignment]
    client._packet_queue = lambda command, data, *rest: written.append(bytes(data)) or 0
    written: list[bytes] = []
    client._send_publish(513, topic.encode(), payload, qos, retain)
    client._sock = None
    assert written == [publish_packet(topic.encode(), payload, qos, retain, 513)]


def test_an_acknowledgement_is_that_of_the_standard() -> None:
    assert acknowledgement(0x1234) == b"\x40\x02\x12\x34"


@pytest.mark.parametrize(
    ("first", "body"),
    [
        (0x30, b""),
        (0x30, b"\0"),
        (0x30, b"\0\5abc"),
        (0x30, b"\xff\xffabc"),
        (0x32, b"\0\3abc"),
        (0x32, b"\0\3abc\0"),
        (0x32, b"\0\3ab"),
        (0x36, b"\0\3abc\0\1payload"),
    ],
)
def test_malformed_publish_packets_are_refused(first: int, body: bytes) -> None:
    with pytest.raises(WireError):
        publication(Packet(first, 2 + len(body), body))


@given(st.integers(0, 15), st.binary(max_size=300), st.booleans())
def test_any_publish_packet_has_parts_or_an_error(flags: int, body: bytes, oversize: bool) -> None:
    size = MAX_PACKET + 1 if oversize else 2 + len(body)
    try:
        parts = publication(Packet(0x30 | flags, size, body))
    except WireError:
        return
    assert 0 <= parts.packet_id <= 65535
    assert len(parts.topic) + len(parts.payload) <= len(body)
