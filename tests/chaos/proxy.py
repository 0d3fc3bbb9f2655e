"""A TCP proxy that breaks connections on purpose, in a thread of its own."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

CHUNK = 1 << 16
HELD = 64
"""Chunks on their way in one direction; who sends more has to wait, as in a network."""
RATE_GRAIN = 0.02
"""Seconds of a bounded bandwidth that are sent at once."""
ANSWER = 10.0
"""Seconds that the proxy's thread may take to do what it is asked for."""

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Faults:
    """What happens to the bytes that go one way; they never overtake each other.

    Attributes:
        latency: seconds that each takes.
        jitter: up to so many seconds more.
        rate: bytes a second at most; 0: as many as come.
        dead: nothing arrives, not even the end, until that is over: then all of it does.
        cut_after: bytes after which the connection is reset, counted from its beginning or from
            when that was asked for.
    """

    latency: float = 0.0
    jitter: float = 0.0
    rate: float = 0.0
    dead: bool = False
    cut_after: int | None = None


WELL = Faults()


class Way:
    """One direction of a connection."""

    def __init__(self, faults: Faults, random: Random, reset: Callable[[], None]) -> None:
        self.forwarded = 0
        self._random = random
        self._reset = reset
        self.alive = asyncio.Event()
        self._queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(HELD)
        self.behave(faults)

    def behave(self, faults: Faults) -> None:
        """From now on so; what is on its way already keeps its latency."""
        self._faults = faults
        self._cut_at = None if faults.cut_after is None else self.forwarded + faults.cut_after
        if faults.dead:
            self.alive.clear()
        else:
            self.alive.set()

    async def take(self, reader: asyncio.StreamReader) -> None:
        """Read what one side sends, to its end."""
        while True:
            data = await reader.read(CHUNK)
            late = self._faults.latency + self._random.uniform(0.0, self._faults.jitter)
            await self._queue.put((asyncio.get_running_loop().time() + late, data))
            if not data:
                return

    async def give(self, writer: asyncio.StreamWriter) -> None:
        """Send it to the other side when its time has come."""
        while True:
            due, data = await self._queue.get()
            await asyncio.sleep(due - asyncio.get_running_loop().time())
            await self.alive.wait()
            if not data:
                writer.write_eof()
                return
            async for piece in self._pieces(data):
                await self.alive.wait()
                left = None if self._cut_at is None else self._cut_at - self.forwarded
                writer.write(piece[:left])
                await writer.drain()
                self.forwarded += len(piece[:left])
                if left is not None and left <= len(piece):
                    self._reset()
                    return

    async def _pieces(self, data: bytes) -> AsyncIterator[bytes]:
        """`data`, or parts of it no faster than the rate allows."""
        while data:
            rate = self._faults.rate
            size = max(1, int(rate * RATE_GRAIN)) if rate else len(data)
            piece, data = data[:size], data[size:]
            yield piece
            if rate:
                await asyncio.sleep(len(piece) / rate)


class Connection:
    """A client's connection and ours to the target; used in the proxy's thread."""

    def __init__(self, client: asyncio.StreamWriter, up: Faults, down: Faults, seed: int) -> None:
        self._writers = [client]
        self.over = asyncio.Event()
        self.up = Way(up, Random(2 * seed), self.reset)
        self.down = Way(down, Random(2 * seed + 1), self.reset)

    def reset(self) -> None:
        """Cut it on both sides at once: each reads ECONNRESET."""
        for writer in self._writers:
            with suppress(OSError):
                sock = writer.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        self.over.set()

    async def live(self, reader: asyncio.StreamReader, target: tuple[str, int]) -> None:
        """Pass on what comes, to the end of both directions or until it is cut."""
        passing = asyncio.ensure_future(self._pass_on(reader, target))
        over = asyncio.ensure_future(self.over.wait())
        try:
            await asyncio.wait((passing, over), return_when=asyncio.FIRST_COMPLETED)
        finally:
            passing.cancel()
            over.cancel()
            await asyncio.gather(passing, over, return_exceptions=True)
            self.reset()

    async def _pass_on(self, reader: asyncio.StreamReader, target: tuple[str, int]) -> None:
        try:
            answers, writer = await asyncio.open_connection(*target)
            self._writers.append(writer)
            async with asyncio.TaskGroup() as ways:
                ways.create_task(self.up.take(reader))
                ways.create_task(self.up.give(writer))
                ways.create_task(self.down.take(answers))
                ways.create_task(self.down.give(self._writers[0]))
        except* OSError:
            pass  # one side is gone, or was never there: the other hears of it below
        for way in (self.up, self.down):  # but not while a way is dead
            await way.alive.wait()


class Proxy:
    """Listens on a free port of loopback and passes on to `target`; see `proxied`.

    Its methods may be called from any thread and have happened when they return.
    """

    def __init__(self, target: tuple[str, int], seed: int = 0) -> None:
        self.target = target
        self.accepted = 0
        """connections so far"""
        self._seed = seed
        self._up, self._down = WELL, WELL
        self._connections: list[Connection] = []
        self._lives: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._place = _socket(0)  # holds the port while nobody listens on it
        self.port = int(self._place.getsockname()[1])

    @property
    def url(self) -> str:
        """Where MQTT clients find it."""
        return f"mqtt://127.0.0.1:{self.port}"

    def through(self, join_url: str) -> str:
        """The join line of a run at the target, by way of the proxy."""
        scheme, _, rest = join_url.partition("://")
        _, slash, run = rest.partition("/")
        return f"{scheme}://127.0.0.1:{self.port}{slash}{run}"

    def start(self) -> None:
        """Begin to listen."""
        self._thread.start()
        self.admit()

    def close(self) -> None:
        """Cut everything and end."""
        self.refuse()
        self.reset()
        self._call(self._settle())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(ANSWER)
        self._loop.close()
        self._place.close()

    def behave(self, up: Faults = WELL, down: Faults = WELL, *, only: int | None = None) -> None:
        """Treat what clients send as `up`, what they get as `down`, from now on.

        `only`: the connection with that number (from 0, as they came) and no other one, and none
        that is to come.
        """

        def change() -> None:
            if only is None:
                self._up, self._down = up, down
            for connection in self._connections if only is None else [self._connections[only]]:
                connection.up.behave(up)
                connection.down.behave(down)

        self._do(change)

    def reset(self) -> int:
        """Cut all connections; how many were there."""

        def cut() -> int:
            living = [one for one in self._connections if not one.over.is_set()]
            for connection in living:
                connection.reset()
            return len(living)

        return self._do(cut)

    def refuse(self) -> None:
        """Let nobody in, as if nothing listened here; who is in stays."""

        def stop() -> None:
            if self._server is not None:
                self._server.close()
                self._server = None

        self._do(stop)

    def admit(self) -> None:
        """Let clients in again."""
        self._call(self._listen())

    async def _listen(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, sock=_socket(self.port))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number, self.accepted = self.accepted, self.accepted + 1
        connection = Connection(writer, self._up, self._down, self._seed + number)
        self._connections.append(connection)
        life = asyncio.ensure_future(connection.live(reader, self.target))
        self._lives.add(life)
        life.add_done_callback(self._lives.discard)
        await asyncio.wait((life,))

    async def _settle(self) -> None:
        for life in list(self._lives):
            life.cancel()
        await asyncio.gather(*self._lives, return_exceptions=True)

    def _do(self, work: Callable[[], Answer]) -> Answer:
        async def done() -> Answer:
            return work()

        return self._call(done())

    def _call(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(ANSWER)


def _socket(port: int) -> socket.socket:
    """Bound to loopback, where the port may be bound once more but has one listener."""
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    bound.bind(("127.0.0.1", port))
    return bound


@contextmanager
def proxied(target: tuple[str, int], seed: int = 0) -> Iterator[Proxy]:
    """A proxy before `target` (host, port), gone at the end."""
    proxy = Proxy(target, seed)
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.close()
