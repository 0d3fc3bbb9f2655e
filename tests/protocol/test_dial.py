"""Ways to a broker: through a WebSocket, a proxy, and to one that is known by its certificate."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from websockets.asyncio.server import ServerConnection, serve

from coordinator.broker import Rules
from coordinator.broker.embedded import EmbeddedBroker
from coordinator.broker.tls import Tls, own
from protocol.address import Address, parse_address
from protocol.dial import check_proxy
from protocol.errors import ShoalError
from protocol.link import FatalLinkError, Link, Will
from protocol.packing import MAX_MESSAGE
from protocol.surroundings import address_from_here

DEADLINE = 10.0
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    return own(tmp_path_factory.mktemp("certificate"), ["127.0.0.1"])


class Peer:
    """A link at an address, and what it heard."""

    def __init__(self, address: Address, **options: Any) -> None:
        self.heard: asyncio.Queue[bytes] = asyncio.Queue()
        self.up: asyncio.Queue[bool] = asyncio.Queue()
        self.lost: asyncio.Queue[str] = asyncio.Queue()
        self.retries: asyncio.Queue[str] = asyncio.Queue()
        self.link = Link(
            address,
            client_id="peer",
            on_message=lambda topic, payload: self.heard.put_nowait(payload),
            on_connected=self.up.put_nowait,
            on_disconnected=self.lost.put_nowait,
            on_retry=lambda reason, delay: self.retries.put_nowait(reason),
            subscriptions={"t": 1},
            **options,
        )

    async def __aenter__(self) -> Peer:
        self.running = asyncio.create_task(self.link.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.link.close()
        self.running.cancel()
        with suppress(asyncio.CancelledError, FatalLinkError):
            await self.running

    async def carries(self) -> None:
        """It is connected, and takes what is large and what is small there and back."""
        async with asyncio.timeout(DEADLINE):
            assert await self.up.get()
            for payload in (bytes(MAX_MESSAGE), b"small"):
                assert self.link.publish("t", payload, 1)
                assert await self.heard.get() == payload

    async def fatal(self) -> FatalLinkError:
        with pytest.raises(FatalLinkError) as caught:
            async with asyncio.timeout(DEADLINE):
                await self.link.run()
        return caught.value


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


@asynccontextmanager
async def served(handler: Handler) -> AsyncIterator[str]:
    server = await asyncio.start_server(handler, "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


@asynccontextmanager
async def websocket_before(
    broker: str, context: ssl.SSLContext | None = None, subprotocols: Any = ("mqtt",)
) -> AsyncIterator[int]:
    """A WebSocket server, not ours, in front of a broker's TCP port -> its port."""

    async def bridge(client: ServerConnection) -> None:
        parts = urlsplit(broker)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)

        async def back() -> None:
            while data := await reader.read(65536):
                await client.send(data)
            await client.close()

        task = asyncio.create_task(back())
        with suppress(Exception):
            async for data in client:
                assert isinstance(data, bytes)
                writer.write(data)
        writer.transport.abort()
        task.cancel()

    def only_there(client: ServerConnection, request: Any) -> Any:
        there = request.path == "/mqtt"
        return None if there else client.respond(HTTPStatus.NOT_FOUND, "no such page\n")

    async with serve(
        bridge,
        "127.0.0.1",
        0,
        subprotocols=subprotocols,
        ssl=context,
        compression=None,
        process_request=only_there,
        close_timeout=1.0,
    ) as server:
        yield next(iter(server.sockets)).getsockname()[1]


async def test_a_websocket_carries_mqtt_and_its_end_is_noticed(tls: Tls) -> None:
    async with EmbeddedBroker() as broker, websocket_before(broker.url, tls.context()) as port:
        address = parse_address(f"wss://127.0.0.1:{port}/mqtt#.{tls.pin}")
        watcher = Peer(replace(parse_address(broker.url)))
        watcher.link.client_id = "watcher"
        dying = Peer(address, will=Will("t", b"gone"))
        async with watcher:
            await watcher.carries()
            async with dying:
                await dying.carries()
                for _ in range(2):
                    await watcher.heard.get()
                dying.link.abort()
                async with asyncio.timeout(DEADLINE):
                    assert await watcher.heard.get() == b"gone"
                    assert not await dying.up.get()  # it is back
            # It left with a goodbye this time: no will.
            watcher.link.publish("t", b"last", 1)
            async with asyncio.timeout(DEADLINE):
                assert await watcher.heard.get() == b"last"


async def test_the_end_of_a_broker_behind_a_websocket_is_noticed_at_once() -> None:
    broker = EmbeddedBroker()
    async with (
        broker,
        websocket_before(broker.url) as port,
        Peer(parse_address(f"ws://127.0.0.1:{port}")) as peer,
    ):
        await peer.carries()
        await broker.__aexit__(None, None, None)
        began = asyncio.get_running_loop().time()
        await asyncio.wait_for(peer.lost.get(), DEADLINE)
        assert asyncio.get_running_loop().time() - began < 3.0


async def test_what_is_no_websocket_for_mqtt_is_named() -> None:
    async def page(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    async with EmbeddedBroker() as broker, websocket_before(broker.url) as port:
        async with Peer(parse_address(f"ws://127.0.0.1:{port}/elsewhere")) as peer:
            assert "HTTP status 404" in await asyncio.wait_for(peer.retries.get(), DEADLINE)
        async with served(page) as place, Peer(parse_address(f"ws://{place}")) as peer:
            assert "closed" in await asyncio.wait_for(peer.retries.get(), DEADLINE)
        async with (
            websocket_before(broker.url, subprotocols=None) as port,
            Peer(parse_address(f"ws://127.0.0.1:{port}")) as peer,
        ):
            assert "no MQTT" in await asyncio.wait_for(peer.retries.get(), DEADLINE)


async def test_a_pinned_certificate_proves_the_broker_and_nothing_else_does(tls: Tls) -> None:
    async with EmbeddedBroker(tls=tls) as broker:
        address = parse_address(broker.url)
        assert address.certificate == tls.pin
        async with Peer(replace(address, host="localhost")) as peer:  # no name is proved
            await peer.carries()
        other = replace(address, certificate="a" * 26)
        error = await Peer(other).fatal()
        assert (error.reason, tls.pin in str(error)) == ("certificate", True)
        assert "ask the host for a new line" in str(error)
        error = await Peer(replace(address, certificate=None)).fatal()
        assert (error.reason, "certificate authority" in str(error)) == ("certificate", True)


def connect_proxy(log: list[str]) -> Handler:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        log.append(head)
        if "Proxy-Authorization: Basic bWU6c2VjcmV0" not in head:  # me:secret
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
            writer.close()
            return
        host, _, port = head.split()[1].rpartition(":")
        there = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await asyncio.gather(pump(reader, there[1]), pump(there[0], writer))

    return handle


async def socks5_proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    _, methods = await reader.readexactly(2)
    await reader.readexactly(methods)
    writer.write(b"\x05\x00")
    *_, kind = await reader.readexactly(4)
    assert kind == 3  # a name: the proxy resolves it, not we
    host = (await reader.readexactly((await reader.readexactly(1))[0])).decode()
    port = int.from_bytes(await reader.readexactly(2), "big")
    there = await asyncio.open_connection(host, port)
    writer.write(b"\x05\x00\x00\x01" + bytes(6))
    await asyncio.gather(pump(reader, there[1]), pump(there[0], writer))


async def test_proxies_lead_to_a_broker_with_tls(tls: Tls) -> None:
    log: list[str] = []
    async with (
        EmbeddedBroker(tls=tls, rules=None) as broker,
        served(connect_proxy(log)) as http,
        served(socks5_proxy) as socks,
    ):
        address = replace(parse_address(broker.url), host="localhost")
        async with Peer(replace(address, proxy=f"http://me:secret@{http}")) as peer:
            await peer.carries()
        assert log[0].startswith(f"CONNECT localhost:{address.port} ")
        async with Peer(replace(address, proxy=f"socks5://{socks}")) as peer:
            await peer.carries()
        async with Peer(replace(address, proxy=f"http://me:wrong@{http}")) as peer:
            reason = await asyncio.wait_for(peer.retries.get(), DEADLINE)
            assert "407" in reason and "wrong" not in reason
    async with Peer(replace(address, proxy="socks5://me:hidden@127.0.0.1:9")) as peer:
        reason = await asyncio.wait_for(peer.retries.get(), DEADLINE)
        assert "127.0.0.1:9" in reason and "hidden" not in reason


@pytest.mark.parametrize("url", ["host:1", "ftp://h:1", "http://me:hidden@h", "http://h:x", ""])
def test_a_proxy_that_cannot_be_is_refused(url: str) -> None:
    with pytest.raises(ShoalError, match=r"proxy .*http://host:3128") as caught:
        check_proxy(url)
    assert "hidden" not in str(caught.value)


def test_the_environment_adds_what_the_address_lacks() -> None:
    around = {
        "SHOAL_BROKER_USER": "ann",
        "SHOAL_BROKER_PASSWORD": "p/w",
        "SHOAL_PROXY": "socks5://h:1080",
    }
    address = address_from_here("mqtts://host", None, around)
    assert (address.user, address.password, address.proxy) == ("ann", "p/w", "socks5://h:1080")
    assert "p/w" not in repr(address) and "socks5" not in repr(address)
    address = address_from_here("mqtts://bob@host", "http://me:x@p:1", around)
    assert (address.user, address.password, address.proxy) == ("bob", "p/w", "http://me:x@p:1")
    assert address_from_here("mqtts://bob:own@host", None, around).password == "own"
    assert address_from_here("mqtt://host", None, {}) == parse_address("mqtt://host")
    with pytest.raises(ShoalError, match="SHOAL_BROKER_PASSWORD"):
        address_from_here("mqtt://h", None, {"SHOAL_BROKER_PASSWORD": "x" * 300})


async def test_a_link_gives_its_name_and_none_where_it_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rules = Rules()
    asked: list[str | None] = []

    def lets_in(self: Rules, user: str | None, password: str | None) -> bool:
        asked.append(user)
        return user is None

    monkeypatch.setattr(Rules, "lets_in", lets_in)
    monkeypatch.setattr(Rules, "may_read", lambda *_: True)
    monkeypatch.setattr(Rules, "may_publish", lambda *_: True)
    async with EmbeddedBroker(rules=rules) as broker:
        address = replace(parse_address(broker.url), user=None, password=None)
        async with Peer(address, name="abcd") as peer:
            await peer.carries()
        assert asked == ["abcd", None]
        asked.clear()
        error = await Peer(replace(address, user="eve"), name="abcd").fatal()
        assert (error.reason, asked) == ("credentials", ["eve"])
