"""The broker of a run is ended and comes back: nothing that was said meanwhile is lost."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from protocol.state import params_hash
from tests.contract.conftest import Broker
from tests.coordinator.runs import led, spec_of, states_of
from tests.coordinator.scripted import DEADLINE, ScriptedWorker

SPEC = spec_of(stop={"updates": 3})
BACK_WITHIN = {"other": 180.0}
"""Seconds, where it may be longer than anything else: a cluster elects who knows its clients."""


async def test_a_result_published_during_an_outage_arrives(broker: Broker, tmp_path: Path) -> None:
    """First the broker ends as it should, then it is killed."""
    if broker.served.restart is None:
        pytest.skip("nobody says how to restart it: SHOAL_CONTRACT_RESTART")
    async with (
        led(SPEC, tmp_path / "host", broker.served.host) as run,
        ScriptedWorker(broker.url, run.run_id, pause_at=0) as worker,
    ):
        for version, number in enumerate((signal.SIGTERM, signal.SIGKILL)):
            await worker.until(lambda at=version: worker.version == at and bool(worker.held))
            restarting = asyncio.ensure_future(broker.served.restart(number))
            async with asyncio.timeout(DEADLINE):
                while worker.link.connected:
                    await asyncio.sleep(0.001)
            worker.pause_at = version + 1
            worker.begin()
            names = list(worker.unanswered)
            assert names and not worker.link.connected
            await restarting
            async with asyncio.timeout(BACK_WITHIN.get(broker.kind, DEADLINE)):
                while not (run.server._connected.is_set() and worker.link.connected):
                    await asyncio.sleep(0.001)
            worker.say_hello()
            await worker.until(lambda sent=names: all(n in worker.heard.acknowledged for n in sent))
            # Whether it still counted or was evaluated again meanwhile, it was answered for.
            assert "refused" not in worker.heard.acknowledged.values()
        worker.resume()
        outcome = await run.outcome()
    assert outcome.params_hash == params_hash(states_of(SPEC, 3)[-1].theta)
