"""Every test of the contract runs against every broker that Shoal can start, and some others."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from itertools import cycle
from pathlib import Path

import pytest

from coordinator.broker import BrokerLimits
from tests.contract.brokers import CONTRACT, FAULTS, KINDS, OTHERS, Served, require, served
from tests.contract.raw import Message, RawClient

LIMITS = BrokerLimits(
    queue_bytes=1024 * 1024, units_per_second=1_000_000, connections=40, connect_seconds=0.5
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """What needs a `broker` gets each of the contract, or the one that is there instead."""
    if "kind" in metafunc.fixturenames:
        every = ("other",) if OTHERS else CONTRACT
        kinds = every if "broker" in metafunc.fixturenames else KINDS
        test = metafunc.definition.originalname
        marks = [
            pytest.mark.skip(FAULTS[one, test]) if (one, test) in FAULTS else () for one in kinds
        ]
        params = [pytest.param(one, marks=mark) for one, mark in zip(kinds, marks, strict=True)]
        metafunc.parametrize("kind", params, indirect=True)


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> str:
    """Name a broker that is installed."""
    require(request.param)
    return str(request.param)


class Broker:
    """The broker under test and the clients that a test has made."""

    def __init__(self, kind: str, served: Served, clients: AsyncExitStack) -> None:
        self.kind = kind
        self.served = served
        self._urls = cycle(served.urls)
        self._clients = clients

    @property
    def url(self) -> str:
        """Where the next client goes."""
        return next(self._urls)

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
        """Return the resident bytes of the process that the broker is in; 0 of another machine."""
        process_id = self.served.process_id()
        if not process_id:
            return 0
        pages = int(Path(f"/proc/{process_id}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def _kept(self, client: RawClient) -> RawClient:
        self._clients.callback(client.abort)
        return client


@pytest.fixture
async def broker(kind: str, tmp_path: Path) -> AsyncIterator[Broker]:
    """Run a broker of `kind` with small limits on a free port of the loopback."""
    async with served(kind, tmp_path, LIMITS) as running, AsyncExitStack() as clients:
        yield Broker(kind, running, clients)
