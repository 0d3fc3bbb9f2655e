"""Cuts a byte stream into MQTT 3.1.1 control packets, within bounds, and builds a few of them."""

from __future__ import annotations

from typing import NamedTuple

from protocol.packing import MAX_MESSAGE, WireError
from protocol.topics import MAX_TOPIC_BYTES

CONNACK = 2
PUBLISH = 3
PUBACK = 4

MAX_PACKET = 5 + 2 + MAX_TOPIC_BYTES + 2 + MAX_MESSAGE
"""Bytes of the largest packet that is kept: a PUBLISH of the largest message. (What a broker
limits may be the packet, not the payload.)"""

_KEPT_OF_OVERSIZE = 2 + MAX_TOPIC_BYTES + 2
"""Of a larger packet only so much is kept: enough to say which topic it had, and to acknowledge."""


class Packet(NamedTuple):
    """One control packet; a named tuple because one is built for every message."""

    first: int
    """the fixed header's first byte: type in the upper half, flags in the lower"""
    size: int
    """bytes on the wire, fixed header included"""
    body: bytes
    """what follows the fixed header; only its beginning where the packet was over the limit"""

    @property
    def kind(self) -> int:
        """The control packet type, 1 to 15."""
        return self.first >> 4

    @property
    def complete(self) -> bool:
        """Whether `body` is the whole of it."""
        return self.size <= MAX_PACKET


class Publication(NamedTuple):
    """The parts of a PUBLISH packet."""

    topic: bytes
    packet_id: int
    """0 at QoS 0"""
    payload: bytes


class PacketReader:
    """Cuts what a socket delivers into packets, however it is split up.

    It holds at most one packet, and never more than `MAX_PACKET` bytes: what is larger streams
    past, so that a stranger's giant costs its sender's bandwidth and not our memory.
    """

    def __init__(self) -> None:
        self._held = bytearray()
        self._needed = 2
        """bytes to hold before anything more can be said"""
        self._skip = 0
        """bytes still to drop of a packet over the limit"""
        self._oversize: Packet | None = None

    def feed(self, data: bytes) -> list[Packet]:
        """The packets that `data` completes, in order.

        Raises WireError where no packet can begin so; the stream is lost then.
        """
        if self._skip == 0 and not self._held:
            return self._cut(data)
        packets: list[Packet] = []
        if self._skip:
            dropped = min(self._skip, len(data))
            self._skip -= dropped
            if self._skip:
                return packets
            assert self._oversize is not None
            packets.append(self._oversize)
            self._oversize = None
            return packets + self._cut(data[dropped:])
        self._held += data
        if len(self._held) >= self._needed:
            whole = bytes(self._held)
            self._held.clear()
            packets += self._cut(whole)
        return packets

    def _cut(self, data: bytes) -> list[Packet]:
        """All packets of `data`, which begins with one; the unfinished rest is held."""
        packets: list[Packet] = []
        position, end = 0, len(data)
        while position < end:
            start = position
            length, position = _remaining_length(data, start + 1)
            if length < 0:
                self._hold(data[start:], len(data) - start + 1)
                break
            size = position - start + length
            if size > MAX_PACKET:
                kept = data[position : position + _KEPT_OF_OVERSIZE]
                if len(kept) < _KEPT_OF_OVERSIZE:
                    self._hold(data[start:], position - start + _KEPT_OF_OVERSIZE)
                    break
                oversize = Packet(data[start], size, kept)
                if end - start < size:
                    self._oversize = oversize
                    self._skip = size - (end - start)
                    break
                packets.append(oversize)
            elif end - start < size:
                self._hold(data[start:], size)
                break
            else:
                packets.append(Packet(data[start], size, data[position : start + size]))
            position = start + size
        return packets

    def _hold(self, rest: bytes, needed: int) -> None:
        self._held += rest
        self._needed = needed


def publication(packet: Packet) -> Publication:
    """The parts of a PUBLISH packet. Raises WireError where the standard forbids it."""
    body = packet.body
    quality = (packet.first >> 1) & 3
    if len(body) < 2 or quality == 3:
        raise WireError("a malformed PUBLISH packet")
    payload_at = 2 + (body[0] << 8 | body[1])
    topic = body[2:payload_at]
    if quality == 0:
        packet_id = 0
    elif len(body) >= payload_at + 2:
        packet_id = body[payload_at] << 8 | body[payload_at + 1]
        payload_at += 2
    elif packet.complete:
        raise WireError("a PUBLISH packet without the packet identifier that its QoS demands")
    else:
        packet_id = 0  # behind a topic too long to keep
    if packet.complete and len(body) < payload_at:
        raise WireError("a PUBLISH packet that is shorter than its topic")
    return Publication(topic, packet_id, body[payload_at:])


def publish_packet(topic: bytes, payload: bytes, qos: int, retain: bool, packet_id: int) -> bytes:
    """The bytes of a PUBLISH packet; `packet_id` counts for QoS 1 only."""
    identifier = packet_id.to_bytes(2, "big") if qos else b""
    length = 2 + len(topic) + len(identifier) + len(payload)
    first = PUBLISH << 4 | qos << 1 | int(retain)
    return b"".join(
        (
            bytes((first, *_length_bytes(length))),
            len(topic).to_bytes(2, "big"),
            topic,
            identifier,
            payload,
        )
    )


def packet_bytes(packet: Packet) -> bytes:
    """The bytes of a complete packet."""
    return bytes((packet.first, *_length_bytes(len(packet.body)))) + packet.body


def acknowledgement(packet_id: int) -> bytes:
    """The bytes of the PUBACK for a packet identifier."""
    return bytes((PUBACK << 4, 2, packet_id >> 8, packet_id & 255))


def _remaining_length(data: bytes, position: int) -> tuple[int, int]:
    """(length, position after it), or (-1, ...) where more bytes are needed (MQTT 3.1.1, 2.2.3)."""
    length = 0
    for index, byte in enumerate(data[position : position + 4]):
        length |= (byte & 127) << (7 * index)
        if byte < 128:
            return length, position + index + 1
    if len(data) >= position + 4:
        raise WireError("a packet length of more than four bytes")
    return -1, position


def _length_bytes(length: int) -> bytes:
    encoded = bytearray()
    while length > 127:
        encoded.append(length & 127 | 128)
        length >>= 7
    encoded.append(length)
    return bytes(encoded)
