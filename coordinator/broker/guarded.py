"""amqtt's broker with its faults guarded: every queue bounded, every silence noticed.

amqtt keeps the start and stop of the broker, the reading of CONNECT, the subscription table and
the retained messages. The life of a connection and the way of a message from one client to the
others are ours, for stock amqtt 0.12 creates tasks and unbounded queues for both (about 1,500
messages a second, seconds of delay in a burst), iterates over subscriptions while they change
(an acknowledged message is lost) and never ends a silent connection.

One message is read, routed to every subscriber and acknowledged without a pause in between, so
what was acknowledged has been handed on. What waits for a client waits in its socket's buffer,
which is measured. A session ends with its connection; nothing is kept for absent clients.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import time
from functools import partial

from amqtt.adapters import BufferReader, StreamWriterAdapter
from amqtt.broker import Broker
from amqtt.contexts import BrokerConfig, ListenerConfig
from amqtt.errors import AMQTTError, MQTTError, NoDataError
from amqtt.mqtt.connack import BAD_USERNAME_PASSWORD, CONNECTION_ACCEPTED, ConnackPacket
from amqtt.mqtt.protocol.broker_handler import BrokerProtocolHandler
from amqtt.session import Session

from coordinator.broker import packets
from coordinator.broker.limits import BrokerLimits
from coordinator.broker.packets import OutgoingPublish, PacketRefused, Publish
from coordinator.broker.rules import Rules
from protocol.figures import printable

_CHUNK_BYTES = 16 * 1024
"""Read at once from a socket: bounds how long one flooding client holds the event loop."""

_UNIT_BYTES = 4096
_BURST_SECONDS = 0.5
"""A client may send as much at once as its rate allows in this time."""

_KEEPALIVE_GRACE = 1.5
"""MQTT-3.1.2-24: a client silent for one and a half keepalive intervals is gone."""

_FLUSH_SECONDS = 1.0
"""For what is still queued when the broker stops."""

_CACHED_TOPICS = 4096
_UNACKNOWLEDGED = 32_768
_SUBSCRIPTION_REFUSED = 0x80

_log = logging.getLogger("shoal.broker")


class Connection:
    """One client's socket from accept to close, and what waits for the client in it."""

    def __init__(self, writer: asyncio.StreamWriter, queue_bytes: int) -> None:
        """Watch over what is written; the client is nobody until its CONNECT has been read."""
        self.session: Session | None = None
        self.filters: set[str] = set()
        self.unacknowledged: set[int] = set()
        self.why_closed: str | None = None
        self.ended = asyncio.Event()
        self._writer = writer
        self._transport = writer.transport
        self._queue_bytes = queue_bytes
        self._last_packet_id = 0

    async def encrypt(self, context: ssl.SSLContext, seconds: float) -> None:
        """Speak TLS from now on; nothing may have been awaited before, else input is lost.

        Raises OSError where the client does not within so many seconds.
        """
        try:
            await self._writer.start_tls(context, ssl_handshake_timeout=seconds)
        except AttributeError:
            # CPython stumbles over a client that went away meanwhile, and again over its writer.
            self._writer._transport = self._transport  # type: ignore[attr-defined]
            raise ConnectionResetError from None
        self._transport = self._writer.transport

    def deliver(self, message: OutgoingPublish, qos: int) -> None:
        """Send an application message at QoS 0 or 1."""
        if self.why_closed is not None:
            return
        if qos == 0:
            self.send(message.at_most_once())
        elif len(self.unacknowledged) < _UNACKNOWLEDGED:
            self.send(message.at_least_once(self._next_packet_id()))
        else:
            self.close(f"{_UNACKNOWLEDGED} messages wait for its acknowledgement")

    @property
    def waiting(self) -> int:
        """Bytes that the client has yet to take."""
        return self._transport.get_write_buffer_size()

    def send(self, data: bytes) -> None:
        """Queue bytes for the client; one that lets too many pile up is disconnected."""
        if self.why_closed is not None:
            return
        waiting = self.waiting
        if waiting + len(data) > self._queue_bytes:
            self.close(f"reads too slowly, {waiting} bytes wait for it")
        else:
            self._transport.write(data)

    def close(self, why: str) -> None:
        """Cut the connection; the task that serves it then cleans up and sends the will.

        An empty `why` is a close that no one needs to read about.
        """
        if self.why_closed is None:
            self.why_closed = why
        if not self._transport.is_closing():
            self._transport.abort()

    async def drained(self) -> None:
        """Return once the kernel has taken all that waits for the client; raises OSError."""
        self._writer.transport.set_write_buffer_limits(0)
        await self._writer.drain()

    def _next_packet_id(self) -> int:
        packet_id = self._last_packet_id % 65_535 + 1
        while packet_id in self.unacknowledged:
            packet_id = packet_id % 65_535 + 1
        self._last_packet_id = packet_id
        self.unacknowledged.add(packet_id)
        return packet_id


class Complaints:
    """Warnings of one line, at most one a second: clients must not be able to fill the log."""

    def __init__(self) -> None:
        """Start with nothing said."""
        self._silent_until = 0.0
        self._unsaid = 0

    def say(self, text: str) -> None:
        """Warn, or count the warning for the next one."""
        now = time.monotonic()
        if now < self._silent_until:
            self._unsaid += 1
            return
        more = f" (and {self._unsaid} warnings before it)" if self._unsaid else ""
        _log.warning("broker: %s%s", printable(text[:200]), more)
        self._silent_until = now + 1.0
        self._unsaid = 0


class GuardedBroker(Broker):
    """amqtt's broker on a socket that listens already, within `limits`."""

    def __init__(
        self,
        listener: socket.socket,
        limits: BrokerLimits,
        tls: ssl.SSLContext | None = None,
        rules: Rules | None = None,
    ) -> None:
        """Prepare to serve `listener`; needs a running event loop. No plugin is loaded.

        `rules`: who may say and read what; None: everybody everything.
        """
        unused = ListenerConfig(bind="127.0.0.1:0")  # amqtt wants one; we have the socket
        super().__init__(BrokerConfig(listeners={"default": unused}, plugins={}))
        self._listener = listener
        self._limits = limits
        self._tls = tls
        self._rules = rules
        self._open: dict[Connection, None] = {}
        self._clients: dict[str, Connection] = {}
        self._wildcard_filters: set[str] = set()
        self._filters_of_topic: dict[str, list[str]] = {}
        self._retained_bytes = 0
        self._complaints = Complaints()

    def change_rules(self, rules: Rules) -> None:
        """Hold everybody to other rules from now on; who may not be here any more has to go."""
        self._rules = rules
        for connection in list(self._clients.values()):
            if connection.session is not None and not rules.knows(connection.session.username):
                connection.close("its invite was revoked")

    @property
    def connected(self) -> int:
        """Clients that have said who they are."""
        return len(self._clients)

    @property
    def waiting(self) -> int:
        """Bytes that clients have yet to take, all of them together."""
        return sum(connection.waiting for connection in self._clients.values())

    async def shutdown(self) -> None:
        """Accept no one any more, let queues drain for at most a second, close everything."""
        for server in self._servers.values():
            server.instance.close()
        draining = asyncio.gather(*(c.drained() for c in self._open), return_exceptions=True)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(draining, _FLUSH_SECONDS)
        connections = list(self._open)
        for connection in connections:
            connection.close("")
        await asyncio.gather(*(connection.ended.wait() for connection in connections))
        await super().shutdown()

    async def _create_server_instance(self, listener_name: str, *_: object) -> asyncio.Server:
        return await asyncio.start_server(
            partial(self.stream_connected, listener_name=listener_name),
            sock=self._listener,
            backlog=min(self._limits.connections, socket.SOMAXCONN),
        )

    async def stream_connected(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, listener_name: str
    ) -> None:
        """Serve one client until it leaves, breaks a rule, falls silent or is replaced."""
        connection = Connection(writer, self._limits.queue_bytes)
        try:
            self._admit(connection)
            if self._tls is not None:
                # Only now: a socket that says nothing takes a place from the start.
                await connection.encrypt(self._tls, self._limits.connect_seconds)
            await self._serve(connection, reader, writer)
        except (PacketRefused, AMQTTError, MQTTError, NoDataError) as error:
            connection.close(str(error))
        except TimeoutError:
            connection.close("silent for too long")
        except OSError:
            connection.close("")
        finally:
            await self._forget(connection)

    def _admit(self, connection: Connection) -> None:
        """Give a new socket a place; if all are taken, the oldest half-open one loses its own."""
        if len(self._open) >= self._limits.connections:
            half_open = next((other for other in self._open if other.session is None), None)
            if half_open is None:
                raise PacketRefused(f"all {self._limits.connections} places are taken")
            half_open.close("no CONNECT, and its place was needed")
            del self._open[half_open]
        self._open[connection] = None

    async def _serve(
        self, connection: Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        buffer = bytearray()
        now = asyncio.get_running_loop().time
        paid_until = 0.0
        async with asyncio.timeout(self._limits.connect_seconds) as deadline:
            while chunk := await reader.read(_CHUNK_BYTES):
                buffer += chunk
                units = len(chunk) / _UNIT_BYTES
                while batch := packets.take_packets(buffer, self._limits.packet_bytes):
                    units += len(batch)
                    for first_byte, body in batch:
                        if connection.session is None:
                            await self._introduce(connection, first_byte, body, writer)
                        else:
                            await self._handle(connection, connection.session, first_byte, body)
                        if connection.why_closed is not None:
                            return
                if connection.session is not None:
                    interval = connection.session.keep_alive
                    deadline.reschedule(now() + _KEEPALIVE_GRACE * interval if interval else None)
                paid_until = max(paid_until, now() - _BURST_SECONDS)
                paid_until += units / self._limits.units_per_second
                if len(chunk) == _CHUNK_BYTES or paid_until > now():
                    # At least once round the loop: read() does not pause while input waits.
                    await asyncio.sleep(max(0.0, paid_until - now()))

    async def _introduce(
        self, connection: Connection, first_byte: int, body: bytes, writer: asyncio.StreamWriter
    ) -> None:
        """Read a CONNECT; whoever holds its client identifier is disconnected first."""
        if first_byte != packets.CONNECT << 4:
            raise PacketRefused("something else came before CONNECT")
        _, session = await BrokerProtocolHandler.init_from_connect(
            BufferReader(packets.with_header(packets.CONNECT, body)),
            StreamWriterAdapter(writer),
            self.plugins_manager,
        )
        if session.will_flag:
            packets.read_topic(session.will_topic.encode(), self._limits.topic_bytes)
        if not await self._lets_in(session):
            connection.send(ConnackPacket.build(0, BAD_USERNAME_PASSWORD).to_bytes())
            await connection.drained()
            # Who gives no password is a worker that tries whether one is asked for.
            connection.close("its password is none that we know" if session.password else "")
            return
        while previous := self._clients.get(session.client_id):
            previous.close("its client identifier connected again")
            await previous.ended.wait()
        if self._rules is not None and not self._rules.knows(session.username):
            connection.close("its invite was revoked")  # while its password was looked at
        if connection.why_closed is None:
            self._clients[session.client_id] = connection
            connection.session = session
            connection.send(ConnackPacket.build(0, CONNECTION_ACCEPTED).to_bytes())

    async def _lets_in(self, session: Session) -> bool:
        rules = self._rules
        if rules is None:
            return True
        # Not here: who tries passwords must not hold everybody else up.
        return await asyncio.to_thread(rules.lets_in, session.username, session.password)

    async def _handle(
        self, connection: Connection, session: Session, first_byte: int, body: bytes
    ) -> None:
        limits = self._limits
        match first_byte >> 4:
            case packets.PUBLISH:
                message = packets.read_publish(first_byte, body, limits.topic_bytes)
                await self._accept(message, session)
                if message.qos:
                    connection.send(packets.puback(message.packet_id))
            case packets.PUBACK:
                connection.unacknowledged.discard(packets.packet_id_of(body))
            case packets.SUBSCRIBE:
                packet_id, filters = packets.read_filters(
                    first_byte, body, limits.subscriptions, limits.topic_bytes
                )
                granted = [await self._add_filter(connection, session, *wish) for wish in filters]
                connection.send(packets.suback(packet_id, granted))
                for (topic_filter, _), qos in zip(filters, granted, strict=True):
                    self._deliver_retained(connection, topic_filter, qos)
            case packets.UNSUBSCRIBE:
                packet_id, filters = packets.read_filters(
                    first_byte, body, limits.subscriptions, limits.topic_bytes
                )
                for topic_filter, _ in filters:
                    self._remove_filter(connection, session, topic_filter)
                connection.send(packets.unsuback(packet_id))
            case packets.PINGREQ:
                connection.send(packets.PINGRESP)
            case packets.DISCONNECT:
                session.will_flag = False
                connection.close("")
            case other:
                raise PacketRefused(f"a packet of type {other}, which no client sends here")

    async def _add_filter(
        self, connection: Connection, session: Session, topic_filter: str, qos: int
    ) -> int:
        """Subscribe -> granted QoS. A filter that the client has already gets the new QoS."""
        self._remove_filter(connection, session, topic_filter)
        forbidden = self._rules and not self._rules.may_read(session.username, topic_filter)
        if forbidden or len(connection.filters) >= self._limits.subscriptions:
            return _SUBSCRIPTION_REFUSED
        granted = int(await self.add_subscription((topic_filter, min(qos, 1)), session))
        if granted != _SUBSCRIPTION_REFUSED:
            connection.filters.add(topic_filter)
            self._filters_of_topic.clear()
            if "+" in topic_filter or "#" in topic_filter:
                self._wildcard_filters.add(topic_filter)
        return granted

    def _remove_filter(self, connection: Connection, session: Session, topic_filter: str) -> None:
        if topic_filter not in connection.filters:
            return
        connection.filters.discard(topic_filter)
        self._del_subscription(topic_filter, session)
        if not self._subscriptions[topic_filter]:
            del self._subscriptions[topic_filter]
            self._wildcard_filters.discard(topic_filter)
            self._filters_of_topic.clear()

    def _deliver_retained(self, connection: Connection, topic_filter: str, granted: int) -> None:
        """Send what is retained under a filter that the client has just subscribed to."""
        if granted == _SUBSCRIPTION_REFUSED:
            return
        for topic, kept in self._retained_messages.items():
            if self._matches(topic, topic_filter):
                message = Publish(topic, kept.data, kept.qos, True, 0)
                outgoing = OutgoingPublish(message, retain=True)
                connection.deliver(outgoing, min(message.qos, granted))

    async def _accept(self, message: Publish, session: Session) -> None:
        """Hand a message to its subscribers and, where it says so, retain it.

        What its sender may not say is dropped, as MQTT 3.1.1 has it (3.3.5-2).
        """
        if self._rules and not self._rules.may_publish(session.username, message.topic):
            name = f"{session.username!r}"[:40]
            self._complaints.say(f"dropped a message of {name} on {message.topic[:100]!r}")
            return
        self._route(message)
        if message.retain and (self._rules is None or self._rules.may_retain(session.username)):
            await self._retain(message)

    def _route(self, message: Publish) -> None:
        """Send to each subscriber once, at the highest QoS that its matching filters allow.

        Nothing in here waits, so no subscription changes while a message is under way.
        """
        granted: dict[str, int] = {}
        for topic_filter in self._matching_filters(message.topic):
            for session, qos in self._subscriptions[topic_filter]:
                granted[session.client_id] = max(qos, granted.get(session.client_id, 0))
        outgoing = OutgoingPublish(message, retain=False)
        for client_id, qos in granted.items():
            self._clients[client_id].deliver(outgoing, min(message.qos, qos))

    def _matching_filters(self, topic: str) -> list[str]:
        """Return the filters that match; remembered until the set of filters changes."""
        found = self._filters_of_topic.get(topic)
        if found is None:
            found = [other for other in self._wildcard_filters if self._matches(topic, other)]
            if topic in self._subscriptions:
                found.append(topic)
            if len(self._filters_of_topic) >= _CACHED_TOPICS:
                self._filters_of_topic.clear()
            self._filters_of_topic[topic] = found
        return found

    async def _retain(self, message: Publish) -> None:
        """Keep the last retained message of a topic, within bounds; an empty one clears it."""
        kept = self._retained_messages
        total = self._retained_bytes + len(message.payload)
        if message.topic in kept:
            total -= len(kept[message.topic].data)
        elif message.payload and len(kept) >= self._limits.retained_messages:
            total = self._limits.retained_bytes + 1
        if total > self._limits.retained_bytes:
            self._complaints.say(f"no room to retain the message on {message.topic!r}")
            return
        self._retained_bytes = total
        await self.retain_message(None, message.topic, message.payload, message.qos)

    async def _forget(self, connection: Connection) -> None:
        """Remove every trace of a connection, then let its will speak unless it said goodbye."""
        connection.close("")
        self._open.pop(connection, None)
        session = connection.session
        try:
            if session is not None:
                del self._clients[session.client_id]
                for topic_filter in list(connection.filters):
                    self._remove_filter(connection, session, topic_filter)
                if session.will_flag:
                    await self._accept(_will_of(session), session)
        finally:
            connection.ended.set()
        if connection.why_closed:
            name = repr(session.client_id[:60]) if session else "a client"
            self._complaints.say(f"{name} was disconnected: {connection.why_closed}")


def _will_of(session: Session) -> Publish:
    qos = min(session.will_qos, 1)
    return Publish(session.will_topic, session.will_message, qos, session.will_retain, 0)
