"""A broker that strangers reach: TLS, and for each the topics that are theirs, on both of ours.

The broker says nothing about a message that it drops; that nothing came is proved by what was sent
after it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from coordinator.broker import BrokerLimits, Rules, mosquitto, open_broker
from coordinator.broker.mosquitto import MosquittoBroker
from coordinator.broker.rules import HOST
from coordinator.broker.tls import own
from protocol import topics
from tests.contract.raw import CONNACK, Message, RawClient, connect_packet

RUN = "cartpole-1a2b3c4d"
ANN, BOB, SECOND = "a" * 16, "b" * 16, "c" * 16
SESSION = "aaaaaa"
LIMITS = BrokerLimits(connections=20, connect_seconds=0.5)
RULES = Rules(leaders=frozenset((SECOND,)))


class Secured:
    """The broker, by the host's URL and by that of strangers."""

    def __init__(self, host: str, public: str, broker: object, stack: contextlib.AsyncExitStack):
        self.url = host
        self.public = public
        self.broker = broker
        self.host_has_a_door = isinstance(broker, MosquittoBroker)
        self._stack = stack

    async def host(self) -> RawClient:
        return self._kept(await RawClient.connect(self.url, "host"))

    async def stranger(
        self, name: str, will: Message | None = None, keepalive: int = 60, client_id: str = ""
    ) -> RawClient:
        url = self.public.partition("#")[0]
        client_id = client_id or f"stranger-{name}"
        return self._kept(await RawClient.connect(url, client_id, keepalive, will, name))

    def _kept(self, client: RawClient) -> RawClient:
        self._stack.callback(client.abort)
        return client


@pytest.fixture
async def secured(kind: str, tmp_path: Path) -> AsyncIterator[Secured]:
    tls = own(tmp_path, ["127.0.0.1"])
    async with (
        open_broker(kind, log_directory=tmp_path, limits=LIMITS, tls=tls, rules=RULES) as broker,
        contextlib.AsyncExitStack() as clients,
    ):
        yield Secured(broker.url, broker.public("127.0.0.1"), broker, clients)


async def test_each_says_and_reads_what_is_theirs(secured: Secured) -> None:
    host = await secured.host()
    for name in topics.coordinator_filters(RUN):
        assert await host.subscribe(name, 1) == 1
    ann, bob = await secured.stranger(ANN), await secured.stranger(BOB)
    for client, worker in ((ann, ANN), (bob, BOB)):
        for name, qos in topics.worker_filters(RUN, worker, SESSION).items():
            assert await client.subscribe(name, qos) == qos
    forbidden = [
        topics.results(RUN, ANN, SESSION),  # in another's name
        topics.request(RUN, ANN, SESSION),
        topics.status(RUN, ANN, SESSION),
        topics.inbox(RUN, ANN, SESSION),  # in the coordinator's
        topics.epoch(RUN),
        topics.beat(RUN),
        topics.update(RUN),
        topics.HERE,
        "elsewhere",
    ]
    for topic in forbidden:
        await bob.publish(topic, b"forged", qos=1, retain=topic == topics.epoch(RUN))
    eve = await secured.stranger(BOB, Message(topics.beat(RUN), b"forged", 0, False), 60, "eve")
    eve.abort()
    own_topics = [kind(RUN, BOB, SESSION) for kind in (topics.request, topics.results)]
    own_topics += [topics.status(RUN, BOB, SESSION), topics.WHO]
    for topic in own_topics:
        await bob.publish(topic, b"mine", qos=1)
        assert await host.message() == Message(topic, b"mine", 1, False)
    # What all read, what one reads, and what peers hand each other.
    await host.publish(topics.epoch(RUN), b"led", qos=1, retain=True)
    await host.publish(topics.inbox(RUN, ANN, SESSION), b"task", qos=1)
    await bob.publish(topics.ask(RUN, topics.ALL, f"{BOB}-{SESSION}"), b"asked", qos=1)
    chunk = topics.snapshot(RUN, f"{BOB}-{SESSION}", f"{ANN}-{SESSION}")
    await bob.publish(chunk, b"chunk", qos=1)
    assert [(await ann.message()).payload for _ in range(4)] == [
        b"led",
        b"task",
        b"asked",
        b"chunk",
    ]
    await bob.ping()
    assert [message.payload for message in bob.messages] == [b"led", b"asked"]


async def test_nobody_reads_what_is_for_others(secured: Secured) -> None:
    host, bob = await secured.host(), await secured.stranger(BOB)
    for name in ("#", f"shoal/1/{RUN}/#", topics.inbox(RUN, ANN, SESSION), f"shoal/1/{RUN}/in/+/+"):
        await bob.subscribe(name, 1)
    nobody = await RawClient.connect(secured.public.partition("#")[0], "nobody")
    await nobody.subscribe(topics.results(RUN, BOB, SESSION), 1)
    await host.publish(topics.inbox(RUN, ANN, SESSION), b"task", qos=1)
    await bob.publish(topics.results(RUN, BOB, SESSION), b"returns", qos=1)
    await bob.ping()
    await nobody.ping()
    assert (bob.messages, nobody.messages) == ([], [])
    nobody.abort()


async def test_the_host_proves_itself_and_appointed_leaders_may_lead(secured: Secured) -> None:
    with pytest.raises(PermissionError):
        await RawClient.connect(secured.url.replace(RULES.password, "wrong"), "eve")
    if secured.host_has_a_door:  # where strangers come in, its name is one like any other
        named = await secured.stranger(HOST)
        await named.subscribe(f"shoal/1/{RUN}/results/+/+", 1)
        bob = await secured.stranger(BOB)
        await bob.publish(topics.results(RUN, BOB, SESSION), b"returns", qos=1)
        await named.ping()
        assert named.messages == []
    second = await secured.stranger(SECOND)
    assert await second.subscribe(f"shoal/1/{RUN}/results/+/+", 1) == 1
    ann = await secured.stranger(ANN)
    await ann.publish(topics.results(RUN, ANN, SESSION), b"returns", qos=1)
    assert (await second.message()).payload == b"returns"
    await ann.subscribe(topics.beat(RUN), 0)
    await second.publish(topics.beat(RUN), b"beat", qos=1)
    assert (await ann.message()).payload == b"beat"


async def test_who_speaks_no_tls_is_not_answered(secured: Secured) -> None:
    address = secured.public.partition("#")[0].replace("mqtts://", "mqtt://")
    clear = await RawClient.open(address)
    clear.writer.write(connect_packet("clear"))
    with contextlib.suppress(ConnectionError):
        assert not (await clear.reader.read()).startswith(bytes((CONNACK, 2)))
    ann = await secured.stranger(ANN)
    await ann.ping()


async def test_what_is_retained_outlives_a_mosquitto_that_was_ended(
    secured: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    if not isinstance(secured.broker, MosquittoBroker):
        pytest.skip("the embedded broker ends with its host")
    host = await secured.host()
    await host.publish(topics.epoch(RUN), b"led", qos=1, retain=True)
    before = secured.broker.process_id
    assert before is not None
    os.kill(before, signal.SIGTERM)
    await host.until_closed()
    async with asyncio.timeout(8.0):
        while secured.broker.process_id in (None, before):
            await asyncio.sleep(0.01)
    ann = await secured.stranger(ANN)
    await ann.subscribe(topics.epoch(RUN), 1)
    assert await ann.message() == Message(topics.epoch(RUN), b"led", 1, True)
    assert await secured.host()


async def test_what_strangers_want_retained_fills_no_broker(
    secured: Secured, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(mosquitto, "_MOST_MEMORY_BYTES", 48 << 20)
    ann = await secured.stranger(ANN)
    for number in range(240):
        topic = topics.status(RUN, ANN, f"aaa{number:03}".translate(LETTERS))
        try:
            await ann.publish(topic, bytes(250_000), retain=True)
        except ConnectionError:
            break  # it was ended while it was being told
        if ann.reader.at_eof():
            break
    if isinstance(secured.broker, MosquittoBroker):
        await ann.until_closed()  # with all the others: they come again
    else:
        await ann.ping()
    host = await _patiently(secured.host)
    await host.subscribe(f"{topics.PREFIX}/{RUN}/status/+/+", 1)
    await host.publish(topics.status(RUN, ANN, SESSION), b"now", qos=1)
    assert await host.message() == Message(topics.status(RUN, ANN, SESSION), b"now", 1, False)
    assert "Traceback" not in caplog.text


async def test_a_mosquitto_that_can_not_read_what_it_retained_starts_without(
    secured: Secured,
) -> None:
    if not isinstance(secured.broker, MosquittoBroker):
        pytest.skip("the embedded broker keeps nothing on disk")
    before, folder = secured.broker.process_id, secured.broker._folder
    assert before is not None and folder is not None
    (folder / "mosquitto.db").write_bytes(b"not what it wrote" * 100)
    os.kill(before, signal.SIGKILL)
    assert await _patiently(secured.host)


LETTERS = str.maketrans("0123456789", "qrstuvwxyz")


async def _patiently(connect: Callable[[], Awaitable[RawClient]]) -> RawClient:
    """A connection to a broker that is just being started again."""
    async with asyncio.timeout(15.0):
        while True:
            with contextlib.suppress(OSError, EOFError):
                return await connect()
            await asyncio.sleep(0.05)
