"""One connection to a broker: aiomqtt opens and keeps it, messages pass it on a short way.

aiomqtt (over paho) does CONNECT, SUBSCRIBE and the keepalive. It takes a `Stream` for its socket,
which asyncio reads and writes (TLS, address families, buffering and TCP_NODELAY come with that).
PUBLISH and PUBACK go straight between the stream and the application: several times less work a
message than through both libraries, no queue that could overflow unseen, a bound on what one
packet may hold, and every packet counted.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import aiomqtt
import paho.mqtt.client as paho

from protocol.address import Address
from protocol.dial import dial
from protocol.stream import Deliver, Stream, describe
from protocol.wire_count import WireCount

OPEN_TIMEOUT = 10.0
"""Seconds for name resolution, TCP, TLS and the broker's answer together, and for one SUBACK."""

CLOSE_TIMEOUT = 2.0
"""Seconds for what is still to be sent when we leave."""

MAX_UNSENT = 16 * 1024 * 1024
"""Bytes that may wait for a slow broker; beyond that, nothing more is taken."""

MAX_UNACKNOWLEDGED = 1024
"""QoS 1 messages that may wait for the broker's PUBACK; beyond that, nothing more is taken."""

_FIRST_PACKET_ID = 32768
"""paho numbers its SUBSCRIBE packets from 1 upwards; our PUBLISH packets stay above them."""

_FAILURE = 0x80

_PAHO_LOGGER = logging.getLogger("shoal.paho")
# What paho has to say comes to us as an exception too, and is told in our own words.
_PAHO_LOGGER.setLevel(logging.CRITICAL)

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
    user: str | None
    password: str | None = field(repr=False)
    will: Will | None
    keepalive: int
    tls_context: ssl.SSLContext | None = field(default=None, repr=False)


class Connection:
    """One life of a connection, from the broker's yes until it ends. Get one from `open`."""

    def __init__(self, settings: ConnectionSettings, deliver: Deliver, wire: WireCount) -> None:
        self._settings = settings
        self._stream = Stream(deliver, wire)
        self._client = _Client(self._stream, settings)
        self._next_packet_id = _FIRST_PACKET_ID

    @classmethod
    async def open(
        cls, settings: ConnectionSettings, deliver: Deliver, wire: WireCount
    ) -> Connection:
        """Connect; `deliver(topic, payload)` is then called in the event loop for every message.

        Raises ConnectionLostError where it may work later, RefusedError where the broker will not
        have us as we are, CertificateError where it is not who it should be.
        """
        connection = cls(settings, deliver, wire)
        wire.forget_identifiers()
        try:
            async with asyncio.timeout(OPEN_TIMEOUT):
                await connection._reach()
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
    def hung_up(self) -> bool:
        """Whether it was the broker that ended it."""
        return self._stream.hung_up

    @property
    def unsent(self) -> int:
        """Bytes that wait for the broker to take them."""
        return self._stream.unsent

    @property
    def answers_after(self) -> float:
        """Seconds after which the broker answers what it has to: a ping, or a message of QoS 1."""
        return self._stream.answers_after

    def ping(self) -> None:
        """Ask for an answer where none is due, to learn after how long it comes."""
        self._stream.ping()

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

    async def _reach(self) -> None:
        try:
            await dial(self._stream, self._settings.address, self._settings.tls_context)
        except (OSError, UnicodeError) as error:
            raise ConnectionLostError(describe(error)) from None

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

    def __init__(self, stream: Stream, settings: ConnectionSettings) -> None:
        address, will = settings.address, settings.will
        super().__init__(
            address.host,
            address.port,
            username=settings.user,
            password=settings.password,
            identifier=settings.client_id,
            protocol=aiomqtt.ProtocolVersion.V311,
            will=None
            if will is None
            else aiomqtt.Will(will.topic, will.payload, will.qos, will.retain),
            clean_session=True,
            keepalive=settings.keepalive,
            timeout=OPEN_TIMEOUT,
            logger=_PAHO_LOGGER,
        )
        self._client._create_socket = lambda: stream  # type: ignore[method-assign,assignment,return-value]
        stream.read_by_paho = lambda: self._client.loop_read() == paho.MQTT_ERR_SUCCESS

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
