"""A run is announced while its host leads, where it may be, and no host fails for want of it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from coordinator import hosted
from coordinator.announcing import announcing
from coordinator.directory import BrokerChoice
from protocol.address import parse_address
from protocol.nearby import NETWORK, Nearby
from worker.nearby import look_around

DEADLINE = 30.0
URL = "mqtts://127.0.0.1:8883/announcing-1a2b3c4d#" + "a" * 26 + "." + "e" * 26
WHAT = Nearby(parse_address(URL), "Announcing-v0")


async def seen(*, there: bool) -> bool:
    """Whether, within a while, it is announced, or not any more."""
    until = time.monotonic() + DEADLINE
    while time.monotonic() < until:
        if (WHAT in await look_around(0.6)) == there:
            return True
    return False


async def test_it_is_announced_from_its_begin_to_its_end() -> None:
    said: list[str] = []
    async with announcing(WHAT, "0.0.0.0", said.append) as begin:
        assert WHAT not in await look_around(0.6)
        begin()
        begin()
        assert await seen(there=True)
    assert await seen(there=False)
    assert said == []


async def test_where_it_can_not_be_announced_a_line_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(NETWORK, "203.0.113.9")  # no address of this machine
    said: list[str] = []
    async with announcing(WHAT, "0.0.0.0", said.append) as begin:
        begin()
        async with asyncio.timeout(DEADLINE):
            while not said:
                await asyncio.sleep(0.01)
    (line,) = said
    assert line.startswith("not announced on the local network (")
    assert "the join line works as ever" in line


@pytest.mark.parametrize(
    ("choice", "wanted", "announced"),
    [
        (BrokerChoice(bind="0.0.0.0"), True, True),
        (BrokerChoice(bind="0.0.0.0"), False, False),
        (BrokerChoice(bind="127.0.0.1"), True, False),
        (BrokerChoice(broker="mqtt://broker:1883", bind="0.0.0.0"), True, False),
    ],
)
async def test_only_a_broker_of_ours_that_others_reach_is_announced(
    choice: BrokerChoice,
    wanted: bool,
    announced: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Nearby] = []

    class Announcing:
        def __init__(self, what: Nearby, bind: str, say: Any) -> None:
            self.what = what

        async def __aenter__(self) -> Any:
            return lambda: asked.append(self.what)

        async def __aexit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr("coordinator.announcing.announcing", Announcing)
    run: Any = SimpleNamespace(
        id="announcing-1a2b3c4d",
        root=b"\1" * 32,
        directory=SimpleNamespace(path=tmp_path),
        spec=SimpleNamespace(environment=SimpleNamespace(id="Announcing-v0")),
    )
    provided: Any = SimpleNamespace(choice=choice, public="mqtts://host:password@192.0.2.7:8883")
    console = cast(Any, SimpleNamespace(say=lambda text: None))
    async with hosted._announcing(run, provided, wanted, console) as begin:
        begin()
    assert [what.environment for what in asked] == ["Announcing-v0"] * announced
    assert all(what.asks is False and what.address.run == run.id for what in asked)
