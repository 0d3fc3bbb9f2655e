"""Hosts that mean harm, and real workers that join them: one line, an exit code, nothing run."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from protocol import topics
from protocol.envelope import signed
from protocol.identity import Identity, run_id
from protocol.messages import Epoch
from protocol.packing import pack
from tests.chaos.processes import Running, assert_orderly, worker
from tests.contract.raw import RawClient
from tests.coordinator.runs import broker, led
from tests.worker.reference import TOYS, box, discrete, run_spec

CARTPOLE: dict[str, Any] = {"id": "CartPole-v1", "observation": box(4), "action": discrete(2)}
SPECS: dict[str, tuple[dict[str, Any], int, str]] = {
    # by name: tables, the worker's exit code, words of its line
    "path": ({"environment": {**CARTPOLE, "id": "../../etc/passwd"}}, 4, "../../etc/passwd"),
    "module": ({"environment": {**CARTPOLE, "id": "os:CartPole-v1"}}, 4, "would import the module"),
    "trillion": (
        {
            "environment": CARTPOLE,
            "policy": {
                "kind": "module",
                "module": "nets:Net",
                "parameters": [["weights", [10**6, 10**6]]],
            },
        },
        3,
        "the policy has 1e+12 parameters, over the limit of",
    ),
    "giant": (
        {"environment": CARTPOLE, "policy": {"kind": "mlp", "hidden": [65536] * 8}},
        3,
        "parameters, over the limit of",
    ),
}


async def announce(url: str, name: str, tables: dict[str, Any]) -> str:
    """A run whose host says whatever it likes, and nothing more; what workers join it with."""
    identity = Identity.generate()
    run = run_id(name, identity.public_key)
    spec = pack({"name": name, "seed": 1, **tables})
    epoch = Epoch(1, run, identity.public_key, 1, 0, spec, "running", 0, b"d" * 16)
    client = await RawClient.connect(url, name)
    payload = signed(identity, "epoch", (run,), epoch)
    await client.publish(topics.epoch(run), payload, qos=1, retain=True)
    await client.leave()
    return f"{url}/{run}#{identity.fingerprint}"


async def test_a_worker_ends_with_the_reason_and_runs_nothing(tmp_path: Path) -> None:
    async with broker(tmp_path / "broker") as url:
        with ExitStack() as stack:
            workers: dict[str, Running] = {}
            for name, (tables, _, _) in SPECS.items():
                line = await announce(url, name, tables)
                workers[name] = stack.enter_context(worker(line, tmp_path / name))
            for name, (_, code, words) in SPECS.items():
                assert await asyncio.to_thread(workers[name].await_end) == code, name
                assert any(words in said for said in workers[name].lines), workers[name].lines
            assert_orderly(*workers.values())


async def test_an_endless_episode_costs_no_more_than_the_task_limit(tmp_path: Path) -> None:
    pytest.importorskip("gymnasium")
    spec = run_spec("ToyEndless-v0", stop={"updates": 1}, centre={"evaluate_every": 0})
    async with broker(tmp_path / "broker") as url, led(spec, tmp_path, url) as run:
        line = f"{url}/{run.run_id}#{run.identity.fingerprint}"
        allowed = ("--allow-module", TOYS, "--lanes", "4", "--task-limit", "1")
        with worker(line, tmp_path / "home", *allowed) as volunteer:
            await asyncio.to_thread(volunteer.await_line, "(--task-limit)", 2)
            assert volunteer.process.poll() is None
        assert run.server._pool.version == 0
