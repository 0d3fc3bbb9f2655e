from __future__ import annotations

import asyncio
import base64
import datetime
import gc
import hashlib
import ipaddress
import logging
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random

import pytest

from protocol import clock
from protocol import connection as connection_module
from protocol import stream as stream_module
from protocol.address import parse_address
from protocol.connection import Connection
from protocol.dial import dial
from protocol.frames import MAX_PACKET, publish_packet
from protocol.link import FatalLinkError, Link, Will, client_id
from protocol.packing import MAX_MESSAGE
from protocol.wire_count import WireCount
from tests.chaos.proxy import Faults, proxied
from tests.protocol.mosquitto import Mosquitto, free_port

DEADLINE = 15.0

CONNACK = b"\x20\x02\x00\x00"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    mosquitto = Mosquitto(tmp_path_factory.mktemp("broker"), "max_queued_messages 10000")
    mosquitto.start()
    yield mosquitto
    mosquitto.kill()


@pytest.fixture(autouse=True)
def nothing_is_left_to_the_event_loop(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """asyncio logs what nobody awaited or caught; none of that may happen."""
    yield
    gc.collect()
    complaints = [
        record.getMessage()
        for record in caplog.get_records("call")
        if record.name in ("asyncio", "mqtt")
    ]
    assert not complaints


class Impatient(Random):
    """Hardly any delay, where a test is not about delays."""

    def uniform(self, a: float, b: float) -> float:
        return 0.01


class Peer:
    """A link and everything that its callbacks said, to wait for."""

    def __init__(self, url: str, name: str = "peer", **options: object) -> None:
        self.said: list[tuple[object, ...]] = []
        self._news = asyncio.Event()
        self.link = Link(
            parse_address(url),
            client_id=name,
            on_message=lambda topic, payload: self.say("message", topic, payload),
            on_connected=lambda first: self.say("connected", first),
            on_disconnected=lambda reason: self.say("disconnected", reason),
            on_retry=lambda reason, delay: self.say("retry", reason, delay),
            random=Impatient(),
            **options,  # type: ignore[arg-type]
        )
        self.task: asyncio.Task[None] | None = None

    def say(self, *words: object) -> None:
        self.said.append(words)
        self._news.set()

    def start(self) -> None:
        self.task = asyncio.create_task(self.link.run())

    async def until(self, condition: Callable[[], bool]) -> None:
        assert self.task is not None
        async with asyncio.timeout(DEADLINE):
            while not condition():
                if self.task.done():
                    self.task.result()
                    raise AssertionError(f"the link ended: {self.said}")
                self._news.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._news.wait(), 0.05)

    async def hear(self, *words: object) -> None:
        await self.until(lambda: words in self.said)

    async def up(self) -> None:
        await self.until(lambda: self.link.connected)

    @property
    def messages(self) -> list[bytes]:
        return [words[2] for words in self.said if words[0] == "message"]  # type: ignore[misc]

    def kinds(self) -> list[object]:
        return [words[0] for words in self.said]


@asynccontextmanager
async def peers(*wanted: Peer) -> AsyncIterator[None]:
    for peer in wanted:
        peer.start()
    try:
        for peer in wanted:
            await peer.up()
        yield
    finally:
        for peer in wanted:
            await peer.link.close()
            assert peer.task is not None
            async with asyncio.timeout(DEADLINE):
                with suppress(FatalLinkError, asyncio.CancelledError):
                    await peer.task


Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def deaf_until(released: asyncio.Event) -> Script:
    """A broker that welcomes a client and reads nothing after that."""

    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_packet(reader)
        writer.write(CONNACK)
        writer.transport.pause_reading()
        await released.wait()

    return deaf


@asynccontextmanager
async def scripted_broker(script: Script) -> AsyncIterator[str]:
    """A server that does to each client whatever `script` does; for what no honest broker does."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            await script(reader, writer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield f"mqtt://127.0.0.1:{port}"
    finally:
        server.close()


async def read_packet(reader: asyncio.StreamReader) -> bytes:
    """A short packet, as all that these clients send in these tests are."""
    head = await reader.readexactly(2)
    length = head[1]
    if length > 127:
        head += await reader.readexactly(1)
        length = (length & 127) + (head[2] << 7)
    return head + await reader.readexactly(length)


async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer CONNECT and a SUBSCRIBE to one filter."""
    await read_packet(reader)
    writer.write(CONNACK)
    subscribe = await read_packet(reader)
    writer.write(b"\x90\x03" + subscribe[2:4] + b"\0")


# messages


async def test_messages_arrive_once_in_order_and_unchanged(broker: Mosquitto) -> None:
    sender = Peer(broker.url, "sender")
    receiver = Peer(broker.url, "receiver", subscriptions={"t/zero": 0, "t/one/+": 1})
    sent = [bytes([number % 256]) * (number % 700) for number in range(300)]
    async with peers(sender, receiver):
        assert receiver.said == [("connected", True)]
        for payload in sent:
            assert sender.link.publish("t/zero", b"0" + payload, 0)
            assert sender.link.publish("t/one/x", b"1" + payload, 1)
        await receiver.until(lambda: len(receiver.messages) == 600)
        assert [body[1:] for body in receiver.messages if body[:1] == b"0"] == sent
        assert [body[1:] for body in receiver.messages if body[:1] == b"1"] == sent
        assert ("message", "t/one/x", b"1") in receiver.said


async def test_a_message_is_on_the_wire_one_turn_of_the_loop_later(broker: Mosquitto) -> None:
    sender = Peer(broker.url, "sender")
    async with peers(sender):
        assert sender.link.publish("t", b"x" * 1000)
        assert sender.link.unsent > 1000
        await asyncio.sleep(0)
        assert sender.link.unsent == 0
        transport = sender.link._connection._stream._transport
        plain = transport.get_extra_info("socket")
        assert plain.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


async def test_what_one_turn_publishes_is_written_at_once(
    broker: Mosquitto, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender = Peer(broker.url, "sender")
    receiver = Peer(broker.url, "receiver", subscriptions={"t": 0})
    async with peers(sender, receiver):
        writes: list[int] = []
        stream = sender.link._connection._stream
        write = stream._transport.write
        monkeypatch.setattr(
            stream._transport, "write", lambda data: (writes.append(len(data)), write(data))
        )
        for _ in range(100):
            sender.link.publish("t", bytes(100))
        await receiver.until(lambda: len(receiver.messages) == 100)
        assert len(writes) == 1


async def test_what_cannot_be_sent_is_said_to_be_so() -> None:
    peer = Peer(f"mqtt://127.0.0.1:{free_port()}")
    assert not peer.link.connected
    assert peer.link.unsent == 0
    assert peer.link.publish("t", b"x", 0) is False
    assert peer.link.publish("t", b"x", 1) is False


async def test_nothing_over_the_limit_goes_out_or_comes_in(broker: Mosquitto) -> None:
    receiver = Peer(broker.url, "receiver", subscriptions={"t/#": 1})
    async with peers(receiver):
        with pytest.raises(ValueError, match="at most 262144 bytes, not 262145"):
            receiver.link.publish("t/large", bytes(MAX_MESSAGE + 1))
        assert receiver.link.publish("t/largest", bytes(MAX_MESSAGE), 1)
        await receiver.until(lambda: receiver.messages == [bytes(MAX_MESSAGE)])
        # A stranger without our limit, over the same broker:
        _, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        writer.write(b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x3c\x00\x01s")
        writer.write(publish_packet(b"t/large", bytes(MAX_MESSAGE + 1000), 1, False, 1))
        writer.write(publish_packet(b"t/huge", bytes(3_000_000), 1, False, 2))
        writer.write(publish_packet(b"t/small", b"after", 1, False, 3))
        await receiver.hear("message", "t/small", b"after")
        writer.close()
        assert receiver.kinds() == ["connected", "message", "message"]
        # They were acknowledged, so the broker is done with them.
        assert receiver.link.wire.packets()["sent puback other"] == 4


async def test_a_handler_that_fails_costs_one_message(
    broker: Mosquitto, caplog: pytest.LogCaptureFixture
) -> None:
    receiver = Peer(broker.url, "receiver", subscriptions={"t": 1})

    def handle(topic: str, payload: bytes) -> None:
        if payload == b"bad":
            raise KeyError("a mistake of the application's")
        receiver.say("message", topic, payload)

    receiver.link._on_message = handle
    async with peers(receiver):
        with caplog.at_level(logging.ERROR, "shoal.link"):
            receiver.link.publish("t", b"bad", 1)
            receiver.link.publish("t", b"good", 1)
            await receiver.hear("message", "t", b"good")
        assert "a mistake of the application's" in caplog.text
        assert receiver.messages == [b"good"]


async def test_subscriptions_come_and_go(broker: Mosquitto) -> None:
    peer = Peer(broker.url)
    async with peers(peer):
        await peer.link.subscribe({"t/a": 0, "t/b": 1})
        peer.link.publish("t/a", b"1")
        await peer.hear("message", "t/a", b"1")
        await peer.link.unsubscribe("t/a")
        peer.link.publish("t/a", b"2")
        peer.link.publish("t/b", b"3")
        await peer.hear("message", "t/b", b"3")
        assert peer.messages == [b"1", b"3"]
        assert peer.link.subscriptions == {"t/b": 1}


async def test_messages_wait_until_the_connection_was_announced() -> None:
    async def eager(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_packet(reader)
        writer.write(CONNACK)
        subscribe = await read_packet(reader)
        early = publish_packet(b"t", b"early", 0, True, 0)
        with_it = publish_packet(b"t", b"with it", 0, False, 0)
        writer.write(early + b"\x90\x03" + subscribe[2:4] + b"\0" + with_it)
        await reader.read()

    async with scripted_broker(eager) as url:
        peer = Peer(url, subscriptions={"t": 0})
        async with peers(peer):
            await peer.until(lambda: len(peer.said) == 3)
            assert peer.said == [
                ("connected", True),
                ("message", "t", b"early"),
                ("message", "t", b"with it"),
            ]


async def test_what_comes_before_the_announcement_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("protocol.link.MAX_HELD", 1000)

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_packet(reader)
        writer.write(CONNACK)
        subscribe = await read_packet(reader)
        writer.write(publish_packet(b"t", bytes(99), 0, False, 0) * 1000)
        writer.write(b"\x90\x03" + subscribe[2:4] + b"\0")
        await reader.read()

    async with scripted_broker(flood) as url:
        peer = Peer(url, subscriptions={"t": 0})
        async with peers(peer):
            assert len(peer.messages) == 10


async def test_a_broker_that_does_not_acknowledge_is_not_fed_for_ever() -> None:
    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_packet(reader)
        writer.write(CONNACK)
        await reader.read()

    async with scripted_broker(mute) as url:
        peer = Peer(url)
        async with peers(peer):
            taken = [peer.link.publish("t", b"x", 1) for _ in range(1100)]
            assert taken == [True] * 1024 + [False] * 76
            assert peer.link.publish("t", b"x", 0)


async def test_packet_identifiers_are_not_used_twice_at_once() -> None:
    identifiers: list[int] = []

    async def forgetful(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_packet(reader)
        writer.write(CONNACK)
        while True:
            packet = await read_packet(reader)
            if packet[0] != 0x32:
                continue
            identifier = int.from_bytes(packet[5:7], "big")
            identifiers.append(identifier)
            if len(identifiers) > 1:  # the first is never acknowledged
                writer.write(b"\x40\x02" + packet[5:7])

    async with scripted_broker(forgetful) as url:
        peer = Peer(url)
        async with peers(peer):
            async with asyncio.timeout(DEADLINE):
                for number in range(33_000):
                    while not peer.link.publish("t", b"x", 1):
                        await asyncio.sleep(0)
                    if number % 500 == 0:
                        await asyncio.sleep(0)
            await peer.until(lambda: len(identifiers) == 33_000)
    assert identifiers.count(identifiers[0]) == 1
    assert min(identifiers) == 32768
    assert max(identifiers) == 65535


async def test_a_broker_that_does_not_read_is_not_fed_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_module, "MAX_UNSENT", 2_000_000)

    released = asyncio.Event()
    async with scripted_broker(deaf_until(released)) as url:
        peer = Peer(url)
        async with peers(peer):
            sent = 0
            while peer.link.publish("t", bytes(200_000)) and sent < 1000:
                sent += 1
                await asyncio.sleep(0)
            assert 10 <= sent < 1000
            assert peer.link.unsent < 2_500_000
            peer.link.abort()
            released.set()


async def test_a_broker_that_takes_nothing_is_left_and_a_slow_one_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream_module, "_TICK", 0.05)
    released = asyncio.Event()

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Reads on for longer than any answer may take, and answers no ping meanwhile."""
        await read_packet(reader)
        writer.write(CONNACK)
        while not released.is_set():
            await reader.readexactly(200_000)
            await asyncio.sleep(0.1)
        await reader.read()

    async with scripted_broker(deaf_until(released)) as deaf_url, scripted_broker(slow) as slow_url:
        left, kept = Peer(deaf_url, "left", keepalive=1), Peer(slow_url, "kept", keepalive=1)
        async with peers(left, kept):
            for peer in (left, kept):
                while peer.link.publish("t", bytes(200_000)):
                    await asyncio.sleep(0)
            await left.hear("disconnected", "the broker took nothing for 1 s or more")
            backlog = kept.link.unsent
            await asyncio.sleep(1.5)
            assert 1_000_000 < kept.link.unsent < backlog
            assert kept.said == [("connected", True)]
            released.set()
            kept.link.abort()


# a connection's end, and the next one


async def test_after_kill_9_of_the_broker_all_is_as_before(tmp_path: Path) -> None:
    broker = Mosquitto(tmp_path)
    broker.start()
    try:
        peer = Peer(broker.url, subscriptions={"t/first": 0})
        peer.link._random = Random(1)
        async with peers(peer):
            await peer.link.subscribe({"t/second": 1})
            broker.kill()
            await peer.hear("disconnected", "the broker closed the connection")
            assert not peer.link.connected
            assert not peer.link.publish("t/first", b"lost", 1)
            await peer.until(lambda: peer.kinds().count("retry") >= 2)
            broker.start()
            await peer.hear("connected", False)
            peer.link.publish("t/first", b"1")
            peer.link.publish("t/second", b"2", 1)
            await peer.until(lambda: len(peer.messages) == 2)
            assert peer.messages == [b"1", b"2"]
    finally:
        broker.kill()
    retries = [words for words in peer.said if words[0] == "retry"]
    assert {words[1] for words in retries[1:]} == {"connection refused"}
    assert all(0.1 <= words[2] <= 30.0 for words in retries)
    assert peer.kinds()[0] == "connected"
    assert peer.kinds().count("connected") == 2
    assert peer.kinds().count("disconnected") == 1


async def test_an_unreachable_broker_is_tried_for_ever_and_reported_ever_more_rarely() -> None:
    peer = Peer(f"mqtt://localhost:{free_port()}")
    tries = 0

    def count() -> None:
        nonlocal tries
        tries += 1

    peer.link._on_connecting = count
    began = time.monotonic()
    peer.start()
    await peer.until(lambda: len(peer.said) >= 4)
    assert time.monotonic() - began >= 1.4  # at 0, 0.2, 0.6 and 1.4 s
    assert tries >= 10
    assert {words[:2] for words in peer.said} == {("retry", "connection refused")}
    await peer.link.close()
    assert peer.task is not None
    await asyncio.wait_for(peer.task, 1.0)  # though the next attempt was further away


async def test_an_unknown_host_is_named_as_the_reason() -> None:
    peer = Peer("mqtt://no-such-host.invalid")
    peer.start()
    await peer.until(lambda: len(peer.said) >= 1)
    assert peer.said[0][:2] in (
        ("retry", "the host name is not known"),
        ("retry", "no answer within 10 s"),
    )
    await peer.link.close()


async def test_a_crash_publishes_the_will_and_a_goodbye_does_not(broker: Mosquitto) -> None:
    watcher = Peer(broker.url, "watcher", subscriptions={"will/+": 1})
    crashing = Peer(broker.url, "crashing", will=Will("will/crashing", b"gone", 1))
    leaving = Peer(broker.url, "leaving", will=Will("will/leaving", b"gone", 1))
    cancelled = Peer(broker.url, "cancelled", will=Will("will/cancelled", b"gone", 1))
    async with peers(watcher, crashing, leaving, cancelled):
        leaving.link.publish("will/leaving", b"last words", 0)
        await leaving.link.close()
        assert leaving.task is not None
        await leaving.task
        crashing.link.abort()
        await watcher.hear("message", "will/crashing", b"gone")
        await crashing.hear("disconnected", "cut on our side")
        await crashing.hear("connected", False)
        assert cancelled.task is not None
        cancelled.task.cancel()
        await watcher.hear("message", "will/cancelled", b"gone")
        assert ("message", "will/leaving", b"last words") in watcher.said
        assert ("message", "will/leaving", b"gone") not in watcher.said
        assert leaving.kinds() == ["connected"]


async def test_a_new_connection_may_be_a_new_session(broker: Mosquitto) -> None:
    sessions = iter(range(10))
    watcher = Peer(broker.url, "watcher", subscriptions={"will/+": 1})
    peer = Peer(broker.url)

    def renew() -> None:
        session = next(sessions)
        peer.link.client_id = f"session-{session}"
        peer.link.will = Will(f"will/{session}", b"gone")
        peer.link.subscriptions = {f"in/{session}": 0}

    peer.link._on_connecting = renew
    async with peers(watcher, peer):
        peer.link.abort()
        await watcher.hear("message", "will/0", b"gone")
        await peer.hear("connected", False)
        watcher.link.publish("in/0", b"to the past")
        watcher.link.publish("in/1", b"to the present")
        await peer.until(lambda: peer.messages == [b"to the present"])
        peer.link.abort()
        await watcher.hear("message", "will/1", b"gone")


async def test_a_silent_broker_is_left_and_a_living_one_is_kept(
    broker: Mosquitto, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_module, "_TICK", 0.1)

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_packet(reader)
        writer.write(CONNACK)
        await reader.read()

    async with scripted_broker(silent) as url:
        left, kept = Peer(url, "left", keepalive=1), Peer(broker.url, "kept", keepalive=1)
        async with peers(left, kept):
            await left.hear("disconnected", "the broker was silent for 1 s or more")
            # CONNACK and two answers to pings: mosquitto drops who is silent for 1.5 s.
            await kept.until(lambda: kept.link.wire.packets()["received control"] == 3)
            assert kept.said == [("connected", True)]


async def test_an_answer_that_stands_behind_a_backlog_is_waited_for(
    broker: Mosquitto, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is silent who sends without end."""
    monkeypatch.setattr(stream_module, "_TICK", 0.1)
    with proxied(("127.0.0.1", broker.port)) as proxy:
        kept = Peer(proxy.url, "kept", keepalive=1, subscriptions={"flood": 0})
        source = Peer(broker.url, "source")
        async with peers(kept, source):
            proxy.behave(down=Faults(rate=100_000.0))
            for _ in range(30):
                assert source.link.publish("flood", bytes(10_000))
            await kept.until(lambda: len(kept.messages) == 30)
            assert set(kept.kinds()) == {"connected", "message"}
            proxy.behave(down=Faults(dead=True))
            await kept.hear("disconnected", "the broker was silent for 1 s or more")
            proxy.behave()


async def test_who_leaves_over_a_message_does_not_answer_it_any_more() -> None:
    sent = asyncio.get_running_loop().create_future()

    async def talkative(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(publish_packet(b"a", b"one", 1, False, 1))
        writer.write(publish_packet(b"a", b"two", 1, False, 2))
        sent.set_result(await reader.read())

    async with scripted_broker(talkative) as url:
        stream = stream_module.Stream(lambda topic, payload: stream.leave(), WireCount())
        address = parse_address(url)
        await dial(stream, address, None)
        async with asyncio.timeout(DEADLINE):
            assert await sent == b"\xe0\x00"  # DISCONNECT


async def test_a_broker_that_never_answers_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_module, "OPEN_TIMEOUT", 0.1)

    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def deaf_to_subscriptions(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await read_packet(reader)
        writer.write(CONNACK)
        await reader.read()

    for script in (mute, deaf_to_subscriptions):
        async with scripted_broker(script) as url:
            peer = Peer(url, subscriptions={"t": 0})
            peer.start()
            await peer.until(lambda peer=peer: len(peer.said) >= 2)  # type: ignore[misc]
            assert set(peer.kinds()) == {"retry"}
            await peer.link.close()
            await peer.task


async def test_after_this_machine_slept_the_connection_is_renewed(
    broker: Mosquitto, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_module, "_TICK", 0.05)
    peer = Peer(broker.url)
    async with peers(peer):
        now = clock.now
        monkeypatch.setattr(clock, "now", lambda: now() + 3600.0)
        await peer.until(lambda: "disconnected" in peer.kinds())
        assert "slept or stood still for 360" in str(peer.said[1][1])
        await peer.hear("connected", False)


@pytest.mark.parametrize(("lives", "fresh"), [([0.0, 0.0, 0.0], False), ([0.0, 0.8, 0.0], True)])
async def test_only_a_connection_that_lasts_makes_the_delays_short_again(
    lives: list[float], fresh: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    connections = 0
    aways: list[float] = []

    def a_tenth(away: float, random: Random) -> float:
        aways.append(away)
        return 0.1

    async def drop(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await read_packet(reader)
        writer.write(CONNACK)
        await read_packet(reader)
        await asyncio.sleep(lives[connections - 1])

    monkeypatch.setattr("protocol.link.next_delay", a_tenth)
    monkeypatch.setattr("protocol.link.TOLD_AGAIN", DEADLINE)
    monkeypatch.setattr("protocol.backoff.GOOD_AFTER", 0.6)
    async with scripted_broker(drop) as url:
        peer = Peer(url)
        peer.link._on_connected = lambda first: peer.link.publish("t", b"here I am")
        peer.start()
        await peer.until(lambda: len(aways) == 2)
        await peer.link.close()
    # Another outage is told anew; what goes on is not.
    assert peer.kinds() == ["disconnected", "retry", "disconnected", *["retry"] * fresh]
    assert (aways[1] == 0.0) if fresh else (aways[1] >= aways[0] + 0.1)


async def test_who_is_cut_off_again_and_again_comes_back_ever_more_rarely(
    broker: Mosquitto,
) -> None:
    """A proxy in front of a real broker cuts every connection after its first message."""
    aways: list[float] = []

    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs, ours = await asyncio.open_connection("127.0.0.1", broker.port)
        ours.write(await read_packet(reader))
        writer.write(await theirs.readexactly(4))
        ours.write(await read_packet(reader))
        ours.close()
        await ours.wait_closed()

    class Noting(Impatient):
        def uniform(self, a: float, b: float) -> float:
            aways.append(3.0 * b)
            return 0.01

    async with scripted_broker(cut) as url:
        peer = Peer(url)
        peer.link._random = Noting()
        peer.link._on_connected = lambda first: (
            peer.say("connected", first),
            asyncio.get_running_loop().call_later(0.2, peer.link.publish, "t", b"here I am"),
        )
        peer.start()
        await peer.until(lambda: len(aways) == 8)
        await peer.link.close()
    assert peer.kinds().count("connected") >= 8
    # As if there had been no connection at all: 0.2 s each.
    assert aways[-1] >= 1.5


async def test_two_clients_of_one_identifier_do_not_throw_each_other_out_for_ever(
    broker: Mosquitto,
) -> None:
    first, second = Peer(broker.url, "same", subscriptions={"t": 1}), Peer(broker.url, "same")
    async with peers(first):
        async with peers(second):
            await first.hear("disconnected", "the broker closed the connection")
            await first.hear("connected", False)
            second.link.publish("t", b"both are here", 1)
            await first.hear("message", "t", b"both are here")
            assert second.kinds() == ["connected"]
        assert first.kinds() == ["connected", "disconnected", "retry", "connected", "message"]


async def test_who_speaks_to_a_lost_connection_is_told_so_once(
    broker: Mosquitto, caplog: pytest.LogCaptureFixture
) -> None:
    settings = connection_module.ConnectionSettings(
        parse_address(broker.url), "x", None, None, None, 30
    )
    connection = await Connection.open(settings, lambda topic, payload: None, WireCount())
    connection._stream.abort("gone")
    with pytest.raises(connection_module.ConnectionLostError, match="gone"):
        await connection.subscribe({"t": 0})
    await connection.close()
    assert not caplog.records  # by the exception alone, not by paho's log as well


async def test_a_broker_that_hangs_up_on_the_answer_never_was_there() -> None:
    async def drop(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_packet(reader)
        writer.write(CONNACK)

    async with scripted_broker(drop) as url:
        peer = Peer(url, subscriptions={"t": 0})
        peer.start()
        await peer.until(lambda: len(peer.said) == 3)
        await peer.link.close()
    assert {words[:2] for words in peer.said} == {("retry", "the broker closed the connection")}


async def test_we_introduce_ourselves_as_the_standard_says() -> None:
    introduced: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        introduced.set_result(await read_packet(reader))
        writer.write(CONNACK)
        await reader.read()

    async with scripted_broker(listen) as url:
        url = url.replace("://", "://me:secret@")
        async with peers(Peer(url, "shoal-a-b", will=Will("w", b"gone", 1, True), keepalive=17)):
            pass
    # MQTT 3.1.1, 3.1: level 4; user, password, retained will of QoS 1, clean session; keepalive
    variable = b"\x00\x04MQTT\x04" + bytes([0b11101110]) + b"\x00\x11"
    fields = (b"shoal-a-b", b"w", b"gone", b"me", b"secret")
    body = variable + b"".join(len(part).to_bytes(2, "big") + part for part in fields)
    assert introduced.result() == b"\x10" + bytes([len(body)]) + body


@pytest.mark.parametrize(
    "hostile",
    [
        b"\x30\xff\xff\xff\xff\xff",
        b"\x30\x00",
        b"\x30\x04\x00\x09ab",
        b"\x36\x07\x00\x03abc\x00\x01",
        b"\x34\x07\x00\x01t\x00\x01xy",
        b"\x00\x00",
        b"\x10\x02\x00\x00",
        b"\x40\x03\x00\x00\x00",
        b"\x62\x02\x00\x01",
        b"\x82\x02\x00\x01",
        b"\xf0\x00",
        b"\x90\x00",
        b"\x20\x00",
        b"\xd0\x05hello",
        b"HTTP/1.1 400 Bad Request\r\n" + bytes(100),
    ],
)
async def test_a_hostile_broker_costs_a_connection_at_most(hostile: bytes) -> None:
    attacks = 0

    async def attack(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal attacks
        attacks += 1
        await accept(reader, writer)
        if attacks == 1:
            await read_packet(reader)
            writer.write(hostile)
        else:
            writer.write(publish_packet(b"t", b"honest", 0, False, 0))
        await reader.read()

    async with scripted_broker(attack) as url:
        peer = Peer(url, subscriptions={"t": 0})
        async with peers(peer):
            peer.link.publish("t", b"here I am")
            await peer.hear("message", "t", b"honest")
            assert peer.messages == [b"honest"]
            assert peer.kinds().count("disconnected") == attacks - 1 == 1


async def test_hostile_topics_and_giants_are_passed_over() -> None:
    async def attack(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await accept(reader, writer)
        writer.write(publish_packet(b"\xff\xfe", b"no text", 0, False, 0))
        writer.write(publish_packet(b"t" * 60_000, b"long", 0, False, 0))
        writer.write(publish_packet(b"t" * 65_535, bytes(MAX_PACKET), 1, False, 1))
        writer.write(publish_packet(b"t", b"honest", 0, False, 0))
        await reader.read()

    async with scripted_broker(attack) as url:
        peer = Peer(url, subscriptions={"t": 0})
        async with peers(peer):
            await peer.hear("message", "t", b"honest")
            assert [words[2] for words in peer.said[1:]] == [b"long", b"honest"]


# reasons to stop


async def fatal(peer: Peer) -> FatalLinkError:
    peer.start()
    assert peer.task is not None
    with pytest.raises(FatalLinkError) as caught:
        await asyncio.wait_for(peer.task, DEADLINE)
    assert not peer.link.connected
    return caught.value


async def test_a_broker_that_wants_a_password_says_so_once(tmp_path: Path) -> None:
    passwords = tmp_path / "passwords"
    passwords.touch(mode=0o600)
    salt = bytes(12)
    digest = hashlib.pbkdf2_hmac("sha512", b"right", salt, 101)
    fields = (b"$7$101", base64.b64encode(salt), base64.b64encode(digest))
    passwords.write_bytes(b"me:" + b"$".join(fields) + b"\n")
    broker = Mosquitto(tmp_path, "allow_anonymous false", f"password_file {passwords}")
    broker.start()
    try:
        host = f"127.0.0.1:{broker.port}"
        anonymous = await fatal(Peer(f"mqtt://{host}"))
        assert anonymous.reason == "authorisation"
        assert f"mqtt://{host} does not authorise anonymous clients" in str(anonymous)
        assert "give user:password@" in str(anonymous)
        wrong = await fatal(Peer(f"mqtt://me:hunter2@{host}"))
        assert "user 'me'" in str(wrong)
        assert "hunter2" not in str(wrong)
        async with peers(Peer(f"mqtt://me:right@{host}")):
            pass
    finally:
        broker.kill()


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (1, "protocol"),
        (2, "identifier"),
        (4, "credentials"),
        (5, "authorisation"),
        (77, "protocol"),
    ],
)
async def test_each_refusal_has_its_reason_and_remedy(code: int, reason: str) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_packet(reader)
        writer.write(b"\x20\x02\x00" + bytes([code]))
        await reader.read()

    async with scripted_broker(refuse) as url:
        error = await fatal(Peer(url))
        assert error.reason == reason
        assert str(error).startswith(url)
        assert ": " in str(error).removeprefix(url)


async def test_an_unavailable_broker_is_tried_again() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_packet(reader)
        writer.write(b"\x20\x02\x00\x03" if len(peer.said) < 2 else CONNACK)
        await reader.read()

    async with scripted_broker(refuse) as url:
        peer = Peer(url)
        async with peers(peer):
            assert [words[:2] for words in peer.said[:2]] == [
                ("retry", "the broker says that it is not available")
            ] * 2


async def test_a_refused_subscription_is_a_reason_to_stop() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_packet(reader)
        writer.write(CONNACK)
        subscribe = await read_packet(reader)
        writer.write(b"\x90\x04" + subscribe[2:4] + b"\x00\x80")
        await reader.read()

    async with scripted_broker(refuse) as url:
        error = await fatal(Peer(url, subscriptions={"t/mine": 0, "t/yours": 1}))
        assert error.reason == "subscription"
        assert "t/yours" in str(error)
        assert "t/mine" not in str(error)


# TLS


def certificate(directory: Path) -> tuple[Path, Path]:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "broker")])
    now = datetime.datetime.now(datetime.UTC)
    loopback = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    built = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(loopback, critical=False)
        .sign(key, hashes.SHA256())
    )
    certificate_path, key_path = directory / "certificate.pem", directory / "key.pem"
    certificate_path.write_bytes(built.public_bytes(serialization.Encoding.PEM))
    key_path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return certificate_path, key_path


async def test_tls_is_spoken_and_the_brokers_name_is_proved(tmp_path: Path) -> None:
    certificate_path, key_path = certificate(tmp_path)
    broker = Mosquitto(tmp_path, f"certfile {certificate_path}", f"keyfile {key_path}")
    broker.start()
    try:
        url = f"mqtts://127.0.0.1:{broker.port}"
        trusting = ssl.create_default_context(cafile=str(certificate_path))
        peer = Peer(url, subscriptions={"t": 1}, tls_context=trusting)
        async with peers(peer):
            peer.link.publish("t", bytes(MAX_MESSAGE), 1)
            peer.link.publish("t", b"small", 0)
            await peer.until(lambda: len(peer.messages) == 2)
            assert peer.messages == [bytes(MAX_MESSAGE), b"small"]
        error = await fatal(Peer(url))
        assert error.reason == "certificate"
        assert "trust its certificate authority" in str(error)
        wrong_name = Peer(f"mqtts://localhost:{broker.port}", tls_context=trusting)
        assert (await fatal(wrong_name)).reason == "certificate"
    finally:
        broker.kill()


# the end


async def test_close_ends_a_link_that_is_still_connecting() -> None:
    connected = asyncio.Event()
    left: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_packet(reader)
        connected.set()
        left.set_result(await reader.read())

    async with scripted_broker(mute) as url:
        peer = Peer(url)
        peer.start()
        await asyncio.wait_for(connected.wait(), DEADLINE)
        await peer.link.close()
        assert peer.task is not None
        await asyncio.wait_for(peer.task, 1.0)
        assert await asyncio.wait_for(left, DEADLINE) == b"\xe0\x00"
        assert peer.said == []


async def test_a_cancelled_link_leaves_no_connection_behind() -> None:
    connected = asyncio.Event()
    gone = asyncio.Event()

    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_packet(reader)
        connected.set()
        await reader.read()
        gone.set()

    async with scripted_broker(mute) as url:
        peer = Peer(url)
        peer.start()
        await asyncio.wait_for(connected.wait(), DEADLINE)
        assert peer.task is not None
        peer.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await peer.task
        await asyncio.wait_for(gone.wait(), DEADLINE)


async def test_a_link_cancelled_in_the_moment_of_success_leaves_none_either() -> None:
    gone = asyncio.Event()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_packet(reader)
        writer.write(CONNACK)
        await reader.read()
        gone.set()

    async with scripted_broker(listen) as url:
        peer = Peer(url)
        connect = peer.link._connect

        async def connect_and_cancel() -> Connection:
            connection = await connect()
            assert peer.task is not None
            peer.task.cancel()
            kept.append(connection)
            return connection

        kept: list[Connection] = []
        peer.link._connect = connect_and_cancel  # type: ignore[method-assign]
        peer.start()
        assert peer.task is not None
        with pytest.raises(asyncio.CancelledError):
            await peer.task
        assert len(kept) == 1
        await asyncio.wait_for(gone.wait(), DEADLINE)


async def test_close_bears_a_connection_that_the_broker_has_just_reset(
    broker: Mosquitto, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reset() -> None:
        raise OSError(107, "Transport endpoint is not connected")

    peer = Peer(broker.url)
    async with peers(peer):
        transport = peer.link._connection._stream._transport
        monkeypatch.setattr(transport, "write_eof", reset)
        await asyncio.wait_for(peer.link.close(), 1.0)
    assert peer.said == [("connected", True)]


async def test_close_does_not_wait_for_a_broker_that_does_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_module, "CLOSE_TIMEOUT", 0.1)
    released = asyncio.Event()

    async with scripted_broker(deaf_until(released)) as url:
        peer = Peer(url)
        peer.start()
        await peer.up()
        while peer.link.unsent < 5_000_000:
            peer.link.publish("t", bytes(200_000))
            await asyncio.sleep(0)
        await asyncio.wait_for(peer.link.close(), DEADLINE)
        assert peer.task is not None
        await asyncio.wait_for(peer.task, DEADLINE)
        released.set()


def test_client_identifiers_are_unique_per_session() -> None:
    assert client_id("abcdefghijklmnop", "qrs234") == "shoal-abcdefghijklmnop-qrs234"


# the count of bytes


async def test_the_count_is_what_a_proxy_saw_pass(broker: Mosquitto) -> None:
    seen = {"sent": 0, "received": 0}

    async def relay(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: str
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                seen[direction] += len(data)
                writer.write(data)
        writer.close()

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", broker.port)
        await asyncio.gather(
            relay(reader, upstream_writer, "sent"), relay(upstream_reader, writer, "received")
        )

    run, worker, session = "cartpole-1a2b3c4d", "abcdefghijklmnop", "qrs234"
    base = f"shoal/1/{run}"
    results, inbox = f"{base}/results/{worker}/{session}", f"{base}/in/{worker}/{session}"
    async with scripted_broker(proxy) as url:
        counted = Peer(url, "counted", subscriptions={f"{base}/results/+/+": 1})
        other = Peer(broker.url, "other", subscriptions={inbox: 0, f"{base}/update": 0})
        wire = counted.link.wire
        async with peers(counted, other):
            for number in range(1, 51):
                counted.link.publish(inbox, bytes(number))
                counted.link.publish(f"{base}/update", bytes(10 * number))
                other.link.publish(results, bytes(100 * number), 1)
            counted.link.publish(f"{base}/epoch", b"epoch", 1, retain=True)
            counted.link.publish(results, bytes(MAX_MESSAGE), 1)
            await counted.until(lambda: len(counted.messages) == 51)
            await other.until(lambda: len(other.messages) == 100)
            await counted.until(lambda: wire.packets().get("received puback epoch") == 1)
            packets = wire.packets()
            counted.link.abort()
            await counted.hear("connected", False)
            # What says nothing only tries the broker, and is of no class.
            counted.link.publish(f"{base}/epoch", b"", 1, retain=True)
            await counted.until(lambda: wire.packets().get("received puback other") == 1)
        async with asyncio.timeout(DEADLINE):
            while seen != {"sent": wire.total("sent"), "received": wire.total("received")}:
                await asyncio.sleep(0.01)
    assert packets["sent publish in"] == packets["sent publish update"] == 50
    assert packets["received publish results"] == packets["sent puback results"] == 51
    assert packets["sent publish results"] == packets["received puback results"] == 1
    bytes_of = wire.snapshot()
    overhead = 2 + 2 + len(inbox)
    assert bytes_of["sent publish in"] == sum(overhead + size for size in range(1, 51))
    assert wire.episode_bytes() == sum(
        total for name, total in bytes_of.items() if name.split()[-1] in ("in", "results", "update")
    )


async def test_an_acknowledgement_from_a_connection_before_counts_for_nothing() -> None:
    first: list[bytes] = []

    async def forget(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_packet(reader)
        writer.write(CONNACK)
        if not first:
            first.append(await read_packet(reader))
            return
        identifier_at = 4 + int.from_bytes(first[0][2:4], "big")
        writer.write(b"\x40\x02" + first[0][identifier_at : identifier_at + 2])
        await reader.read()

    async with scripted_broker(forget) as url:
        peer = Peer(url)
        wire = peer.link.wire
        async with peers(peer):
            peer.link.publish("shoal/1/cartpole-1a2b3c4d/epoch", b"e", 1)
            await peer.until(lambda: wire.packets().get("received puback other") == 1)
            assert "received puback epoch" not in wire.snapshot()


async def test_it_knows_after_how_long_the_broker_answers(broker: Mosquitto) -> None:
    """Pings and messages of QoS 1 tell it: as the last answer came, or longer while one is due."""
    with proxied(("127.0.0.1", broker.port)) as proxy:
        peer = Peer(proxy.url, keepalive=60)
        assert peer.link.answers_after == 0.0
        peer.link.ping()  # there is nobody to ask
        async with peers(peer):
            proxy.behave(up=Faults(latency=0.15), down=Faults(latency=0.15))
            for ask in (peer.link.ping, lambda: peer.link.publish("x/far", b"", 1)):
                ask()
                await peer.until(lambda: not waits_for_broker(peer))
                assert 0.3 <= peer.link.answers_after < DEADLINE
                proxy.behave()
                peer.link.ping()
                await peer.until(lambda: peer.link.answers_after < 0.15)
                proxy.behave(up=Faults(latency=0.15), down=Faults(latency=0.15))
            proxy.behave(up=Faults(dead=True))
            for _ in range(3):
                peer.link.ping()
            await peer.until(lambda: peer.link.answers_after > 0.5)
            assert len(stream_of(peer)._pings) == 1, "one at a time"
            proxy.behave()
            await peer.until(lambda: not waits_for_broker(peer))


def stream_of(peer: Peer) -> stream_module.Stream:
    assert peer.link._connection is not None
    return peer.link._connection._stream


def waits_for_broker(peer: Peer) -> bool:
    return bool(stream_of(peer)._pings or stream_of(peer).unacknowledged)


async def test_a_link_survives_a_storm_of_cuts(broker: Mosquitto) -> None:
    peer = Peer(broker.url, subscriptions={"t": 1})
    async with peers(peer):
        for round_number in range(10):
            peer.link.abort()
            await peer.until(lambda: peer.kinds().count("connected") == round_number + 2)  # noqa: B023
            body = b"%d" % round_number
            peer.link.publish("t", body, 1)
            await peer.hear("message", "t", body)
