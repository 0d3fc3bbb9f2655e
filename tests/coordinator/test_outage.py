"""The coordinator's own outages, over a real broker: no worker is to blame for them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.state import params_hash
from tests.coordinator.runs import led, spec_of, states_of
from tests.coordinator.scripted import DEADLINE
from tests.protocol.mosquitto import Mosquitto

SPEC = spec_of(pool={"lease_floor": 0.4}, stop={"updates": 4})


@contextlib.contextmanager
def mosquitto(directory: Path) -> Iterator[Mosquitto]:
    broker = Mosquitto(directory)
    broker.start()
    try:
        yield broker
    finally:
        broker.kill()


def blames(lines: list[str]) -> list[str]:
    return [line for line in lines if "ran out" in line or "silent for" in line]


async def test_while_the_broker_is_away_no_lease_runs_out(tmp_path: Path) -> None:
    with mosquitto(tmp_path) as broker:
        async with led(SPEC, tmp_path, broker.url) as run, run.worker(pause_at=2) as worker:
            await worker.until(lambda: worker.version == 2 and bool(worker.held))
            broker.kill()
            async with asyncio.timeout(DEADLINE):
                while not any(line.startswith("broker lost") for line in run.lines):
                    await asyncio.sleep(0.01)
            await asyncio.sleep(1.5)
            assert blames(run.lines) == []
            broker.start()
            async with asyncio.timeout(DEADLINE):
                while not (run.server._connected.is_set() and worker.link.connected):
                    await asyncio.sleep(0.01)
            worker.say_hello()
            worker.resume()
            outcome = await run.outcome()
            assert blames(run.lines) == []
    assert outcome.params_hash == params_hash(states_of(SPEC, 4)[-1].theta)


async def test_a_host_that_stood_still_blames_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coordinator.server.STALL_SECONDS", 0.6)
    with mosquitto(tmp_path) as broker:
        async with led(SPEC, tmp_path, broker.url) as run, run.worker(pause_at=2) as worker:
            await worker.until(lambda: worker.version == 2 and bool(worker.held))
            time.sleep(1.5)
            await asyncio.sleep(0.3)
            assert blames(run.lines) == []
            worker.resume()
            outcome = await run.outcome()
    assert outcome.params_hash == params_hash(states_of(SPEC, 4)[-1].theta)
