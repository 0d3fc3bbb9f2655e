"""When a host is told to take another broker than the embedded one."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from coordinator.broker import advice, provide
from coordinator.broker.advice import CROWDED, FIRM_AFTER, LATE, WAITING, Advice, Load
from coordinator.directory import BrokerChoice
from tests.contract.raw import RawClient

LOADS = [
    (Load(connected=CROWDED), "80 clients are connected"),
    (Load(late=LATE), "it is 0.5 s behind"),
    (Load(waiting=2 * WAITING), "2.1 MB wait for clients"),
]


@pytest.mark.parametrize(("load", "words"), LOADS)
def test_what_lasts_is_told_once(load: Load, words: str) -> None:
    asked = Advice("do this")
    said = [asked.look(load, now) for now in (0.0, FIRM_AFTER - 0.1)]
    assert said == ["", ""]
    assert asked.look(load, FIRM_AFTER) == (
        f"the embedded broker is good for about 100 workers, and {words}: do this"
    )
    assert not any(asked.look(load, FIRM_AFTER + now) for now in range(1000))


def test_what_passes_is_not_told() -> None:
    asked = Advice("do this")
    for number in range(100):
        loads = [load for load, _ in LOADS] if number % 5 else [Load(connected=CROWDED - 1)]
        assert not any(asked.look(load, number + 0.1 * at) for at, load in enumerate(loads))


async def test_a_host_with_many_workers_is_told_of_mosquitto(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(advice, "CROWDED", 3)
    monkeypatch.setattr(advice, "FIRM_AFTER", 0.1)
    monkeypatch.setattr(provide, "LOAD_SECONDS", 0.02)
    told: asyncio.Queue[str] = asyncio.Queue()
    choice = BrokerChoice(broker="embedded", port=0)
    async with AsyncExitStack() as stack:
        provided = await stack.enter_async_context(
            provide.provide(choice, tmp_path, (), tell=told.put_nowait)
        )
        clients = [await RawClient.connect(provided.public, name) for name in "ab"]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await told.get()
        clients.append(await RawClient.connect(provided.public, "c"))
        async with asyncio.timeout(8.0):
            line = await told.get()
        assert "3 clients are connected" in line
        assert f"shoal host --resume {tmp_path} --broker mosquitto" in line
        for client in clients:
            client.abort()
