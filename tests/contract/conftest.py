"""Every test of the contract runs against every broker that Shoal can start."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from coordinator.broker import BrokerLimits, open_broker
from coordinator.broker.mosquitto import MosquittoBroker
from tests.contract.brokers import KINDS, require
from tests.contract.raw import Message, RawClient

LIMITS = BrokerLimits(
    queue_bytes=1024 * 1024, units_per_second=1_000_000, connections=40, connect_seconds=0.5
)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Name a broker that is installed."""
    require(request.param)
    return str(request.param)


class Broker:
    """The broker under test and the clients that a test has made."""

    def __init__(self, kind: str, url: str, process_id: int, clients: AsyncExitStack) -> None:
        self.kind = kind
        self.url = url
        self._process_id = process_id
        self._clients = clients

    async def open(self) -> RawClient:
        """Return a TCP connection that has said nothing."""
        return self._kept(await RawClient.open(self.url))

    async def client(
        self, client_id: str, keepalive: int = 60, will: Message | None = None
    ) -> RawClient:
        """Return a connected client."""
        return self._kept(await RawClient.connect(self.url, client_id, keepalive, will))

    async def subscriber(self, client_id: str, topic_filter: str, qos: int = 1) -> RawClient:
        """Return a connected client with one subscription."""
        client = await self.client(client_id)
        assert await client.subscribe(topic_filter, qos) == qos
        return client

    def memory(self) -> int:
        """Return the resident bytes of the process that the broker is in."""
        pages = int(Path(f"/proc/{self._process_id}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def _kept(self, client: RawClient) -> RawClient:
        self._clients.callback(client.abort)
        return client


@pytest.fixture
async def broker(kind: str, tmp_path: Path) -> AsyncIterator[Broker]:
    """Run a broker of `kind` with small limits on a free port of the loopback."""
    async with (
        open_broker(kind, log_directory=tmp_path, limits=LIMITS) as running,
        AsyncExitStack() as clients,
    ):
        process_id = os.getpid()
        if isinstance(running, MosquittoBroker):
            assert running.process_id is not None
            process_id = running.process_id
        yield Broker(kind, running.url, process_id, clients)
