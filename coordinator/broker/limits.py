"""What a broker of ours lets one client, and all of them together, take from the machine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class BrokerLimits:
    """Bounds of a managed broker; a client that breaks one is disconnected, the others stay.

    packet_bytes: longest MQTT packet, without its fixed header. A message of Shoal is at most
        256 KiB, so 320 KiB leaves room for topics and never cuts a lawful one.
    queue_bytes: what may wait for one client that reads slowly.
    units_per_second: what one client may send, a unit being a packet or each 4 KiB of it; whoever
        sends faster is read more slowly (mosquitto has no such bound).
    connections: sockets open at once, with those that have not said CONNECT yet.
    connect_seconds: time from the TCP connection to a complete CONNECT.
    subscriptions: topic filters of one client.
    topic_bytes: longest topic or topic filter.
    retained_messages, retained_bytes: all retained messages together.
    """

    packet_bytes: int = 320 * 1024
    queue_bytes: int = 4 * 1024 * 1024
    units_per_second: int = 5000
    connections: int = 512
    connect_seconds: float = 10.0
    subscriptions: int = 64
    topic_bytes: int = 512
    retained_messages: int = 1024
    retained_bytes: int = 16 * 1024 * 1024
