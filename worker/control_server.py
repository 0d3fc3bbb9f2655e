"""Listens where a second terminal asks: a local socket for its owner alone; decides nothing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from protocol.errors import ShoalError
from worker.control import LONGEST_LINE, Answer, Request, line_of, request

LONGEST_PATH = 100
"""Bytes of a socket's path that every system takes."""
MOST_CLIENTS = 8
"""Clients at a time; more are turned away."""
PATIENCE = 5.0
"""Seconds for a client to say what it wants, and for each piece that it is sent."""
PIECE = 1 << 20

Answering = Callable[[Request], Awaitable[tuple[Answer, bytes]]]


class ControlServer:
    """Answers clients, one request each, until it is closed."""

    def __init__(self, path: Path, answering: Answering) -> None:
        """`answering`: what becomes of a request, and the bytes that follow the answer."""
        self._path = path
        self._answering = answering
        self._clients: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Listen. Raises OSError."""
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with reachable(self._path) as path:
                listening.bind(path)
            self._path.chmod(0o600)
            listening.setblocking(False)
            self._server = await asyncio.start_unix_server(
                self._meet, sock=listening, limit=LONGEST_LINE
            )
        except BaseException:
            listening.close()
            raise

    async def close(self) -> None:
        """Stop at once."""
        if self._server is not None:
            self._server.close()
        for client in self._clients:
            client.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)

    def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A task of our own: one of asyncio's writes a traceback where it is cancelled.
        if len(self._clients) >= MOST_CLIENTS:
            writer.close()
            return
        client = asyncio.create_task(self._attend(reader, writer))
        self._clients.add(client)
        client.add_done_callback(self._clients.discard)

    async def _attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(ConnectionError, TimeoutError, asyncio.IncompleteReadError):
                await self._serve(reader, writer)
        finally:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        data = b""
        try:
            async with asyncio.timeout(PATIENCE):
                line = await reader.readuntil(b"\n")
            said, data = await self._answering(request(line))
        except ShoalError as error:
            said = Answer(error=str(error)[:900])
        except asyncio.LimitOverrunError:
            said = Answer(error=f"a request of more than {LONGEST_LINE:,} bytes")
        writer.write(line_of(said))
        for place in range(0, len(data), PIECE):
            writer.write(data[place : place + PIECE])
            async with asyncio.timeout(PATIENCE):
                await writer.drain()
        async with asyncio.timeout(PATIENCE):
            await writer.drain()


@contextlib.contextmanager
def reachable(path: Path) -> Iterator[str]:
    """The path of a socket, in the short form that systems take; raises OSError where there is
    none."""
    if len(os.fsencode(path)) <= LONGEST_PATH:
        yield str(path)
        return
    if sys.platform != "linux":
        raise OSError(f"{path} is longer than {LONGEST_PATH} bytes: give a shorter --home")
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
