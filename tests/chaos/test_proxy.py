"""The proxy does to bytes what its faults say, and nothing else."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from tests.chaos.proxy import WELL, Faults, Proxy, proxied

DEADLINE = 5.0
SOON = 0.3
"""Seconds in which what must not come would have come."""


class Echo:
    """Sends back what it gets, and notes it by connection."""

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.ends: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = len(self.got)
        self.got.append(b"")
        try:
            while data := await reader.read(1 << 16):
                self.got[number] += data
                writer.write(data)
            self.ends.append("end")
        except ConnectionResetError:
            self.ends.append("reset")
        finally:
            writer.close()


@asynccontextmanager
async def proxied_echo() -> AsyncIterator[tuple[Proxy, Echo]]:
    echo = Echo()
    server = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
    with proxied(("127.0.0.1", server.sockets[0].getsockname()[1])) as proxy:
        yield proxy, echo
    server.close()


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def of(cls, proxy: Proxy) -> Client:
        return cls(*await asyncio.open_connection("127.0.0.1", proxy.port))

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    async def get(self, count: int) -> bytes:
        async with asyncio.timeout(DEADLINE):
            return await self._reader.readexactly(count)

    async def echo(self, data: bytes) -> float:
        """Seconds until `data` is back."""
        began = time.monotonic()
        self.send(data)
        assert await self.get(len(data)) == data
        return time.monotonic() - began

    async def silent(self) -> bool:
        """Whether neither bytes nor an end come soon."""
        try:
            async with asyncio.timeout(SOON):
                await self._reader.read(1)
        except TimeoutError:
            return True
        return False

    async def end(self) -> str:
        """How the connection ends, whatever comes before."""
        try:
            async with asyncio.timeout(DEADLINE):
                while await self._reader.read(1 << 16):
                    pass
        except ConnectionResetError:
            return "reset"
        return "end"

    def close(self, by_reset: bool) -> None:
        if by_reset:
            sock = self._writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.close()


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE):
        while not true():
            await asyncio.sleep(0.005)  # between looks; nothing depends on its length


async def test_a_well_proxy_passes_everything_on_and_the_end_too() -> None:
    async with proxied_echo() as (proxy, echo):
        client = await Client.of(proxy)
        data = bytes(range(256)) * 4000
        await client.echo(data)
        client._writer.write_eof()
        assert await client.end() == "end"
        assert echo.got == [data] and echo.ends == ["end"]


async def test_latency_and_jitter_delay_but_keep_the_order() -> None:
    async with proxied_echo() as (proxy, _):
        proxy.behave(up=Faults(latency=0.1, jitter=0.1))
        client = await Client.of(proxy)
        began = time.monotonic()
        for number in range(20):
            client.send(bytes([number]))
            await asyncio.sleep(0.005)
        assert await client.get(20) == bytes(range(20))
        assert time.monotonic() - began > 0.19
        proxy.behave()
        assert min([await client.echo(b"!") for _ in range(10)]) < 0.1


async def test_a_dead_way_delivers_once_it_lives() -> None:
    async with proxied_echo() as (proxy, echo):
        client = await Client.of(proxy)
        await client.echo(b"before")
        proxy.behave(down=Faults(dead=True))  # half-open: what we say still arrives
        client.send(b" during")
        await until(lambda: echo.got == [b"before during"])
        assert await client.silent()
        proxy.behave(up=Faults(dead=True), down=Faults(dead=True))  # a black hole
        client.send(b" hole")
        late = await Client.of(proxy)
        late.send(b"late")
        assert await late.silent()
        assert echo.got[0] == b"before during"
        proxy.behave()
        assert await client.get(12) == b" during hole"
        assert await late.get(4) == b"late"


@pytest.mark.parametrize("leaves", ["client", "client by a reset", "target"])
async def test_a_black_hole_hides_the_end_of_one_side_from_the_other(leaves: str) -> None:
    async with proxied_echo() as (proxy, echo):
        client = await Client.of(proxy)
        await client.echo(b"before")
        hole = Faults(dead=True)
        proxy.behave(up=WELL if leaves == "target" else hole, down=hole)
        if leaves != "target":
            client.close(by_reset=leaves != "client")
            await asyncio.sleep(SOON)
            assert echo.ends == []
        else:
            client._writer.write_eof()
            await until(lambda: echo.ends == ["end"])
            assert await client.silent()
        proxy.behave()
        await until(lambda: len(echo.ends) == 1)


async def test_a_cut_comes_after_so_many_bytes_and_is_a_reset_for_both() -> None:
    async with proxied_echo() as (proxy, echo):
        proxy.behave(up=Faults(cut_after=1000))
        for _ in range(2):  # each connection that comes
            client = await Client.of(proxy)
            client.send(bytes(400))
            await client.get(400)
            client.send(bytes(5000))
            assert await client.end() == "reset"
        await until(lambda: echo.ends == ["reset", "reset"])
        assert [len(got) for got in echo.got] == [1000, 1000]
        proxy.behave()
        client, other = await Client.of(proxy), await Client.of(proxy)
        for one in (client, other):
            await one.echo(bytes(5000))
        proxy.behave(down=Faults(cut_after=10), only=2)
        client.send(bytes(20))
        assert await client.end() == "reset"
        for one in (other, await Client.of(proxy)):
            await one.echo(bytes(5000))


async def test_reset_cuts_all_that_is_there_and_nobody_later() -> None:
    async with proxied_echo() as (proxy, echo):
        clients = [await Client.of(proxy) for _ in range(2)]
        for client in clients:
            await client.echo(b"x")
        assert proxy.reset() == 2
        assert [await client.end() for client in clients] == ["reset", "reset"]
        await until(lambda: echo.ends == ["reset", "reset"])
        assert proxy.reset() == 0
        await (await Client.of(proxy)).echo(b"x")


async def test_a_rate_bounds_the_bandwidth() -> None:
    async with proxied_echo() as (proxy, _):
        proxy.behave(up=Faults(rate=100_000.0))
        client = await Client.of(proxy)
        assert 0.25 < await client.echo(bytes(30_000)) < 3.0


async def test_who_is_refused_may_come_later() -> None:
    async with proxied_echo() as (proxy, _):
        client = await Client.of(proxy)
        await client.echo(b"x")
        proxy.refuse()
        with pytest.raises(ConnectionRefusedError):
            await Client.of(proxy)
        await client.echo(b"x")
        proxy.admit()
        await (await Client.of(proxy)).echo(b"x")
        assert proxy.accepted == 2


async def test_a_target_that_is_not_there_ends_the_connection() -> None:
    async with proxied_echo() as (proxy, _):
        proxy.target = ("127.0.0.1", 1)
        with suppress(ConnectionResetError):  # as soon as that
            client = await Client.of(proxy)
            assert await client.end() in ("end", "reset")
        assert proxy.through("mqtt://h:1883/run-1#key") == f"{proxy.url}/run-1#key"
