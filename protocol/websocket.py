"""MQTT through a WebSocket (RFC 6455): what lies between TCP or TLS and a broker connection."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import State
from websockets.typing import Subprotocol
from websockets.uri import WebSocketURI

from protocol.address import Address
from protocol.packing import MAX_MESSAGE

_MAX_FRAME = 4 * MAX_MESSAGE
"""Bytes: brokers send one packet in each, or as many as their buffer holds."""

_DATA = (Opcode.BINARY, Opcode.CONT)

_LOGGER = logging.getLogger("shoal.websocket")
# What it has to say comes to us as the reason of a lost connection.
_LOGGER.setLevel(logging.CRITICAL)


class WebSocket(asyncio.Protocol):
    """asyncio's protocol on the side of the network, a transport for the `inner` protocol."""

    def __init__(self, inner: asyncio.Protocol, address: Address) -> None:
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """done once `inner` is connected; OSError where the server has no WebSocket for us"""
        self._inner = inner
        uri = WebSocketURI(
            secure=address.tls, host=address.host, port=address.port, path=address.path, query=""
        )
        self._frames = ClientProtocol(
            uri, subprotocols=[Subprotocol("mqtt")], max_size=_MAX_FRAME, logger=_LOGGER
        )
        self._transport: asyncio.Transport | None = None

    # asyncio's protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._frames.send_request(self._frames.connect())
        self._flush()

    def data_received(self, data: bytes) -> None:
        self._frames.receive_data(data)
        for event in self._frames.events_received():
            if isinstance(event, Response):
                self._hear_answer(event)
            elif isinstance(event, Frame) and event.opcode in _DATA and event.data:
                self._inner.data_received(bytes(event.data))
        self._flush()

    def eof_received(self) -> None:
        self._frames.receive_eof()
        self._flush()

    def connection_lost(self, error: Exception | None) -> None:
        if self._is_open:
            self._inner.connection_lost(error)
        elif not self.opened.done():
            self.opened.set_exception(
                error or ConnectionResetError("the server closed the connection")
            )

    def _hear_answer(self, answer: Response) -> None:
        if self.opened.done():
            return
        if self._frames.state is not State.OPEN:
            self.opened.set_exception(
                OSError(f"no WebSocket is served there (HTTP status {answer.status_code})")
            )
        elif self._frames.subprotocol != "mqtt":
            self.opened.set_exception(OSError("the WebSocket that is served there has no MQTT"))
        else:
            assert self._transport is not None
            self.opened.set_result(None)
            self._inner.connection_made(_Transport(self._transport, self))

    @property
    def _is_open(self) -> bool:
        opened = self.opened
        return opened.done() and not opened.cancelled() and opened.exception() is None

    def _flush(self) -> None:
        assert self._transport is not None
        for data in self._frames.data_to_send():
            if data:
                self._transport.write(data)
            else:  # the closing handshake is over, as far as it depends on us
                self._transport.close()

    # what the inner transport does

    def send(self, data: bytes) -> None:
        """Send bytes of MQTT in a frame."""
        if self._frames.state is State.OPEN:
            self._frames.send_binary(data)
            self._flush()

    def close(self) -> None:
        """Say goodbye, once all was sent."""
        if self._frames.state is State.OPEN:
            self._frames.send_close(1000)
            self._flush()
        if self._transport is not None:
            self._transport.close()


class _Transport(asyncio.Transport):
    """How the inner protocol sees its connection."""

    def __init__(self, outer: asyncio.Transport, websocket: WebSocket) -> None:
        super().__init__()
        self._outer = outer
        self._websocket = websocket

    def write(self, data: Any) -> None:
        self._websocket.send(bytes(data))

    def close(self) -> None:
        self._websocket.close()

    def abort(self) -> None:
        self._outer.abort()

    def can_write_eof(self) -> bool:
        return False

    def is_closing(self) -> bool:
        return self._outer.is_closing()

    def get_write_buffer_size(self) -> int:
        return self._outer.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._outer.get_extra_info(name, default)
