"""What the embedded broker guards beyond the contract that all brokers share."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from coordinator.broker import BrokerLimits
from coordinator.broker.embedded import EmbeddedBroker
from coordinator.broker.tls import own
from tests.contract.raw import DEADLINE, PUBLISH, Message, RawClient, packet, publish_body

LIMITS = BrokerLimits(
    queue_bytes=1024 * 1024,
    units_per_second=1_000_000,
    connections=4,
    connect_seconds=5.0,
    subscriptions=3,
    retained_messages=2,
    retained_bytes=1000,
)
Connect = Callable[..., Awaitable[RawClient]]


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async with EmbeddedBroker(limits=LIMITS) as broker:
        yield broker.url


@pytest.fixture
async def connect(url: str) -> AsyncIterator[Connect]:
    async with contextlib.AsyncExitStack() as clients:

        async def one(client_id: str, will: Message | None = None) -> RawClient:
            client = await RawClient.connect(url, client_id, will=will)
            clients.callback(client.abort)
            return client

        yield one


async def test_broker_that_is_interrupted_while_it_starts_leaves_quietly() -> None:
    said: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: said.append(context))
    for turns in range(1, 12):
        broker = EmbeddedBroker()
        starting = asyncio.create_task(broker.__aenter__())
        for _ in range(turns):
            await asyncio.sleep(0)
        place = urlsplit(broker.url)
        with socket.create_connection((place.hostname, place.port)):
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            for _ in range(3):
                await asyncio.sleep(0)
        await broker.__aexit__(None, None, None)
    assert not said


async def test_half_open_sockets_keep_no_one_out(url: str, connect: Connect) -> None:
    half_open = [await RawClient.open(url) for _ in range(3 * LIMITS.connections)]
    clients = [await connect(f"c{number}") for number in range(LIMITS.connections)]
    for client in half_open:
        await client.until_closed()
    for client in clients:
        await client.ping()
    refused = await RawClient.open(url)
    await refused.until_closed()


async def test_sockets_without_a_tls_handshake_keep_no_one_out(tmp_path: Path) -> None:
    async with EmbeddedBroker(limits=LIMITS, tls=own(tmp_path, ["127.0.0.1"])) as broker:
        url = broker.url.partition("#")[0]
        silent = [
            await RawClient.open(url.replace("mqtts", "mqtt"))
            for _ in range(3 * LIMITS.connections)
        ]
        started = asyncio.get_running_loop().time()
        for client in silent[: 2 * LIMITS.connections]:
            await client.until_closed()
        clients = [
            await RawClient.connect(url, f"c{number}") for number in range(LIMITS.connections)
        ]
        for client in silent:
            await client.until_closed()
        assert asyncio.get_running_loop().time() - started < LIMITS.connect_seconds
        for client in clients:
            await client.ping()
            client.abort()


async def test_a_slow_subscriber_is_disconnected_and_its_will_sent(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    watcher = await connect("watcher")
    await watcher.subscribe("status/#", 1)
    slow = await connect("slow", will=Message("status/slow", b"", 1, False))
    await slow.subscribe("update", 0)
    slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
    speaker = await connect("speaker")
    will = asyncio.ensure_future(watcher.message())
    sent = 0
    while not will.done():
        await speaker.publish("update", bytes(64 * 1024), qos=1)
        sent += 64 * 1024
    assert (await will).topic == "status/slow"
    assert sent < 64 * 1024 * 1024  # the queue, and what the kernel holds for the socket
    assert "'slow' was disconnected: reads too slowly" in caplog.text


async def test_a_flooding_client_is_read_at_its_rate() -> None:
    limits = BrokerLimits(units_per_second=1000)
    async with EmbeddedBroker(limits=limits) as broker:
        listener = await RawClient.connect(broker.url, "listener")
        await listener.subscribe("flood", 0)
        flooding = await RawClient.connect(broker.url, "flooding")
        small = packet(PUBLISH, publish_body("flood", bytes(1000)))
        started = asyncio.get_running_loop().time()
        flooding.writer.write(small * 3000)
        count = 0
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(started + 0.4):
                while True:
                    await listener.message()
                    count += 1
        elapsed = asyncio.get_running_loop().time() - started
        polite = await RawClient.connect(broker.url, "polite")
        await polite.ping()
        flooding.abort()
    allowed = limits.units_per_second * (elapsed + 0.5)  # half a second's worth at once
    assert 100 < count < allowed


async def test_who_acknowledges_nothing_is_disconnected(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    from coordinator.broker import guarded

    monkeypatch.setattr(guarded, "_UNACKNOWLEDGED", 100)
    mute = await connect("mute")
    await mute.subscribe("t", 1)
    mute.acknowledges = False
    polite = await connect("polite")
    await polite.subscribe("t", 1)
    speaker = await connect("speaker")
    for number in range(150):
        await speaker.publish("t", str(number).encode(), qos=1)
        assert (await polite.message()).payload == str(number).encode()
    await mute.until_closed()


async def test_subscriptions_are_limited_and_a_repeated_one_changes_its_qos(
    connect: Connect,
) -> None:
    client = await connect("c")
    assert [await client.subscribe(f"t/{number}", 1) for number in range(5)] == [1, 1, 1, 128, 128]
    assert await client.subscribe("t/0", 0) == 0
    await client.publish("t/0", b"x", qos=1)
    assert await client.message() == Message("t/0", b"x", 0, False)
    await client.unsubscribe("t/1")
    assert await client.subscribe("t/9", 1) == 1
    assert [await client.subscribe(wrong, 1) for wrong in ("a/#/b", "a+")] == [128, 128]


async def test_retained_messages_are_limited_in_number_and_bytes(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    speaker = await connect("speaker")
    await speaker.publish("k/1", bytes(400), qos=1, retain=True)
    await speaker.publish("k/2", bytes(400), qos=1, retain=True)
    await speaker.publish("k/3", b"one too many", qos=1, retain=True)
    await speaker.publish("k/2", bytes(700), qos=1, retain=True)
    assert "no room to retain" in caplog.text
    await speaker.publish("k/2", b"", qos=1, retain=True)
    await speaker.publish("k/3", bytes(600), qos=1, retain=True)
    reader = await connect("reader")
    await reader.subscribe("k/+", 1)
    await reader.ping()
    assert [(m.topic, len(m.payload)) for m in reader.messages] == [("k/1", 400), ("k/3", 600)]


async def test_what_is_queued_is_sent_before_the_broker_stops() -> None:
    roomy = BrokerLimits(queue_bytes=32 * 1024 * 1024, units_per_second=1_000_000)
    count = 64  # 16 MiB, more than the kernel holds for a socket
    async with EmbeddedBroker(limits=roomy) as broker:
        late = await RawClient.connect(broker.url, "late")
        await late.subscribe("t", 0)
        late.writer.transport.pause_reading()  # type: ignore[attr-defined]
        speaker = await RawClient.connect(broker.url, "speaker")
        for _ in range(count):
            await speaker.publish("t", bytes(256 * 1024), qos=1)

        async def read_all() -> set[int]:
            late.writer.transport.resume_reading()  # type: ignore[attr-defined]
            return {len((await late.message()).payload) for _ in range(count)}

        reading = asyncio.create_task(read_all())
    assert await reading == {256 * 1024}
    await late.until_closed()


async def test_random_bytes_end_only_the_connection_they_came_on(
    url: str, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    source = random.Random(1)
    for _ in range(150):
        connected = source.random() < 0.5
        rude = await (RawClient.connect(url, "rude\nclient") if connected else RawClient.open(url))
        rude.writer.write(bytes([source.randrange(256), source.randrange(64)]))
        rude.writer.write(source.randbytes(source.randrange(200)))
        rude.writer.write_eof()
        await rude.until_closed()
        rude.abort()
    polite = await connect("polite")
    await polite.ping()
    assert all(record.name == "shoal.broker" for record in caplog.records), caplog.text
    assert len(caplog.records) <= 1 + DEADLINE
    assert not any("\n" in record.getMessage() for record in caplog.records)


async def test_a_connect_that_is_none_is_refused(url: str) -> None:
    for refused in (
        packet(0x10, b"\x00\x06MQIsdp\x03\x02\x00\x3c\x00\x01c"),  # MQTT 3.1
        packet(0x10, b"\x00\x04MQTT\x05\x02\x00\x3c\x00\x00\x01c"),  # MQTT 5
        packet(0x10, b"\x00\x04MQTT\x04\x06\x00\x3c\x00\x01c\x00\x03a/#\x00\x00"),  # will on a/#
        packet(0x10, b"\x00\x04MQ"),
    ):
        client = await RawClient.open(url)
        client.writer.write(refused)
        await client.until_closed()


def test_nothing_heavy_is_imported_until_the_broker_starts() -> None:
    script = (
        "import sys; import coordinator.broker.__main__, coordinator.broker.embedded;"
        "heavy = {'amqtt', 'numpy', 'numba', 'typer', 'rich', 'aiomqtt', 'msgspec'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=os.environ
    )
    assert found.stdout == "[]\n"


async def test_amqtt_says_nothing(connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        client = await connect("c")
        await client.subscribe("t", 1)
        await client.publish("t", b"x", qos=1)
        await client.leave()
    assert [r.name for r in caplog.records if r.name.startswith(("amqtt", "transitions"))] == []
