"""MQTT 3.1.1 packets as bytes: cut out of a stream under a limit, PUBLISH read and written.

Only what is on the path of every message or could be made costly is here; amqtt reads CONNECT.
"""

from __future__ import annotations

from typing import NamedTuple

CONNECT, PUBLISH, PUBACK, SUBSCRIBE, UNSUBSCRIBE, PINGREQ, DISCONNECT = 1, 3, 4, 8, 10, 12, 14
PINGRESP = b"\xd0\x00"


class PacketRefused(Exception):  # noqa: N818 - what happened to the packet, said as such
    """A client sent what the protocol or a limit forbids: its connection ends."""


class Publish(NamedTuple):
    """One application message; `packet_id` is 0 at QoS 0."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    packet_id: int


def take_packets(buffer: bytearray, packet_bytes: int) -> list[tuple[int, bytes]]:
    """Remove the complete packets at the head of `buffer`: (first byte, body) of each.

    Call it until it returns none. Raises PacketRefused, once what came before has been taken, as
    soon as a length above `packet_bytes` has been announced, whether or not its body has arrived.
    """
    packets: list[tuple[int, bytes]] = []
    start = 0
    with memoryview(buffer) as view:
        while header := _length_at(view, start + 1):
            length, body = header
            if length > packet_bytes:
                if packets:
                    break
                raise PacketRefused(f"a packet of {length} bytes, at most {packet_bytes} may be")
            if body + length > len(view):
                break
            packets.append((view[start], bytes(view[body : body + length])))
            start = body + length
    del buffer[:start]
    return packets


def _length_at(view: memoryview, position: int) -> tuple[int, int] | None:
    """Read a remaining length -> (length, where the body begins); None while it is incomplete."""
    length = 0
    for shift in range(0, 28, 7):
        if position >= len(view):
            return None
        byte = view[position]
        position += 1
        length |= (byte & 0x7F) << shift
        if byte < 0x80:
            return length, position
    return 1 << 28, position  # a fifth byte is malformed: refused like a length beyond any limit


def read_publish(first_byte: int, body: bytes, topic_bytes: int) -> Publish:
    """Decode a PUBLISH of QoS 0 or 1.

    Raises PacketRefused for QoS 2, which Shoal never uses, and for whatever is malformed.
    """
    qos = first_byte >> 1 & 3
    if qos > 1:
        raise PacketRefused(f"a PUBLISH at QoS {qos}, at most 1 may be")
    payload = 2 + int.from_bytes(body[:2], "big")
    raw_topic = body[2:payload]
    packet_id = 0
    if qos:
        packet_id = int.from_bytes(body[payload : payload + 2], "big")
        payload += 2
    if payload > len(body) or (qos and packet_id == 0):
        raise PacketRefused("a PUBLISH cut short")
    topic = read_topic(raw_topic, topic_bytes)
    return Publish(topic, body[payload:], qos, bool(first_byte & 1), packet_id)


def read_topic(raw: bytes, topic_bytes: int) -> str:
    """Decode and check the name that a message is published under; raises PacketRefused."""
    try:
        topic = raw.decode()
    except UnicodeDecodeError:
        raise PacketRefused(f"a topic that is not UTF-8: {raw[:40]!r}") from None
    if not 0 < len(raw) <= topic_bytes or topic[0] == "$" or any(c in topic for c in "#+\0"):
        raise PacketRefused(
            f"the topic {topic[:40]!r}: 1 to {topic_bytes} bytes, no wildcard, no $ in front"
        )
    return topic


def read_filters(
    first_byte: int, body: bytes, limit: int, topic_bytes: int
) -> tuple[int, list[tuple[str, int]]]:
    """Decode SUBSCRIBE or UNSUBSCRIBE -> packet identifier, [(topic filter, requested QoS)].

    Stops at `limit` filters, before the rest of a long list has cost anything. Raises
    PacketRefused. (The QoS of a filter in UNSUBSCRIBE is 0.)
    """
    with_qos = first_byte >> 4 == SUBSCRIBE
    packet_id = int.from_bytes(body[:2], "big")
    filters: list[tuple[str, int]] = []
    position = 2
    while position < len(body):
        start = position + 2
        end = start + int.from_bytes(body[position:start], "big")
        position = end + with_qos
        if position > len(body) or not start < end <= start + topic_bytes:
            raise PacketRefused(f"a topic filter that has not 1 to {topic_bytes} bytes")
        try:
            text = body[start:end].decode()
        except UnicodeDecodeError:
            raise PacketRefused(f"a topic filter not in UTF-8: {body[start:end][:40]!r}") from None
        filters.append((text, body[end] if with_qos else 0))
        if len(filters) > limit:
            raise PacketRefused(f"more than {limit} topic filters at once")
    if first_byte & 15 != 2 or packet_id == 0 or not filters:
        raise PacketRefused("a malformed subscription")
    return packet_id, filters


def suback(packet_id: int, granted: list[int]) -> bytes:
    """Return the answer to a SUBSCRIBE: the granted QoS of each filter, 0x80 where refused."""
    length = _encoded_length(2 + len(granted))
    return b"\x90" + length + packet_id.to_bytes(2, "big") + bytes(granted)


def unsuback(packet_id: int) -> bytes:
    """Return the answer to an UNSUBSCRIBE."""
    return b"\xb0\x02" + packet_id.to_bytes(2, "big")


def with_header(packet_type: int, body: bytes) -> bytes:
    """Put the fixed header back in front of a body."""
    return bytes((packet_type << 4,)) + _encoded_length(len(body)) + body


def packet_id_of(body: bytes) -> int:
    """Return the packet identifier that an acknowledgement carries; raises PacketRefused."""
    if len(body) != 2:
        raise PacketRefused(f"an acknowledgement of {len(body)} bytes, it has 2")
    return int.from_bytes(body, "big")


def puback(packet_id: int) -> bytes:
    """Return the acknowledgement of a QoS 1 message."""
    return b"\x40\x02" + packet_id.to_bytes(2, "big")


class OutgoingPublish:
    """A message encoded once for all who get it; only the packet identifier differs."""

    __slots__ = ("_at_least_once", "_at_most_once", "_message", "_retain")

    def __init__(self, message: Publish, *, retain: bool) -> None:
        """Keep `message`; `retain` marks it as one that was retained before the subscription."""
        self._message = message
        self._retain = retain
        self._at_most_once = b""
        self._at_least_once = b""

    def at_most_once(self) -> bytes:
        """Return the packet at QoS 0."""
        if not self._at_most_once:
            self._at_most_once = self._head(0) + self._message.payload
        return self._at_most_once

    def at_least_once(self, packet_id: int) -> bytes:
        """Return the packet at QoS 1 under `packet_id` of the receiving client."""
        if not self._at_least_once:
            self._at_least_once = self._head(1)
        return b"".join((self._at_least_once, packet_id.to_bytes(2, "big"), self._message.payload))

    def _head(self, qos: int) -> bytes:
        topic = self._message.topic.encode()
        length = 2 + len(topic) + 2 * qos + len(self._message.payload)
        first_byte = bytes((PUBLISH << 4 | qos << 1 | self._retain,))
        return first_byte + _encoded_length(length) + len(topic).to_bytes(2, "big") + topic


def _encoded_length(length: int) -> bytes:
    encoded = bytearray()
    while length > 0x7F:
        encoded.append(length & 0x7F | 0x80)
        length >>= 7
    encoded.append(length)
    return bytes(encoded)
