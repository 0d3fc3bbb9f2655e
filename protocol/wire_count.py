"""Counts the bytes that a connection really carried, by direction, packet type and topic."""

from __future__ import annotations

from typing import Literal

from protocol.frames import PUBACK, PUBLISH, Packet, publication
from protocol.packing import WireError
from protocol.topics import topic_class

Direction = Literal["sent", "received"]

EPISODE_CLASSES = ("in", "results", "update")
"""The topic classes whose PUBLISH and PUBACK bytes are the wire cost of an episode: tasks and
acknowledgements (with everything else said to one worker), results, updates."""


class WireCount:
    """Bytes of whole MQTT packets as one side of a connection sees them (below TLS, if any).

    A PUBACK counts for the topic class of the message that it acknowledges. Everything that is
    neither PUBLISH nor PUBACK counts as `control`. Counts add up over reconnections.
    """

    def __init__(self) -> None:
        self._bytes: dict[tuple[Direction, str, str], int] = {}
        self._packets: dict[tuple[Direction, str, str], int] = {}
        # By who sent the PUBLISH. Packet identifiers have 16 bits, which bounds both.
        self._unacknowledged: dict[Direction, dict[int, str]] = {"sent": {}, "received": {}}

    def count(self, direction: Direction, packet: Packet) -> None:
        """Count one packet that the socket sent or received."""
        if packet.kind == PUBLISH:
            try:
                topic, packet_id, _ = publication(packet)
            except WireError:
                self._add(direction, "publish", "other", packet.size)
                return
            self.count_publish(direction, topic, packet_id, packet.size)
        elif packet.kind == PUBACK and len(packet.body) == 2:
            packet_id = packet.body[0] << 8 | packet.body[1]
            self.count_acknowledgement(direction, packet_id, packet.size)
        else:
            self._add(direction, "control", "", packet.size)

    def count_publish(self, direction: Direction, topic: bytes, packet_id: int, size: int) -> None:
        """Count a PUBLISH of `size` bytes; packet identifier 0 is QoS 0."""
        of_topic = topic_class(topic)
        if packet_id:
            self._unacknowledged[direction][packet_id] = of_topic
        self._add(direction, "publish", of_topic, size)

    def count_acknowledgement(self, direction: Direction, packet_id: int, size: int) -> None:
        """Count a PUBACK of `size` bytes under the topic of what it acknowledges."""
        sender: Direction = "received" if direction == "sent" else "sent"
        of_topic = self._unacknowledged[sender].pop(packet_id, "other")
        self._add(direction, "puback", of_topic, size)

    def forget_identifiers(self) -> None:
        """A new connection begins: what the last one left unacknowledged never will be."""
        for pending in self._unacknowledged.values():
            pending.clear()

    def snapshot(self) -> dict[str, int]:
        """Bytes so far: `"sent publish in"`, `"received puback update"`, `"sent control"`..."""
        return {" ".join(key).rstrip(): total for key, total in self._bytes.items()}

    def packets(self) -> dict[str, int]:
        """Packets so far, under the same names."""
        return {" ".join(key).rstrip(): total for key, total in self._packets.items()}

    def total(self, direction: Direction) -> int:
        """All bytes of one direction."""
        return sum(total for key, total in self._bytes.items() if key[0] == direction)

    def episode_bytes(self) -> int:
        """Bytes that count for `wire_bytes_per_episode`, both directions together."""
        return sum(
            total
            for (_, kind, of_topic), total in self._bytes.items()
            if kind in ("publish", "puback") and of_topic in EPISODE_CLASSES
        )

    def _add(self, direction: Direction, kind: str, of_topic: str, size: int) -> None:
        key = (direction, kind, of_topic)
        self._bytes[key] = self._bytes.get(key, 0) + size
        self._packets[key] = self._packets.get(key, 0) + 1
