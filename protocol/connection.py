"""One connection to a broker: aiomqtt opens and keeps it, messages pass it on a short way.

aiomqtt (over paho) does CONNECT, SUBSCRIBE and the keepalive. It takes a `_Stream` for its socket,
which asyncio reads and writes (TLS, address families, buffering and TCP_NODELAY come with that).
PUBLISH and PUBACK go straight between the stream and the application: several times less work a
message than through both libraries, no queue that could overflow unseen, a bound on what one
packet may hold, and every packet counted.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import ssl
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import aiomqtt
import paho.mqtt.client as paho

from protocol.address import Address
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

OPEN_TIMEOUT = 10.0
"""Seconds for name resolution, TCP, TLS and the broker's answer together, and for one SUBACK."""

CLOSE_TIMEOUT = 2.0
"""Seconds for what is still to be sent when we leave."""

MAX_UNSENT = 16 * 1024 * 1024
"""Bytes that may wait for a slow broker; beyond that, nothing more is taken."""

MAX_UNACKNOWLEDGED = 1024
"""QoS 1 messages that may wait for the broker's PUBACK; beyond that, nothing more is taken."""

_TICK = 1.0
"""Seconds between two looks at the keepalive."""

_FLUSH_AT = 64 * 1024
"""Bytes that are not collected any further, within one turn of the event loop."""
_FIRST_PACKET_ID = 32768
"""paho numbers its SUBSCRIBE packets from 1 upwards; our PUBLISH packets stay above them."""

_DISCONNECT = b"\xe0\x00"
_SUBACK, _UNSUBACK, _PINGRESP = 9, 11, 13
_FOR_PAHO = frozenset((CONNACK, _SUBACK, _UNSUBACK, _PINGRESP))
_FAILURE = 0x80

Deliver = Callable[[str, bytes], None]
_Answer = TypeVar("_Answer")


class ConnectionLostError(Exception):
    """There is no connection, for a reason that may pass: try again later."""


class RefusedError(Exception):
    """The broker's answer was no, for a reason that will not pass on its own."""

    def __init__(self, code: int) -> None:
        super().__init__(f"return code {code}")
        self.code = code
        """CONNACK return code (MQTT 3.1.1, table 3.1)"""


class SubscriptionRefusedError(Exception):
    """The broker lets us connect, but not subscribe to `filters`."""

    def __init__(self, filters: list[str]) -> None:
        super().__init__(", ".join(filters))
        self.filters = filters


@dataclass(frozen=True, slots=True)
class Will:
    """What the broker publishes for us when the connection ends without a goodbye."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """How to introduce ourselves. `keepalive` is in seconds."""

    address: Address
    client_id: str
    will: Will | None
    keepalive: int
    tls_context: ssl.SSLContext | None = field(default=None, repr=False)


class Connection:
    """One life of a connection, from the broker's yes until it ends. Get one from `open`."""

    def __init__(self, settings: ConnectionSettings, deliver: Deliver, wire: WireCount) -> None:
        self._settings = settings
        self._stream = _Stream(deliver, wire)
        self._client = _Client(self._stream, settings)
        self._next_packet_id = _FIRST_PACKET_ID

    @classmethod
    async def open(
        cls, settings: ConnectionSettings, deliver: Deliver, wire: WireCount
    ) -> Connection:
        """Connect; `deliver(topic, payload)` is then called in the event loop for every message.

        Raises ConnectionLostError where it may work later, RefusedError where the broker will not
        have us as we are, ssl.SSLCertVerificationError where it is not who it should be.
        """
        connection = cls(settings, deliver, wire)
        wire.forget_identifiers()
        try:
            async with asyncio.timeout(OPEN_TIMEOUT):
                await connection._stream.connect(settings)
                await connection._unless_lost(connection._client.__aenter__())
        except TimeoutError:
            connection._stream.leave()
            raise ConnectionLostError(f"no answer within {OPEN_TIMEOUT:g} s") from None
        except aiomqtt.MqttError as error:
            connection._stream.leave()
            raise ConnectionLostError(str(error)) from None
        except BaseException:
            connection._stream.leave()
            raise
        connection._stream.keep_alive(settings.keepalive, connection._client.keep_alive)
        return connection

    @property
    def lost(self) -> asyncio.Future[str]:
        """Done with the reason once the connection has ended."""
        return self._stream.lost

    @property
    def unsent(self) -> int:
        """Bytes that wait for the broker to take them."""
        return self._stream.unsent

    async def subscribe(self, filters: dict[str, int]) -> None:
        """Subscribe to filter -> QoS; returns when the broker has agreed.

        Raises SubscriptionRefusedError or ConnectionLostError.
        """
        wanted = list(filters.items())
        codes = await self._answered(self._client.subscribe(wanted))
        refused = [
            name
            for (name, _), code in zip(wanted, codes, strict=False)
            if getattr(code, "value", code) == _FAILURE
        ]
        if refused or len(codes) != len(wanted):
            raise SubscriptionRefusedError(refused or list(filters))

    async def unsubscribe(self, filters: list[str]) -> None:
        """Returns when the broker has agreed. Raises ConnectionLostError."""
        await self._answered(self._client.unsubscribe(filters))

    def publish(self, topic: str, payload: bytes, qos: int, retain: bool) -> bool:
        """Hand a message to the socket without waiting; False where it cannot take it now."""
        stream = self._stream
        if stream.lost.done() or stream.unsent > MAX_UNSENT:
            return False
        packet_id = 0
        if qos:
            if len(stream.unacknowledged) >= MAX_UNACKNOWLEDGED:
                return False
            packet_id = self._new_packet_id()
            stream.unacknowledged.add(packet_id)
        stream.publish(topic.encode("utf-8"), payload, qos, retain, packet_id)
        return True

    def leave(self) -> None:
        """Say goodbye, without waiting: the broker then keeps the will to itself."""
        self._stream.leave()

    async def close(self) -> None:
        """Say goodbye, and return once everything was sent."""
        self.leave()
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await asyncio.wait((self.lost,))
        except TimeoutError:
            self._stream.abort("closed before everything was sent")

    def abort(self) -> None:
        """Cut the connection as a crash would: the broker publishes the will."""
        self._stream.abort("cut on our side")

    def _new_packet_id(self) -> int:
        unacknowledged = self._stream.unacknowledged
        while True:
            packet_id = self._next_packet_id
            self._next_packet_id = packet_id + 1 if packet_id < 65535 else _FIRST_PACKET_ID
            if packet_id not in unacknowledged:
                return packet_id

    async def _answered(self, call: Awaitable[_Answer]) -> _Answer:
        try:
            return await self._unless_lost(call)
        except aiomqtt.MqttError as error:
            self._stream.abort("no answer to a subscription")
            raise ConnectionLostError(str(error)) from None

    async def _unless_lost(self, call: Awaitable[_Answer]) -> _Answer:
        """The call's result; stops waiting for it when the connection ends."""
        task = asyncio.ensure_future(call)
        try:
            await asyncio.wait((task, self.lost), return_when=asyncio.FIRST_COMPLETED)
            if self._stream.refused is not None:
                raise RefusedError(self._stream.refused)
            if self.lost.done():
                raise ConnectionLostError(self.lost.result())
            return task.result()
        finally:
            if task.done() and not task.cancelled():
                task.exception()  # it may have failed too; the stream knows better why
            task.cancel()


class _Client(aiomqtt.Client):
    """aiomqtt's client on top of a stream that asyncio drives, not a socket that it watches."""

    def __init__(self, stream: _Stream, settings: ConnectionSettings) -> None:
        address, will = settings.address, settings.will
        super().__init__(
            address.host,
            address.port,
            username=address.user,
            password=address.password,
            identifier=settings.client_id,
            protocol=aiomqtt.ProtocolVersion.V311,
            will=None
            if will is None
            else aiomqtt.Will(will.topic, will.payload, will.qos, will.retain),
            clean_session=True,
            keepalive=settings.keepalive,
            timeout=OPEN_TIMEOUT,
        )
        self._client._create_socket = lambda: stream  # type: ignore[method-assign,assignment,return-value]
        stream.read_by_paho = self._client.loop_read

    def keep_alive(self) -> bool:
        """Send a ping when it is time; False when the last one was not answered."""
        return self._client.loop_misc() == paho.MQTT_ERR_SUCCESS

    # paho calls these about its socket, the first and third possibly from aiomqtt's executor
    # thread. The stream needs none of the watching that aiomqtt does in them.

    def _on_socket_open(self, client: paho.Client, userdata: Any, sock: Any) -> None:
        pass

    def _on_socket_close(self, client: paho.Client, userdata: Any, sock: Any) -> None:
        pass

    def _on_socket_register_write(self, client: paho.Client, userdata: Any, sock: Any) -> None:
        self._loop.call_soon_threadsafe(client.loop_write)

    def _on_socket_unregister_write(self, client: paho.Client, userdata: Any, sock: Any) -> None:
        pass

    def _on_disconnect(self, *details: Any) -> None:
        """The stream says when and why the connection ended."""


class _Stream(asyncio.Protocol):
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
        self._timer: asyncio.TimerHandle | None = None
        self._leaving = False
        self.read_by_paho: Callable[[], int] = lambda: 0
        self.lost: asyncio.Future[str] = self._loop.create_future()
        self.refused: int | None = None
        self.unacknowledged: set[int] = set()

    # what the connection uses

    async def connect(self, settings: ConnectionSettings) -> None:
        """Open TCP, and TLS where the address says so."""
        address = settings.address
        context = None
        if address.tls:
            context = settings.tls_context or ssl.create_default_context()
        try:
            await self._loop.create_connection(
                lambda: self, address.host, address.port, ssl=context, happy_eyeballs_delay=0.25
            )
        except ssl.SSLCertVerificationError:
            raise
        except (OSError, UnicodeError) as error:
            raise ConnectionLostError(describe(error)) from None

    @property
    def unsent(self) -> int:
        """Bytes not yet taken by the operating system."""
        if self._transport is None:
            return 0
        return self._unwritten_bytes + self._transport.get_write_buffer_size()

    def publish(self, topic: bytes, payload: bytes, qos: int, retain: bool, packet_id: int) -> None:
        """Write a PUBLISH packet."""
        packet = publish_packet(topic, payload, qos, retain, packet_id)
        self._wire.count_publish("sent", topic, packet_id, len(packet))
        self._write(packet)

    def leave(self) -> None:
        """Send what is left and DISCONNECT, then close."""
        transport = self._transport
        if transport is None or transport.is_closing() or self._leaving:
            return
        self.send(_DISCONNECT)
        self._flush()
        self._leaving = True
        transport.close()

    def abort(self, reason: str) -> None:
        """Cut the connection."""
        if not self.lost.done():
            self.lost.set_result(reason)
        if self._transport is not None:
            self._transport.abort()

    def keep_alive(self, keepalive: int, ping: Callable[[], bool]) -> None:
        """Let paho see to its pings, and notice when this machine slept.

        After longer than the broker waits for a sign of life the connection is dead, whatever TCP
        still believes.
        """
        last = _clock()

        def tick() -> None:
            nonlocal last
            now = _clock()
            if now - last > 1.5 * keepalive:
                self.abort(f"this machine slept or stood still for {now - last:.0f} s")
            elif not ping():
                self.abort(f"the broker was silent for {keepalive} s or more")
            else:
                last = now
                self._timer = self._loop.call_later(_TICK, tick)

        if not self.lost.done():
            self._timer = self._loop.call_later(_TICK, tick)

    # asyncio's protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
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

    def _receive(self, packet: Packet) -> None:
        if self._leaving or self.lost.done():
            return
        kind = packet.kind
        if kind == PUBLISH:
            self._receive_publish(packet)
        elif kind == PUBACK and len(packet.body) == 2:
            self._wire.count("received", packet)
            self.unacknowledged.discard(packet.body[0] << 8 | packet.body[1])
        elif kind in _FOR_PAHO and packet.complete:
            self._wire.count("received", packet)
            self._receive_answer(packet)
        else:
            raise WireError(f"a packet of type {kind} that it should not send")

    def _receive_publish(self, packet: Packet) -> None:
        topic, packet_id, payload = publication(packet)
        self._wire.count_publish("received", topic, packet_id, packet.size)
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

    def _receive_answer(self, packet: Packet) -> None:
        if packet.kind == CONNACK and len(packet.body) == 2 and packet.body[1] != 0:
            # Here, because paho keeps one of the codes to itself.
            code = packet.body[1]
            if code == 3:
                self.abort("the broker says that it is not available")
            else:
                self.refused = code
                self.abort(f"the broker refused the connection (return code {code})")
            return
        self._for_paho += packet_bytes(packet)
        while self._for_paho and not self.lost.done():
            if self.read_by_paho() != paho.MQTT_ERR_SUCCESS:
                raise WireError(f"a malformed packet of type {packet.kind}")

    def _write(self, data: bytes) -> None:
        """Collect what one turn of the event loop writes: one system call for all of it."""
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


def _clock() -> float:
    """Seconds that go on while the machine sleeps, where the system has such a clock."""
    boottime = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boottime is None else time.clock_gettime(boottime)
