"""What Shoal needs of a broker, whoever made it: one suite over real sockets.

A "nothing arrives" is proved by a ping: the broker answers in order, so what it had to send
before the answer is there.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys

import aiomqtt
import pytest

from tests.contract.conftest import LIMITS, Broker
from tests.contract.raw import (
    DEADLINE,
    PUBLISH,
    Message,
    RawClient,
    header,
    packet,
    publish_body,
    text,
)

WILL = Message("shoal/1/status/w", b"gone", 1, False)


async def assert_serves(broker: Broker) -> None:
    """Show that the broker still carries a message between two new clients."""
    listener = await broker.subscriber("listener", "shoal/1/still/here")
    speaker = await broker.client("speaker")
    await speaker.publish("shoal/1/still/here", b"yes", qos=1)
    assert await listener.message() == Message("shoal/1/still/here", b"yes", 1, False)


async def test_a_message_reaches_each_subscriber_once_at_the_lower_qos(broker: Broker) -> None:
    wide = await broker.subscriber("wide", "shoal/1/r/+/x", qos=1)
    plain = await broker.subscriber("plain", "shoal/1/r/a/x", qos=0)
    other = await broker.subscriber("other", "shoal/1/s/#", qos=1)
    speaker = await broker.client("speaker")
    await speaker.publish("shoal/1/r/a/x", b"1", qos=1)
    await speaker.publish("shoal/1/r/a/x", b"0", qos=0)
    await speaker.ping()
    for subscriber, qos in ((wide, 1), (plain, 0)):
        assert await subscriber.message() == Message("shoal/1/r/a/x", b"1", qos, False)
        assert await subscriber.message() == Message("shoal/1/r/a/x", b"0", 0, False)
    for subscriber in (wide, plain, other):
        await subscriber.ping()
        assert subscriber.messages == []


async def test_a_message_that_two_filters_match_comes_once_at_the_higher_qos(
    broker: Broker,
) -> None:
    both = await broker.subscriber("both", "shoal/1/r/+/x", qos=1)
    await both.subscribe("shoal/1/r/#", 0)
    speaker = await broker.client("speaker")
    await speaker.publish("shoal/1/r/a/x", b"1", qos=1)
    assert await both.message() == Message("shoal/1/r/a/x", b"1", 1, False)
    await both.ping()
    assert both.messages == []


async def test_wildcards_do_not_match_dollar_topics_or_too_few_levels(broker: Broker) -> None:
    everything = await broker.subscriber("everything", broker.served.everything)
    one_level = await broker.subscriber("one", "shoal/1/a/+")
    speaker = await broker.client("speaker")
    topics = ["shoal/1/a", "shoal/1/a/b", "shoal/1/a/b/c"]
    for topic in topics:
        await speaker.publish(topic, topic.encode(), qos=1)
    await everything.ping()
    await one_level.ping()
    assert [message.topic for message in everything.messages] == topics
    assert [message.topic for message in one_level.messages] == ["shoal/1/a/b"]


async def test_only_the_address_asked_for_is_listened_on(broker: Broker) -> None:
    with pytest.raises(ConnectionRefusedError):
        await RawClient.open(broker.url.replace("127.0.0.1", "127.0.0.2"))


async def test_qos_2_is_not_offered(broker: Broker) -> None:
    client = await broker.client("c")
    assert await client.subscribe("shoal/1/t", 2) == 1
    client.writer.write(packet(PUBLISH | 2 << 1, publish_body("shoal/1/t", b"x", 1)))
    await client.until_closed()
    await assert_serves(broker)


async def test_no_will_after_a_goodbye(broker: Broker) -> None:
    watcher = await broker.subscriber("watcher", "shoal/1/status/#")
    worker = await broker.client("w", will=WILL)
    await worker.leave()
    again = await broker.client("w")
    await again.ping()
    await watcher.ping()
    assert watcher.messages == []


async def test_will_of_an_aborted_connection(broker: Broker) -> None:
    watcher = await broker.subscriber("watcher", "shoal/1/status/#")
    worker = await broker.client("w", will=WILL)
    worker.abort()
    assert await watcher.message() == WILL


async def test_will_of_a_silent_connection_while_a_pinging_one_stays(broker: Broker) -> None:
    watcher = await broker.subscriber("watcher", "shoal/1/status/#")
    wills = {
        name: Message(f"shoal/1/status/{name}", b"silent", 1, False) for name in ("a", "b", "c")
    }
    idle = await broker.client("a", keepalive=1, will=wills["a"])
    stuck = await broker.client("b", keepalive=1, will=wills["b"])
    stuck.writer.write(header(PUBLISH, 300_000) + text("shoal/1/t") + bytes(100_000))
    pinging = await broker.client("c", keepalive=1, will=wills["c"])
    started = asyncio.get_running_loop().time()
    silent = asyncio.gather(idle.until_closed(), stuck.until_closed())
    while not silent.done():
        await pinging.ping()
        await asyncio.sleep(0.2)
    await silent
    assert asyncio.get_running_loop().time() - started >= 1.0
    assert {await watcher.message(), await watcher.message()} == {wills["a"], wills["b"]}
    await pinging.ping()
    await watcher.ping()
    assert watcher.messages == []


async def test_takeover_closes_the_old_socket_and_sends_its_will_only(broker: Broker) -> None:
    watcher = await broker.subscriber("watcher", "shoal/1/status/#")
    old = await broker.client("w", will=Message("shoal/1/status/w", b"old", 1, False))
    await old.subscribe("shoal/1/in/w", 1)
    new = await broker.client("w", will=Message("shoal/1/status/w", b"new", 1, False))
    await old.until_closed()
    assert await watcher.message() == Message("shoal/1/status/w", b"old", 1, False)
    await new.subscribe("shoal/1/in/w", 1)
    await watcher.publish("shoal/1/in/w", b"task", qos=1)
    assert await new.message() == Message("shoal/1/in/w", b"task", 1, False)
    await new.ping()
    await watcher.ping()
    assert (new.messages, watcher.messages) == ([], [])
    new.abort()
    assert await watcher.message() == Message("shoal/1/status/w", b"new", 1, False)


async def test_retained_only_where_subscribed_and_once(broker: Broker) -> None:
    speaker = await broker.client("speaker")
    await speaker.publish("shoal/1/run/epoch", b"1", qos=1, retain=True)
    follower = await broker.subscriber("follower", "shoal/1/run/epoch")
    assert await follower.message() == Message("shoal/1/run/epoch", b"1", 1, True)

    stranger = await broker.client("stranger")
    await stranger.subscribe("shoal/1/elsewhere/#", 1)
    await stranger.ping()
    assert stranger.messages == []

    await speaker.publish("shoal/1/run/epoch", b"2", qos=1, retain=True)
    assert await follower.message() == Message("shoal/1/run/epoch", b"2", 1, False)
    await follower.ping()
    assert follower.messages == []


async def test_a_wildcard_finds_what_is_retained(broker: Broker) -> None:
    speaker = await broker.client("speaker")
    await speaker.publish("shoal/1/run/wild", b"1", qos=1, retain=True)
    follower = await broker.subscriber("follower", "shoal/1/+/wild")
    assert await follower.message() == Message("shoal/1/run/wild", b"1", 1, True)


async def test_an_empty_retained_message_clears(broker: Broker) -> None:
    speaker = await broker.client("speaker")
    await speaker.publish("shoal/1/run/epoch", b"1", qos=1, retain=True)
    await speaker.publish("shoal/1/run/epoch", b"", qos=1, retain=True)
    late = await broker.subscriber("late", "shoal/1/run/epoch")
    await late.ping()
    assert late.messages == []


async def test_a_retained_will_is_retained(broker: Broker) -> None:
    watcher = await broker.subscriber("watcher", "shoal/1/status/#")
    worker = await broker.client("w", will=Message("shoal/1/status/w", b"gone", 1, True))
    worker.abort()
    await watcher.message()
    late = await broker.subscriber("late", "shoal/1/status/w")
    assert await late.message() == Message("shoal/1/status/w", b"gone", 1, True)


async def test_the_largest_lawful_packet_passes(broker: Broker) -> None:
    listener = await broker.subscriber("listener", "shoal/1/big")
    speaker = await broker.client("speaker")
    payload = os.urandom(LIMITS.packet_bytes - 64)
    await speaker.publish("shoal/1/big", payload, qos=1)
    assert (await listener.message()).payload == payload


async def test_an_oversized_packet_ends_its_connection_before_it_takes_memory(
    broker: Broker,
) -> None:
    listener = await broker.subscriber("listener", broker.served.everything)
    bystander = await broker.client("bystander")
    before = broker.memory()
    rude = await broker.client("rude")
    rude.writer.write(header(PUBLISH, 200_000_000) + text("shoal/1/t"))
    with contextlib.suppress(ConnectionError):
        for _ in range(1024):
            rude.writer.write(bytes(65536))
            await rude.writer.drain()
    await rude.until_closed()
    just_over = await broker.client("over")
    just_over.writer.write(packet(PUBLISH, publish_body("shoal/1/t", bytes(LIMITS.packet_bytes))))
    await just_over.until_closed()
    assert broker.memory() - before < 16 * 1024 * 1024
    await bystander.publish("shoal/1/fine", b"yes", qos=1)
    assert await listener.message() == Message("shoal/1/fine", b"yes", 1, False)
    await listener.ping()
    assert listener.messages == []


async def test_garbage_ends_its_connection_only(broker: Broker) -> None:
    for rudeness in (
        packet(PUBLISH, b"\x00\x05ab"),
        packet(PUBLISH, publish_body("shoal/1/with/#/wildcard", b"")),
        packet(PUBLISH, b"\x00\x02\xff\xfe"),
        packet(0x82, b"\x00\x01\x00"),
        packet(0xF0 & 0x0F),
        b"\x30\xff\xff\xff\xff\xff",
    ):
        rude = await broker.client("rude")
        rude.writer.write(rudeness)
        await rude.until_closed()
    await assert_serves(broker)


async def test_a_connection_without_connect_is_closed(broker: Broker) -> None:
    if broker.kind.startswith("mosquitto") and os.environ.get("SHOAL_SLOW_TESTS") != "1":
        pytest.skip("mosquitto 2 takes 90 s for it, fixed in its code; SHOAL_SLOW_TESTS=1 waits")
    silent, begun = await broker.open(), await broker.open()
    begun.writer.write(b"\x10\x20\x00")
    async with asyncio.timeout(120):
        for client in (silent, begun):
            with contextlib.suppress(ConnectionError):
                assert await client.reader.read() == b""


async def test_connections_are_limited_and_places_come_back(broker: Broker) -> None:
    if broker.kind == "other":
        pytest.skip("as its owner has it")
    clients = [await broker.client(f"c{number}") for number in range(LIMITS.connections)]
    with contextlib.suppress(ConnectionError):  # with TLS it does not come so far
        refused = await broker.open()
        await refused.until_closed()
    await clients[0].leave()
    async with asyncio.timeout(DEADLINE):
        while True:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                await broker.client("late")
                break
    await clients[1].ping()


async def test_acknowledged_messages_arrive_while_others_subscribe_and_leave(
    broker: Broker,
) -> None:
    count = 200
    done = asyncio.Event()

    async def churn(number: int) -> None:
        client = await broker.client(f"churn{number}")
        filters = [f"shoal/1/{name}" for name in (f"results/{number}/#", "results/+/s", "only")]
        while not done.is_set():
            for topic_filter in filters:
                await client.subscribe(topic_filter, 1)
            for topic_filter in filters:
                await client.unsubscribe(topic_filter)

    async def come_and_go(number: int) -> None:
        while not done.is_set():
            guest = await broker.client(f"guest{number}")
            await guest.subscribe("shoal/1/results/#", 1)
            await guest.leave()

    async def speak(number: int) -> None:
        worker = await broker.client(f"worker{number}")
        for index in range(count // 4):
            await worker.publish(f"shoal/1/results/{number}/s", b"%d:%d" % (number, index), 1)

    churners = [asyncio.ensure_future(churn(number)) for number in range(8)]
    churners += [asyncio.ensure_future(come_and_go(number)) for number in range(2)]
    early = [
        await broker.subscriber(f"early{number}", f"shoal/1/{number}/#") for number in range(8)
    ]
    listener = await broker.subscriber("listener", "shoal/1/results/+/+", qos=1)
    speakers = asyncio.gather(*(speak(number) for number in range(4)))
    received = [(await listener.message()).payload.decode() for _ in range(count)]
    await speakers
    done.set()
    await asyncio.gather(*churners, *(client.ping() for client in early))
    for number in range(4):
        mine = [payload for payload in received if payload.startswith(f"{number}:")]
        assert mine == [f"{number}:{index}" for index in range(count // 4)]


async def test_a_subscriber_that_does_not_read_harms_no_one(broker: Broker) -> None:
    listener = await broker.subscriber("listener", "shoal/1/update", qos=0)
    speaker = await broker.client("speaker")
    slow = await broker.subscriber("slow", "shoal/1/update", qos=0)
    slow.stop_reading()
    before = broker.memory()
    payload, rounds, window = bytes(16 * 1024), 36, 64  # 36 MiB in all
    for _ in range(rounds):
        for _ in range(window):
            speaker.writer.write(packet(PUBLISH, publish_body("shoal/1/update", payload)))
        for _ in range(window):
            assert len((await listener.message()).payload) == len(payload)
    assert broker.memory() - before < 24 * 1024 * 1024


async def test_a_broker_that_ended_or_was_killed_serves_again_on_its_port(kind: str) -> None:
    async def serve(port: int) -> tuple[asyncio.subprocess.Process, str]:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "coordinator.broker", "--kind", kind, "--port", str(port)),
            stdout=subprocess.PIPE,
        )
        assert process.stdout is not None
        async with asyncio.timeout(DEADLINE):
            line = (await process.stdout.readline()).decode()
        prefix = "shoal broker: listening on "
        assert line.startswith(prefix + "mqtt://127.0.0.1:") and line.endswith("\n")
        return process, line.removeprefix(prefix).strip()

    process, url = await serve(0)
    port = int(url.rpartition(":")[2])
    for number in (signal.SIGTERM, signal.SIGKILL):
        connected = await RawClient.connect(url, "c")
        process.send_signal(number)
        await connected.until_closed()
        async with asyncio.timeout(DEADLINE):
            assert await process.wait() == (0 if number == signal.SIGTERM else -number)
            with contextlib.suppress(ConnectionError):
                while True:  # mosquitto ends a moment after its parent
                    (await RawClient.open(url)).abort()
                    await asyncio.sleep(0.01)
        process, again = await serve(port)
        assert again == url
        async with aiomqtt.Client("127.0.0.1", port, identifier="c") as client:
            await client.subscribe("t", qos=1)
            await client.publish("t", b"back", qos=1)
            async with asyncio.timeout(DEADLINE):
                message = await anext(aiter(client.messages))
            assert message.payload == b"back"
    process.send_signal(signal.SIGINT)
    async with asyncio.timeout(DEADLINE):
        assert await process.wait() == 0
