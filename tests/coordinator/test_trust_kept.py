"""What a person orders of workers, and that a resumed run knows it."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest

import shoal
from coordinator import orders
from coordinator.log import TRUST, UpdateLog
from coordinator.pool.events import Audit, Ban, Rely, Unban
from coordinator.remembering import Kept, read
from protocol.command import run as command
from tests.coordinator.runs import broker, led, resumed, spec_of

CLASS = b"numeric class 01"
WORKER = "abcdefghijklmnop"


async def test_who_is_banned_is_so_in_a_resumed_run_too_and_a_person_lets_it_in_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = spec_of(
        pool={"audit_share": 0.5}, stop={"updates": 100_000}, centre={"evaluate_every": 0}
    )
    run_dir = str(tmp_path / "run")
    async with contextlib.AsyncExitStack() as stack:
        url = await stack.enter_async_context(broker(tmp_path / "broker"))
        async with led(spec, tmp_path, url) as run:
            workers = [await stack.enter_async_context(run.worker(numeric=CLASS)) for _ in range(3)]
            first, second, _ = [worker.identity.worker for worker in workers]
            for name in (first, second):
                assert command(shoal.app, ["pool", "ban", run_dir, name, "--reason", "why"]) == 0
            trust = run.server._pool.trust
            await workers[2].until(lambda: trust.banned == {first: "why", second: "why"})
        capsys.readouterr()
        assert command(shoal.app, ["pool", "workers", run_dir, "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert [line["worker"] for line in told[:2]] == sorted([first, second])
        assert {line["standing"] for line in told[:2]} == {"banned"}
        async with resumed(tmp_path, url) as again:
            trust = again.server._pool.trust
            assert trust.banned.keys() == {first, second}
            assert command(shoal.app, ["pool", "unban", run_dir, first[:12]]) == 0
            await workers[2].until(lambda: trust.banned.keys() == {second})


def test_orders_are_taken_once_and_what_is_none_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "orders.jsonl"
    assert orders.take(path) == []
    of_workers = [Ban(WORKER, "why"), Unban(WORKER), Audit(WORKER), Rely(WORKER)]
    given = [*of_workers, orders.Stop(7), orders.Pause(8)]
    orders.give(path, given[0])
    with path.open("a") as file:
        file.write('no order\n{"order": "dance", "worker": "a"}\n[]\n{"order": "ban"}\n')
        file.write('{"order": "stop", "process": "mine"}\n')
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
