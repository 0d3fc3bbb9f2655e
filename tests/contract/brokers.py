"""The brokers that a test can have: those that Shoal starts, mosquitto's WebSockets, and others."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from coordinator.broker import BrokerLimits, Rules
from coordinator.broker.embedded import EmbeddedBroker
from coordinator.broker.mosquitto import MosquittoBroker, configuration, find_mosquitto
from coordinator.broker.tls import own
from protocol import topics
from tests.contract.raw import DEADLINE
from tests.protocol.mosquitto import Mosquitto, free_port

KINDS = ("embedded", "mosquitto")
"""That Shoal starts."""
CONTRACT = (*KINDS, "embedded-tls", "mosquitto-tls", "mosquitto-ws")
"""Of ours with TLS and rules everybody here is a key that may lead."""
_PIECES = "mosquitto 2.0.11 sends a WebSocket 4 KiB each 0.1 s"
_UNLIMITED = "mosquitto 2.0.11 holds no WebSocket to this limit"
FAULTS = {
    ("mosquitto-ws", "test_the_largest_lawful_packet_passes"): _PIECES,
    ("mosquitto-ws", "test_a_subscriber_that_does_not_read_harms_no_one"): _PIECES,
    ("mosquitto-ws", "test_an_oversized_packet_ends_its_connection_before_it_takes_memory"): (
        _UNLIMITED
    ),
    ("mosquitto-ws", "test_connections_are_limited_and_places_come_back"): _UNLIMITED,
}
"""What a broker of others does not do, in the words of `docs/operating.md`."""
OTHERS = os.environ.get("SHOAL_CONTRACT_BROKER", "").split()
"""URLs of a broker that is there already, or of the nodes of a cluster: it is tested instead."""
RESTART = os.environ.get("SHOAL_CONTRACT_RESTART", "")
"""A shell command that stops and starts it."""

LEADER = "c" * 16
RULES = Rules(leaders=frozenset((LEADER,)))
ALL = f"{topics.PREFIX}/#"

Restart = Callable[[signal.Signals], Awaitable[None]]


@dataclass(frozen=True)
class Served:
    """A broker that runs.

    Attributes:
        urls: of its nodes; clients go to one after the other.
        host: its URL for the coordinator.
        everything: the widest filter that clients may have.
        process_id: of the process that it is in now; 0 where that can't be told.
        restart: ends it as a signal does, and starts it at the same address.
    """

    urls: tuple[str, ...]
    host: str
    everything: str
    process_id: Callable[[], int]
    restart: Restart | None


def require(kind: str) -> None:
    """Skip the test where `kind` is not installed, or fail it where all brokers are required."""
    if kind.startswith("mosquitto") and find_mosquitto() is None:
        if os.environ.get("SHOAL_REQUIRE_BROKERS") == "1":
            pytest.fail("mosquitto is not installed, and SHOAL_REQUIRE_BROKERS=1")
        pytest.skip("mosquitto is not installed")


@asynccontextmanager
async def served(kind: str, directory: Path, limits: BrokerLimits) -> AsyncIterator[Served]:
    """Run a broker of `CONTRACT` on a free port of the loopback, or take the one that is there."""
    if kind == "other":
        restart = _by_command if RESTART else None
        yield Served(tuple(OTHERS), OTHERS[0], "#", lambda: 0, restart)
    elif kind == "mosquitto-ws":
        with _websockets(directory, limits) as (url, process_id, restart):
            yield Served((url,), url, "#", process_id, restart)
    else:
        name, _, secured = kind.partition("-")
        tls = own(directory, ["127.0.0.1"]) if secured else None
        rules = RULES if secured else None
        if name == "embedded":
            embedded = EmbeddedBroker("127.0.0.1", 0, limits, tls, rules)

            async def again(number: signal.Signals) -> None:
                await embedded.__aexit__(None, None, None)
                await embedded.__aenter__()

            async with embedded:
                yield _ours(embedded, bool(secured), os.getpid, again)
        else:
            managed = MosquittoBroker("127.0.0.1", 0, limits, directory, tls, rules)

            def process_id() -> int:
                return managed.process_id or 0

            async def kill(number: signal.Signals) -> None:
                before = process_id()
                os.kill(before, number)
                async with asyncio.timeout(DEADLINE):
                    while process_id() in (0, before):
                        await asyncio.sleep(0.01)

            async with managed:
                yield _ours(managed, bool(secured), process_id, kill)


def _ours(
    broker: EmbeddedBroker | MosquittoBroker,
    secured: bool,
    process_id: Callable[[], int],
    restart: Restart,
) -> Served:
    public = broker.public("127.0.0.1")
    if secured:
        public = public.replace("://", f"://{LEADER}@")
    return Served((public,), broker.url, ALL if secured else "#", process_id, restart)


@contextmanager
def _websockets(
    directory: Path, limits: BrokerLimits
) -> Iterator[tuple[str, Callable[[], int], Restart]]:
    """A mosquitto that takes WebSockets, within the limits of one that we manage.

    It wants another listener beside (2.0.11), and without `socket_domain` listens everywhere.
    """
    broker = Mosquitto(directory)
    user = [line for line in broker.configuration.read_text().splitlines() if line[:5] == "user "]
    ours = configuration(directory, "127.0.0.1", broker.port, limits)
    lines = [ours, "protocol websockets", "socket_domain ipv4"]
    lines += [f"listener {free_port()} 127.0.0.1", *user, ""]
    broker.configuration.write_text("\n".join(lines))

    def process_id() -> int:
        return broker.process.pid if broker.process else 0

    async def restart(number: signal.Signals) -> None:
        assert broker.process is not None
        broker.process.send_signal(number)
        await asyncio.to_thread(broker.process.wait, DEADLINE)
        await asyncio.to_thread(broker.start)

    broker.start()
    try:
        yield f"ws://127.0.0.1:{broker.port}", process_id, restart
    finally:
        broker.kill()


async def _by_command(number: signal.Signals) -> None:
    process = await asyncio.create_subprocess_shell(
        RESTART, env={**os.environ, "SIGNAL": number.name.removeprefix("SIG")}
    )
    assert await process.wait() == 0
