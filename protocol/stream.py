"""The bytes of one broker connection: asyncio drives them, paho takes them for its socket."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import ssl
from collections import deque
from collections.abc import Callable
from itertools import islice

from protocol import clock
from protocol.frames import (
    CONNACK,
    PUBACK,
    PUBLISH,
    Packet,
    PacketReader,
    acknowledgement,
    packet_bytes,
    publication,
    publish_packet,
)
from protocol.packing import WireError
from protocol.wire_count import WireCount

_TICK = 1.0
"""Seconds between two looks at the keepalive."""

_FLUSH_AT = 64 * 1024
"""Bytes that are not collected any further, within one turn of the event loop."""

_KERNEL_HOLDS = 128 * 1024
"""Bytes that may wait in the operating system beside those that are on their way."""

_NOTHING = b""
"""What a message of no bytes, which only tries the broker, counts as in the place of its topic."""

_DISCONNECT = b"\xe0\x00"
_PING = b"\xc0\x00"
_PING_ANSWER = b"\xd0\x00"
_SUBACK, _UNSUBACK, _PINGREQ, _PINGRESP = 9, 11, 12, 13
_FOR_PAHO = frozenset((CONNACK, _SUBACK, _UNSUBACK, _PINGRESP))
_UNAVAILABLE = 3

Deliver = Callable[[str, bytes], None]


class Stream(asyncio.Protocol):
    """The bytes of one connection: asyncio's protocol on one side, paho's socket on the other."""

    def __init__(self, deliver: Deliver, wire: WireCount) -> None:
        self._deliver = deliver
        self._wire = wire
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._incoming = PacketReader()
        self._outgoing_of_paho = PacketReader()
        self._for_paho = bytearray()
        self._unwritten: list[bytes] = []
        self._unwritten_bytes = 0
        self._written_bytes = 0
        self._received = False
        """whether anything came since the last look at the keepalive"""
        self._timer: asyncio.TimerHandle | None = None
        self._leaving = False
        self.read_by_paho: Callable[[], bool] = lambda: True
        self.lost: asyncio.Future[str] = self._loop.create_future()
        self.refused: int | None = None
        self.hung_up = False
        self.unacknowledged: dict[int, float] = {}
        """when a PUBLISH packet of QoS 1 was handed over, by its identifier"""
        self._pings: deque[float] = deque()
        """likewise pings without an answer yet"""
        self._answered_after = 0.0

    # what the connection uses

    @property
    def unsent(self) -> int:
        """Bytes not yet taken by the operating system."""
        if self._transport is None:
            return 0
        return self._unwritten_bytes + self._transport.get_write_buffer_size()

    @property
    def answers_after(self) -> float:
        """Seconds after which the broker answers: as it last did, or longer where it owes one."""
        out = [*islice(self.unacknowledged.values(), 1), *islice(self._pings, 1)]
        waiting = clock.now() - min(out) if out else 0.0
        return max(self._answered_after, waiting)

    def ping(self) -> None:
        """Ask for a sign of life, unless one is due already."""
        if not (self._pings or self._leaving or self.lost.done()):
            self.send(_PING)

    def publish(self, topic: bytes, payload: bytes, qos: int, retain: bool, packet_id: int) -> None:
        """Write a PUBLISH packet."""
        if qos:
            self.unacknowledged[packet_id] = clock.now()
        packet = publish_packet(topic, payload, qos, retain, packet_id)
        self._wire.count_publish("sent", topic if payload else _NOTHING, packet_id, len(packet))
        self._write(packet)

    def leave(self) -> None:
        """Send what is left and DISCONNECT, then close."""
        transport = self._transport
        if transport is None or transport.is_closing() or self._leaving:
            return
        self.send(_DISCONNECT)
        self._flush()
        self._leaving = True
        if transport.can_write_eof():
            # Closing with unread input would reset the connection, and the broker could lose what
            # we sent last. So only our side ends; the broker ends its own when it has read all.
            try:
                transport.write_eof()
            except OSError:  # the broker has ended the connection already
                transport.abort()
        else:
            transport.close()

    def abort(self, reason: str) -> None:
        """Cut the connection."""
        if not self.lost.done():
            self.lost.set_result(reason)
        if self._transport is not None:
            self._transport.abort()

    def keep_alive(self, keepalive: int, ping: Callable[[], bool]) -> None:
        """Let paho see to its pings, and notice when this machine slept or the broker takes
        nothing.

        After longer than the broker waits for a sign of life the connection is dead, whatever TCP
        still believes. A broker that is only slow is not: while it takes what waits for it, it
        lives, and the answer to a ping would come long after that. Nor is one that has much to
        say: the answer may stand behind all of it, so whatever comes is as good as the answer.
        """
        last = moved = idle = clock.now()
        taken = self._taken

        def tick() -> None:
            nonlocal last, moved, idle, taken
            now = clock.now()
            if now - last > 1.5 * keepalive:
                self.abort(f"this machine slept or stood still for {now - last:.0f} s")
                return
            last = now
            if self.unsent == 0 or self._taken != taken:
                moved, taken = now, self._taken
            if self.unsent:
                idle = now
            if self._received:
                self._received = False
                self._tell_paho(_PING_ANSWER)
            if now - moved >= keepalive:
                self.abort(f"the broker took nothing for {keepalive} s or more")
            elif now - idle >= 0.5 * keepalive and not ping():
                self.abort(f"the broker was silent for {keepalive} s or more")
            else:
                self._timer = self._loop.call_later(_TICK, tick)

        if not self.lost.done():
            self._timer = self._loop.call_later(_TICK, tick)

    # asyncio's protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if hasattr(socket, "TCP_NOTSENT_LOWAT"):
            # Else megabytes for a slow broker would wait where `unsent` does not see them.
            tcp = transport.get_extra_info("socket")
            tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _KERNEL_HOLDS)

    def data_received(self, data: bytes) -> None:
        self._received = True
        try:
            for packet in self._incoming.feed(data):
                self._receive(packet)
        except WireError as error:
            self.abort(f"the broker sent {error}")
        self._flush()

    def connection_lost(self, error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self.lost.done():
            reason = "the broker closed the connection" if error is None else describe(error)
            self.lost.set_result("closed" if self._leaving else reason)
            hung_up = error is None or isinstance(error, ConnectionError)
            self.hung_up = hung_up and not self._leaving

    def _receive(self, packet: Packet) -> None:
        if self._leaving or self.lost.done():
            return
        kind = packet.kind
        if kind == PUBLISH:
            self._receive_publish(packet)
        elif kind == PUBACK and len(packet.body) == 2:
            self._wire.count("received", packet)
            self._answered(self.unacknowledged.pop(packet.body[0] << 8 | packet.body[1], None))
        elif kind in _FOR_PAHO and packet.complete:
            self._wire.count("received", packet)
            self._receive_answer(packet)
        else:
            raise WireError(f"a packet of type {kind} that it should not send")

    def _receive_publish(self, packet: Packet) -> None:
        topic, packet_id, payload = publication(packet)
        of = topic if payload or not packet.complete else _NOTHING
        self._wire.count_publish("received", of, packet_id, packet.size)
        if (packet.first >> 1) & 3 == 2:
            raise WireError("a message of QoS 2, to which we never subscribe")
        if packet.complete:
            try:
                name = topic.decode("utf-8")
            except UnicodeDecodeError:
                pass  # nobody subscribed to that; drop it like the oversize
            else:
                self._deliver(name, payload)
        if packet_id:
            answer = acknowledgement(packet_id)
            self._wire.count_acknowledgement("sent", packet_id, len(answer))
            self._write(answer)

    def _answered(self, asked: float | None) -> None:
        if asked is not None:
            self._answered_after = clock.now() - asked

    def _receive_answer(self, packet: Packet) -> None:
        if packet.kind == _PINGRESP and self._pings:
            self._answered(self._pings.popleft())
        if packet.kind == CONNACK and len(packet.body) == 2 and packet.body[1] != 0:
            # Here, because paho keeps one of the codes to itself.
            code = packet.body[1]
            if code == _UNAVAILABLE:
                self.abort("the broker says that it is not available")
            else:
                self.refused = code
                self.abort(f"the broker refused the connection (return code {code})")
            return
        if not self._tell_paho(packet_bytes(packet)):
            raise WireError(f"a malformed packet of type {packet.kind}")

    def _tell_paho(self, data: bytes) -> bool:
        """Let paho read that; False where it can't be read."""
        self._for_paho += data
        while self._for_paho and not self.lost.done():
            if not self.read_by_paho():
                return False
        return True

    def _write(self, data: bytes) -> None:
        """Collect what one turn of the event loop writes: one system call for all of it.

        Nothing follows a DISCONNECT, be it the answer to the very message that made us leave.
        """
        if self._leaving:
            return
        if not self._unwritten:
            self._loop.call_soon(self._flush)
        self._unwritten.append(data)
        self._unwritten_bytes += len(data)
        if self._unwritten_bytes >= _FLUSH_AT:
            self._flush()

    def _flush(self) -> None:
        if not self._unwritten:
            return
        data = b"".join(self._unwritten)
        self._unwritten.clear()
        self._unwritten_bytes = 0
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)
            self._written_bytes += len(data)

    @property
    def _taken(self) -> int:
        """Bytes that the operating system took so far."""
        waiting = 0 if self._transport is None else self._transport.get_write_buffer_size()
        return self._written_bytes - waiting

    # paho's socket (called in the event loop only)

    def recv(self, size: int) -> bytes:
        if not self._for_paho:
            raise BlockingIOError
        data = bytes(self._for_paho[:size])
        del self._for_paho[:size]
        return data

    def send(self, data: bytes) -> int:
        if self._leaving or self.lost.done():
            raise ConnectionError
        for packet in self._outgoing_of_paho.feed(bytes(data)):
            self._wire.count("sent", packet)
            if packet.kind == _PINGREQ:
                self._pings.append(clock.now())
        self._write(bytes(data))
        return len(data)

    def setblocking(self, blocking: bool) -> None:
        """Nothing here blocks."""

    def close(self) -> None:
        """paho lets go of its socket: when a ping was not answered, or at its own end."""


def describe(error: Exception) -> str:
    """A connection's failure in a few words for people."""
    if isinstance(error, socket.gaierror):
        return "the host name is not known"
    if isinstance(error, UnicodeError):
        return "the host name is not possible"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed ({error.reason or error})"
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno).lower()
    # asyncio joins the failures of several addresses of one name into one text.
    numbers = {int(number) for number in re.findall(r"\[Errno (\d+)\]", str(error))}
    if numbers:
        return ", ".join(os.strerror(number).lower() for number in sorted(numbers))
    return str(error)[:200] or type(error).__name__
