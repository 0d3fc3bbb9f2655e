"""Who lies to a real server, what a person may order, and that a resumed run knows it."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import msgspec
import pytest

import shoal
from coordinator import orders
from coordinator.log import TRUST, UpdateLog
from coordinator.pool.events import Audit, Ban, Rely, Unban
from coordinator.remembering import Kept, read
from protocol.command import run as command
from protocol.messages import Result, pack_returns, result_arrays
from tests.coordinator.runs import broker, led, resumed, spec_of

CLASS = b"numeric class 01"
WORKER = "abcdefghijklmnop"


def swapped(result: Result) -> Result:
    """Each mirror's return in place of the other's."""
    if result.kind == "centre":
        return result
    returns, lengths = result_arrays(result, 2)
    packed, steps = pack_returns(returns[:, ::-1].copy(), lengths[:, ::-1].copy())
    return msgspec.structs.replace(result, returns=packed, lengths=steps)


async def test_a_liar_is_found_out_a_person_lets_it_in_and_a_resumed_run_knows_both(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = spec_of(
        pool={"audit_share": 0.5}, stop={"updates": 100_000}, centre={"evaluate_every": 0}
    )
    run_dir = str(tmp_path / "run")
    async with contextlib.AsyncExitStack() as stack:
        url = await stack.enter_async_context(broker(tmp_path / "broker"))
        async with led(spec, tmp_path, url) as run:
            workers = [await stack.enter_async_context(run.worker(numeric=CLASS)) for _ in range(4)]
            liar = await stack.enter_async_context(run.worker(numeric=CLASS, alter=swapped))
            name = liar.identity.worker
            trust = run.server._pool.trust
            await liar.until(lambda: trust.standing(name) == "banned")
            honest = [worker.identity.worker for worker in workers]
            await workers[0].until(lambda: all(map(trust.is_believed, honest)))
            assert any(f"{name} is banned" in line for line in run.lines)
            assert command(shoal.app, ["pool", "ban", run_dir, honest[0][:12]]) == 0
            await workers[1].until(lambda: trust.standing(honest[0]) == "banned")
        assert command(shoal.app, ["pool", "workers", run_dir, "--json"]) == 0
        told = json.loads(capsys.readouterr().out.splitlines()[-1])
        standings = {line["worker"]: line["standing"] for line in told}
        assert standings[name] == standings[honest[0]] == "banned"
        assert command(shoal.app, ["pool", "unban", run_dir, honest[0]]) == 0
        async with resumed(tmp_path, url) as again:
            trust = again.server._pool.trust
            assert trust.standing(name) == "banned"
            assert all(map(trust.is_believed, honest[1:]))
            await workers[0].until(lambda: trust.standing(honest[0]) != "banned")
            assert not again.server._pool.sessions or trust.banned.keys() == {name}


def test_orders_are_taken_once_and_what_is_none_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "orders.jsonl"
    assert orders.take(path) == []
    given = [Ban(WORKER, "why"), Unban(WORKER), Audit(WORKER), Rely(WORKER)]
    orders.give(path, given[0])
    with path.open("a") as file:
        file.write('no order\n{"order": "dance", "worker": "a"}\n[]\n{"order": "ban"}\n')
    for order in given[1:]:
        orders.give(path, order)
    assert orders.take(path) == given
    assert orders.take(path) == []


@pytest.mark.parametrize(
    "noted", ["", "no JSON", "[]", '{"workers": {"a": 1}}', '{"workers": {"a": {"standing": 1}}}']
)
def test_what_cannot_be_read_of_workers_is_as_if_nothing_was_known(
    tmp_path: Path, noted: str
) -> None:
    with UpdateLog(tmp_path / "log.sqlite", "test-12345678") as log:
        log.note(TRUST, noted)
        assert read(log) in (Kept(), Kept({}, ()))


def test_a_worker_is_named_by_how_its_name_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with UpdateLog(tmp_path / "log.sqlite", "test-12345678") as log:
        known = {WORKER: {"standing": "new"}, WORKER[:-1] + "q": {"standing": "new"}}
        log.note(TRUST, json.dumps({"workers": known}))
    assert command(shoal.app, ["pool", "audit", str(tmp_path), "abc"]) == 2
    assert "2 workers begin with that" in capsys.readouterr().err
    assert command(shoal.app, ["pool", "trust", str(tmp_path), "xyz"]) == 2
    assert "no such worker" in capsys.readouterr().err
    assert command(shoal.app, ["pool", "trust", str(tmp_path), WORKER]) == 0
    assert orders.take(tmp_path / "orders.jsonl") == [Rely(WORKER)]
