"""Hundreds of real hellos in one moment, over real brokers: they hold up nothing else."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from coordinator import peers, reception
from protocol import topics
from protocol.address import parse_address
from protocol.identity import Identity
from protocol.link import Link
from protocol.state import params_hash
from tests.coordinator.runs import broker, led, spec_of, states_of
from tests.coordinator.scripted import DEADLINE, ScriptedWorker

SPEC = spec_of(stop={"updates": 60}, centre={"evaluate_every": 0})
CROWD = 300


def crowd_of(run: str, size: int) -> list[tuple[str, bytes]]:
    """Topics and hellos of as many newcomers, who will not take tasks."""
    said = []
    for _ in range(size):
        newcomer = ScriptedWorker("mqtt://localhost", run, credit=0)
        newcomer.link.publish = lambda *_, **__: True  # type: ignore[method-assign]
        topic = topics.request(run, newcomer.identity.worker, newcomer.session)
        said.append((topic, newcomer.say_hello()))
    return said


@pytest.mark.parametrize("kind", ["embedded", "mosquitto"])
async def test_a_crowd_is_let_in_while_the_run_goes_on(tmp_path: Path, kind: str) -> None:
    async with (
        broker(tmp_path / "broker", kind) as url,
        led(SPEC, tmp_path, url) as run,
        run.worker(pause_at=2) as worker,
    ):
        await worker.until(lambda: worker.version == 2 and bool(worker.held))
        hellos = crowd_of(run.run_id, CROWD)
        crowd = Link(parse_address(url), client_id="crowd", on_message=lambda *_: None)
        connecting = asyncio.ensure_future(crowd.run())
        async with asyncio.timeout(DEADLINE):
            while not crowd.connected:
                await asyncio.sleep(0.01)
            for topic, payload in hellos:
                assert crowd.publish(topic, payload, qos=1)
            while not run.server._reception.turns:
                await asyncio.sleep(0)
            worker.resume()
            while len(run.server._pool.sessions) < CROWD:
                await asyncio.sleep(0.01)
        outcome = await run.outcome()
        connecting.cancel()
        await asyncio.gather(connecting, return_exceptions=True)
    assert outcome.params_hash == params_hash(states_of(SPEC, 60)[-1].theta)


async def test_results_are_heard_first_and_the_loop_turns_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reception, "SLICE_SECONDS", 0.002)
    async with led(SPEC, tmp_path) as run, run.worker(pause_at=2) as worker:
        await worker.until(lambda: worker.version == 2 and bool(worker.held))
        server = run.server
        for topic, payload in crowd_of(run.run_id, 100):
            server._on_message(topic, payload)
        # Behind a hundred hellos, in the very same moment:
        worker.publish = lambda kind, payload: server._on_message(  # type: ignore[method-assign]
            kind(run.run_id, worker.identity.worker, worker.session), payload
        )
        worker.resume()
        assert server._pool.updating, "the result that closes the batch is not heard yet"
        assert len(server._reception.turns) == 100
        turns = 0
        async with asyncio.timeout(DEADLINE):
            while server._reception.turns:
                turns += 1
                await asyncio.sleep(0)
        assert turns >= 10


async def test_who_finds_no_room_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "MOST_SESSIONS", 3)
    async with led(SPEC, tmp_path) as run, contextlib.AsyncExitStack() as stack:
        identity = Identity.generate()
        workers = [
            # Sessions of one key are as many machines.
            await stack.enter_async_context(run.worker(busy=False, identity=identity))
            for _ in range(3)
        ]
        for worker in workers:
            await worker.until(lambda worker=worker: bool(worker.heard.welcomes))
        late = await stack.enter_async_context(run.worker())
        await late.until(lambda: bool(late.heard.welcomes))
        assert late.heard.welcomes[0].refused == (
            "the run has the 3 sessions that it can have: join later"
        )
        workers[0].bye()
        async with asyncio.timeout(DEADLINE):
            while len(run.server._pool.sessions) == 3:
                await asyncio.sleep(0.01)
        late.say_hello()
        await late.until(lambda: len(late.heard.welcomes) == 2)
        assert late.heard.welcomes[1].refused == ""
