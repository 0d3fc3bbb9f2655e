"""Who is thrown out by another client of its identifier comes back under a new one."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random

from protocol.address import parse_address
from protocol.link import Link
from tests.contract.conftest import Broker

DEADLINE = 10.0


class Impatient(Random):
    def uniform(self, a: float, b: float) -> float:
        return 0.01


async def test_a_link_yields_a_contested_identifier_and_works_on(broker: Broker) -> None:
    heard: asyncio.Queue[bytes] = asyncio.Queue()
    connections = asyncio.Queue[bool]()
    link = Link(
        parse_address(broker.url),
        client_id="contested",
        on_message=lambda topic, payload: heard.put_nowait(payload),
        on_connected=connections.put_nowait,
        subscriptions={"shoal/1/t": 1},
        random=Impatient(),
    )
    running = asyncio.ensure_future(link.run())
    try:
        async with asyncio.timeout(DEADLINE):
            assert await connections.get()
            other = await broker.client("contested")
            assert not await connections.get()
            await other.publish("shoal/1/t", b"both are here", qos=1)
            assert await heard.get() == b"both are here"
            await other.ping()
            assert link.connected and connections.empty()
    finally:
        await link.close()
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
