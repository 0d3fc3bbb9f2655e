"""An MQTT client that does exactly what a test says, however rude, on a real socket."""

from __future__ import annotations

import asyncio
import ssl
import struct
from typing import NamedTuple, Self
from urllib.parse import urlsplit

from protocol.address import parse_address
from protocol.dial import dial

DEADLINE = 8.0
"""For what must happen; nothing waits this long unless the test fails."""

CONNECT, CONNACK, PUBLISH, PUBACK, SUBSCRIBE, SUBACK = 0x10, 0x20, 0x30, 0x40, 0x82, 0x90
UNSUBSCRIBE, UNSUBACK, PINGREQ, PINGRESP, DISCONNECT = 0xA2, 0xB0, 0xC0, 0xD0, 0xE0


class Message(NamedTuple):
    topic: str
    payload: bytes
    qos: int
    retain: bool


def text(value: str) -> bytes:
    encoded = value.encode()
    return struct.pack("!H", len(encoded)) + encoded


def header(first_byte: int, length: int) -> bytes:
    encoded = bytearray((first_byte,))
    while True:
        length, low = divmod(length, 128)
        encoded.append(low | (0x80 if length else 0))
        if not length:
            return bytes(encoded)


def packet(first_byte: int, body: bytes = b"") -> bytes:
    return header(first_byte, len(body)) + body


def publish_body(topic: str, payload: bytes, packet_id: int = 0) -> bytes:
    return text(topic) + (struct.pack("!H", packet_id) if packet_id else b"") + payload


def connect_packet(
    client_id: str,
    keepalive: int = 60,
    will: Message | None = None,
    clean: bool = True,
    user: str | None = None,
    password: str | None = None,
) -> bytes:
    flags = 0x02 if clean else 0
    body = text(client_id)
    if will is not None:
        flags |= 0x04 | will.qos << 3 | (0x20 if will.retain else 0)
        body += text(will.topic) + struct.pack("!H", len(will.payload)) + will.payload
    if user is not None:
        flags |= 0x80
        body += text(user)
    if password is not None:
        flags |= 0x40
        body += text(password)
    return packet(CONNECT, text("MQTT") + bytes((4, flags)) + struct.pack("!H", keepalive) + body)


class _Protocol(asyncio.StreamReaderProtocol):
    transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        super().connection_made(transport)


class RawClient:
    """One connection; messages that arrive between answers are kept in `messages`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.messages: list[Message] = []
        self.acknowledges = True
        self._packet_id = 0

    @classmethod
    async def open(cls, url: str) -> Self:
        """Connect the socket, with what the URL says around it, and say nothing yet."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        reader = asyncio.StreamReader()
        protocol = _Protocol(reader)
        await dial(protocol, parse_address(url), context)
        assert protocol.transport is not None
        loop = asyncio.get_running_loop()
        return cls(reader, asyncio.StreamWriter(protocol.transport, protocol, reader, loop))

    @classmethod
    async def connect(
        cls,
        url: str,
        client_id: str,
        keepalive: int = 60,
        will: Message | None = None,
        user: str | None = None,
    ) -> Self:
        """Connect as `user`, or with the credentials in the URL."""
        parts = urlsplit(url)
        name, secret = (parts.username, parts.password) if user is None else (user, None)
        client = await cls.open(url)
        packet = connect_packet(client_id, keepalive, will, user=name, password=secret)
        client.writer.write(packet)
        code, body = await client.answer()
        assert code == CONNACK
        if body[1]:
            client.abort()
            raise PermissionError(body[1])
        return client

    async def read_packet(self) -> tuple[int, bytes]:
        first_byte = (await self.reader.readexactly(1))[0]
        length = shift = 0
        while True:
            byte = (await self.reader.readexactly(1))[0]
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return first_byte, await self.reader.readexactly(length)

    def _received(self, first_byte: int, body: bytes) -> Message:
        end = 2 + struct.unpack("!H", body[:2])[0]
        qos = first_byte >> 1 & 3
        if qos and self.acknowledges:
            self.writer.write(packet(PUBACK, body[end : end + 2]))
        payload = body[end + 2 * bool(qos) :]
        return Message(body[2:end].decode(), payload, qos, bool(first_byte & 1))

    async def answer(self) -> tuple[int, bytes]:
        """Return the next packet that is no message."""
        async with asyncio.timeout(DEADLINE):
            while True:
                first_byte, body = await self.read_packet()
                if first_byte & 0xF0 != PUBLISH:
                    return first_byte, body
                self.messages.append(self._received(first_byte, body))

    async def message(self) -> Message:
        """Return the next message, in the order of arrival."""
        if self.messages:
            return self.messages.pop(0)
        async with asyncio.timeout(DEADLINE):
            first_byte, body = await self.read_packet()
        assert first_byte & 0xF0 == PUBLISH, hex(first_byte)
        return self._received(first_byte, body)

    async def subscribe(self, topic_filter: str, qos: int = 0) -> int:
        """Return the granted QoS."""
        body = struct.pack("!H", self._next_id()) + text(topic_filter) + bytes((qos,))
        self.writer.write(packet(SUBSCRIBE, body))
        code, answer = await self.answer()
        assert (code, answer[:2]) == (SUBACK, body[:2])
        return answer[2]

    async def unsubscribe(self, topic_filter: str) -> None:
        body = struct.pack("!H", self._next_id()) + text(topic_filter)
        self.writer.write(packet(UNSUBSCRIBE, body))
        assert await self.answer() == (UNSUBACK, body[:2])

    async def publish(self, topic: str, payload: bytes, qos: int = 0, retain: bool = False) -> None:
        """Send a message and, at QoS 1, wait until the broker has acknowledged it."""
        packet_id = self._next_id() if qos else 0
        self.writer.write(
            packet(PUBLISH | qos << 1 | retain, publish_body(topic, payload, packet_id))
        )
        await self.writer.drain()
        if qos:
            assert await self.answer() == (PUBACK, struct.pack("!H", packet_id))

    async def ping(self) -> None:
        """Return when the broker has dealt with everything sent before."""
        self.writer.write(packet(PINGREQ))
        assert await self.answer() == (PINGRESP, b"")

    async def until_closed(self) -> None:
        """Return when the broker has closed the connection; what it sent before is discarded."""
        async with asyncio.timeout(DEADLINE):
            try:
                while await self.reader.read(65536):
                    pass
            except ConnectionError:
                pass

    def stop_reading(self) -> None:
        """Let what comes pile up."""
        transport = self.writer.transport
        getattr(transport, "_outer", transport).pause_reading()  # beneath a WebSocket

    def abort(self) -> None:
        """Vanish as a killed process does."""
        self.writer.transport.abort()

    async def leave(self) -> None:
        """Say goodbye."""
        self.writer.write(packet(DISCONNECT))
        await self.until_closed()
        self.abort()

    def _next_id(self) -> int:
        self._packet_id = self._packet_id % 65_535 + 1
        return self._packet_id
