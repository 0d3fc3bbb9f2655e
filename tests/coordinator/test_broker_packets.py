"""The bytes of MQTT: cut, read and written the same whatever comes and however it is split."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.broker import packets
from coordinator.broker.packets import OutgoingPublish, PacketRefused, Publish
from tests.contract.raw import packet, publish_body, text

LIMIT = 1000
TOPIC_BYTES = 32

topics = st.text(
    st.characters(exclude_characters="#+\0", exclude_categories=["Cs"]), min_size=1, max_size=8
).filter(lambda topic: not topic.startswith("$"))
first_bytes = st.integers(0, 255)
bodies = st.binary(max_size=LIMIT)


def taken(stream: bytes, cuts: list[int]) -> tuple[list[tuple[int, bytes]], bytes]:
    """Feed `stream` in pieces -> the packets, and what is left over."""
    buffer, found = bytearray(), []
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    for start, end in itertools.pairwise(edges):
        buffer += stream[start:end]
        while batch := packets.take_packets(buffer, LIMIT):
            found += batch
    return found, bytes(buffer)


@given(st.lists(st.tuples(first_bytes, bodies), max_size=5), st.lists(st.integers(0, 5100)))
def test_packets_do_not_depend_on_how_the_stream_is_cut(
    sent: list[tuple[int, bytes]], cuts: list[int]
) -> None:
    stream = b"".join(packet(*one) for one in sent)
    assert taken(stream, cuts) == (sent, b"")
    assert taken(stream + b"\x30\x05ab", cuts) == (sent, b"\x30\x05ab")


def test_too_long_is_refused_from_its_length_alone_after_what_came_before() -> None:
    buffer = bytearray(packet(0xC0) + packet(0x30, bytes(LIMIT + 1))[:3])
    assert packets.take_packets(buffer, LIMIT) == [(0xC0, b"")]
    with pytest.raises(PacketRefused, match=r"1001 bytes, at most 1000"):
        packets.take_packets(buffer, LIMIT)
    with pytest.raises(PacketRefused):
        packets.take_packets(bytearray(b"\x30\xff\xff\xff\xff"), 1 << 27)


@given(topics, bodies, st.integers(0, 1), st.booleans(), st.integers(1, 65535))
def test_a_publish_comes_back_as_it_was_written(
    topic: str, payload: bytes, qos: int, retain: bool, packet_id: int
) -> None:
    message = Publish(topic, payload, qos, retain, packet_id if qos else 0)
    outgoing = OutgoingPublish(message, retain=retain)
    written = outgoing.at_least_once(packet_id) if qos else outgoing.at_most_once()
    [(first_byte, body)] = packets.take_packets(bytearray(written), 1 << 20)
    assert packets.read_publish(first_byte, body, TOPIC_BYTES) == message


@given(st.integers(0x30, 0x3F), st.binary(max_size=80))
def test_any_publish_is_read_or_refused(first_byte: int, body: bytes) -> None:
    try:
        message = packets.read_publish(first_byte, body, TOPIC_BYTES)
    except PacketRefused:
        return
    assert 0 < len(message.topic.encode()) <= TOPIC_BYTES
    assert (message.packet_id == 0) == (message.qos == 0)


@given(st.sampled_from([0x82, 0xA2, 0x80]), st.binary(max_size=80))
def test_any_subscription_is_read_or_refused(first_byte: int, body: bytes) -> None:
    try:
        packet_id, filters = packets.read_filters(first_byte, body, 4, TOPIC_BYTES)
    except PacketRefused:
        return
    assert packet_id > 0
    assert 1 <= len(filters) <= 4
    assert all(0 < len(name.encode()) <= TOPIC_BYTES for name, _ in filters)


def test_filters_are_read_with_their_qos_and_a_long_list_is_not_read_to_its_end() -> None:
    body = b"\x00\x07" + text("a/+") + b"\x01" + text("b/#") + b"\x00"
    assert packets.read_filters(0x82, body, 2, TOPIC_BYTES) == (7, [("a/+", 1), ("b/#", 0)])
    with pytest.raises(PacketRefused, match="more than 2"):
        packets.read_filters(0x82, body + (text("c") + b"\x00") * 10_000 + b"junk", 2, TOPIC_BYTES)
    with pytest.raises(PacketRefused):
        packets.read_filters(0x82, body[:-1], 2, TOPIC_BYTES)
    assert packets.read_filters(0xA2, b"\x00\x07" + text("a"), 2, TOPIC_BYTES) == (7, [("a", 0)])


@pytest.mark.parametrize("name", ["", "a/#", "+", "$SYS/x", "a\0b", "x" * (TOPIC_BYTES + 1)])
def test_topics_that_no_message_may_have(name: str) -> None:
    with pytest.raises(PacketRefused, match="topic"):
        packets.read_publish(0x30, publish_body(name, b""), TOPIC_BYTES)
