"""The coordinator is replaceable: whoever is appointed goes on with the very same history, whoever
comes back follows, and nobody else can lead."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from coordinator import host, hosting, server
from coordinator.directory import RunDirectory
from coordinator.host import EndedError
from coordinator.log import EvaluationRow, LogReader, UpdateLog
from protocol import snapshot, topics
from protocol import spec as run_spec
from protocol.address import parse_address
from protocol.authority import Authority
from protocol.envelope import plain, signed
from protocol.errors import ShoalError
from protocol.frozen import Snapshots
from protocol.identity import Identity, digest_of, key_digest
from protocol.messages import Beat, Charter, Epoch, Result, result_arrays
from protocol.packing import pack_reals
from protocol.spec import RunSpec
from protocol.state import params_hash
from tests.coordinator.runs import Led, broker, spec_of, states_of
from tests.coordinator.scripted import ScriptedWorker, evaluate
from tests.coordinator.standbys import (
    BEATS,
    PATIENCE,
    Cable,
    Standing,
    add_updates,
    appointing,
    aside,
    hashes,
    payloads,
    returning,
    secret,
    standing_by,
)

FIRST, SECOND = Identity(b"1" * 32), Identity(b"2" * 32)
EXACT: dict[str, Any] = {
    "normalizer": {"enabled": True},
    "strategy": {"population": 64},
    "optimizer": {"kind": "adam", "learning_rate": 0.05},
    "pool": {"quorum": 1.0, "max_staleness": 0, "minimum_task_seconds": 0.0, "task_seconds": 0.01},
    "stop": {"updates": 8},
}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """All the waiting in a tenth of the time."""
    monkeypatch.setattr(server, "BEAT_SECONDS", BEATS)
    monkeypatch.setattr("coordinator.hosting.LISTEN_SECONDS", 0.6)


@contextlib.asynccontextmanager
async def hosted(
    spec: RunSpec, directory: Path, url: str, *delegates: Identity, identity: Identity | None = None
) -> AsyncIterator[Led]:
    run = appointing(spec, directory, url, *delegates, identity=identity)
    try:
        yield run
    finally:
        await run.end()


async def work(worker: ScriptedWorker, pause_at: int = 1 << 40) -> None:
    """Let the worker go on until that version, once somebody leads it."""
    await worker.until(lambda: worker.key is not None)
    worker.pause_at = pause_at
    worker._work()


def steady(run: Led, **options: Any) -> ScriptedWorker:
    return run.worker(speed=500.0, credit=3, **options)


def following(run: Led, url: str, directory: Path, identity: Identity, **options: Any) -> Any:
    return standing_by(run.run_id, run.leader.authority.root, url, directory, identity, **options)


@pytest.mark.parametrize("kind", ["embedded", "mosquitto"])
async def test_a_standby_goes_on_to_the_same_end(kind: str, tmp_path: Path) -> None:
    spec = spec_of(**EXACT)
    async with (
        broker(tmp_path / "broker", kind) as url,
        hosted(spec, tmp_path / "host", url, FIRST) as run,
        following(run, url, tmp_path / "first", FIRST) as standby,
        steady(run, pause_at=3) as worker,
        steady(run, pause_at=3) as other,
    ):
        await standby.version(3)
        await standby.said("entrusted")
        assert secret(tmp_path / "first") == secret(tmp_path / "host")
        for one in (worker, other):
            await one.until(lambda one=one: one.key is not None)
        assert run.server.progress.workers == 2
        await run.end()
        await work(worker)
        await work(other)
        outcome = await standby.outcome()
        await worker.until(lambda: worker.heard.epochs[-1].state == "finished")
        assert [(e.number, e.rank) for e in worker.heard.epochs][-1] == (2, 1)
    states = states_of(spec, 8)
    assert outcome.params_hash == params_hash(states[-1].theta)
    assert outcome.updates == 8 and outcome.centre is not None and outcome.centre.full
    found = hashes(spec, tmp_path / "first", run.leader.authority)
    assert found == [params_hash(state.theta) for state in states]
    assert payloads(tmp_path / "first")[:3] == payloads(tmp_path / "host")
    # The evaluations of the centre came with the updates.
    assert {row.version for row in evaluations(tmp_path / "host")} <= {
        row.version for row in evaluations(tmp_path / "first")
    }


async def test_results_of_the_old_leaders_leases_count(tmp_path: Path) -> None:
    """Nobody evaluates anew what a worker was at when the leader died."""
    spec = spec_of(**{**EXACT, "stop": {"updates": 4}})
    async with (
        broker(tmp_path / "broker") as url,
        hosted(spec, tmp_path / "host", url, FIRST) as run,
        following(run, url, tmp_path / "first", FIRST) as standby,
        steady(run, pause_at=2) as worker,
    ):
        await standby.version(2)
        await standby.said("entrusted")
        await worker.until(lambda: worker.heard.tasks[-1].version == 2)
        held = {task.task for task in worker.heard.tasks if task.version == 2}
        await run.end()
        await worker.until(lambda: worker.heard.epochs[-1].number == 2)
        await work(worker)
        await standby.outcome()
        accepted = {t for t, how in worker.heard.acknowledged.items() if how == "accepted"}
    members = {t.task for t in worker.heard.tasks if t.task in held and t.kind == "members"}
    assert members and members <= accepted


async def test_the_old_leader_comes_back_and_follows(tmp_path: Path) -> None:
    spec = spec_of(**EXACT)
    async with (
        broker(tmp_path / "broker") as url,
        hosted(spec, tmp_path / "host", url, FIRST) as run,
        following(run, url, tmp_path / "first", FIRST) as standby,
        steady(run, pause_at=3) as worker,
    ):
        await standby.version(3)
        await run.end()
        add_updates(tmp_path / "host", 2)
        ours = payloads(tmp_path / "host")
        assert len(ours) == 5
        await worker.until(lambda: worker.heard.epochs[-1].number == 2)
        await work(worker, 6)
        await standby.version(6)
        async with returning(tmp_path / "host", url) as old:
            await old.said(f"is led by {FIRST.fingerprint} (delegate 1) in epoch 2")
            await old.said("2 updates of ours (versions 3 to 4) are set aside")
            await old.version(6)
            await work(worker)
            outcome, seen = await standby.outcome(), await old.outcome()
    assert worker.heard.epochs[-1].number == 2
    assert payloads(tmp_path / "host") == payloads(tmp_path / "first")
    assert aside(tmp_path / "host") == [3, 4] and not aside(tmp_path / "first")
    assert seen.params_hash == outcome.params_hash == params_hash(states_of(spec, 8)[-1].theta)
    assert seen.state == "finished" and seen.updates == 8
    with pytest.raises(EndedError):
        host.resume(tmp_path / "host")


async def test_an_old_leader_that_comes_back_too_late_gets_the_rest(tmp_path: Path) -> None:
    """The run has ended without it: nobody leads it any more, though workers are there."""
    spec = spec_of(**EXACT)
    async with (
        broker(tmp_path / "broker") as url,
        hosted(spec, tmp_path / "host", url, FIRST) as run,
        following(run, url, tmp_path / "first", FIRST) as standby,
        steady(run, pause_at=3) as worker,
    ):
        await standby.version(3)
        await run.end()
        await worker.until(lambda: worker.heard.epochs[-1].number == 2)
        await work(worker)
        outcome = await standby.outcome()
        await worker.until(lambda: worker.heard.epochs[-1].state == "finished")
        async with returning(tmp_path / "host", url) as old:
            seen = await old.outcome()
        assert worker.heard.epochs[-1].number == 2
    assert (seen.state, seen.params_hash) == ("finished", outcome.params_hash)
    assert payloads(tmp_path / "host") == payloads(tmp_path / "first")


async def test_a_leader_that_was_cut_off_steps_aside(tmp_path: Path) -> None:
    """It leads on in its own world, until it hears who leads in everybody else's."""
    spec = spec_of(**EXACT)
    async with (
        broker(tmp_path / "broker") as url,
        Cable(url) as cable,
    ):
        run = host.prepare(spec, tmp_path / "host", None, (digest_of(FIRST.fingerprint),))
        course = host.load(run, lambda line: None)
        old = Standing(
            tmp_path / "host",
            run.id,
            lambda listeners: hosting.host(
                run, course, parse_address(cable.url), "lead", listeners, PATIENCE
            ),
        )
        async with (
            standing_by(run.id, run.root, url, tmp_path / "first", FIRST) as standby,
            ScriptedWorker(url, run.id, speed=500.0, credit=3, pause_at=3) as worker,
        ):
            await standby.version(3)
            cable.cut()
            await worker.until(lambda: worker.heard.epochs[-1].number == 2)
            cable.mend()
            await old.said("in epoch 2: stepping aside")
            await work(worker)
            outcome, seen = await standby.outcome(), await old.outcome()
        await old.end()
        course.log.close()
    assert [epoch.number for epoch in worker.heard.epochs][-1] == 2
    assert payloads(tmp_path / "host") == payloads(tmp_path / "first")
    assert seen.params_hash == outcome.params_hash == params_hash(states_of(spec, 8)[-1].theta)


async def test_both_led_and_the_greater_precedence_wins(tmp_path: Path) -> None:
    """Two worlds; in each somebody leads epoch 2. The run key's holds, once they meet."""

    def otherwise(result: Result) -> Result:
        returns, _ = result_arrays(result)
        return msgspec.structs.replace(result, returns=pack_reals(-returns.ravel()))

    spec = spec_of(**EXACT)
    async with (
        broker(tmp_path / "one") as url,
        broker(tmp_path / "other") as elsewhere,
        hosted(spec, tmp_path / "host", url, FIRST) as run,
        following(run, url, tmp_path / "first", FIRST) as standby,
    ):
        async with steady(run, pause_at=3) as worker:
            await standby.version(3)
            await run.end()
            await worker.until(lambda: worker.heard.epochs[-1].number == 2)
            await work(worker, 7)
            await standby.version(7)
        async with (
            returning(tmp_path / "host", elsewhere, "lead") as old,
            ScriptedWorker(
                elsewhere, run.run_id, speed=500.0, credit=3, pause_at=5, alter=otherwise
            ),
        ):
            await old.version(5)
        assert payloads(tmp_path / "host")[3:5] != payloads(tmp_path / "first")[3:5]
        ours = payloads(tmp_path / "host")
        async with returning(tmp_path / "host", url) as old:
            await old.until(old.ready.is_set)
            await standby.said("in epoch 3: stepping aside")
            await standby.said("4 updates of ours (versions 3 to 6) are set aside")
            async with steady(run):
                outcome, seen = await old.outcome(), await standby.outcome()
    assert payloads(tmp_path / "first") == payloads(tmp_path / "host")
    assert payloads(tmp_path / "host")[:5] == ours
    assert outcome.params_hash == seen.params_hash
    assert outcome.params_hash == hashes(spec, tmp_path / "first", run.leader.authority)[-1]


async def test_who_led_last_leads_again_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the broker tells newcomers is still our own word: nobody came after us."""
    monkeypatch.setattr("coordinator.hosting.LISTEN_SECONDS", 1000.0)
    spec = spec_of(**EXACT)
    async with (
        broker(tmp_path / "broker") as url,
        hosted(spec, tmp_path / "host", url) as run,
        steady(run, pause_at=3) as worker,
    ):
        await worker.until(lambda: len(worker.heard.updates) == 3)
        await run.end()
        async with returning(tmp_path / "host", url) as old:
            await old.until(old.ready.is_set)
            await work(worker)
            outcome = await old.outcome()
    assert outcome.params_hash == params_hash(states_of(spec, 8)[-1].theta)


@contextlib.asynccontextmanager
async def succeeded(
    spec: RunSpec, path: Path, left_at: int, reached: int
) -> AsyncIterator[tuple[str, Standing, ScriptedWorker]]:
    """The broker's URL, a standby that leads since the host died at a version, and a worker; the
    run has reached a later version since, and waits there."""
    async with (
        broker(path / "broker") as url,
        hosted(spec, path / "host", url, FIRST) as run,
        following(run, url, path / "first", FIRST) as standby,
        steady(run, pause_at=left_at) as worker,
    ):
        await standby.version(left_at)
        await run.end()
        await worker.until(lambda: worker.heard.epochs[-1].number == 2)
        await work(worker, reached)
        await standby.version(reached)
        yield url, standby, worker


async def test_taking_over_makes_the_leader_step_aside(tmp_path: Path) -> None:
    spec = spec_of(**EXACT)
    async with (
        succeeded(spec, tmp_path, left_at=3, reached=5) as (url, standby, worker),
        returning(tmp_path / "host", url, "take over") as old,
    ):
        await old.said("level with who leads, at version 5")
        await standby.said("in epoch 3: stepping aside")
        await work(worker)
        outcome, seen = await old.outcome(), await standby.outcome()
    assert worker.heard.epochs[-1].number == 3, "\n".join([*old.lines, "--", *standby.lines])
    assert worker.heard.epochs[-1].rank == 0
    assert payloads(tmp_path / "host") == payloads(tmp_path / "first")
    assert outcome.params_hash == seen.params_hash == params_hash(states_of(spec, 8)[-1].theta)


async def test_taking_over_loses_nothing_that_only_the_leader_has(tmp_path: Path) -> None:
    spec = spec_of(**EXACT)
    async with succeeded(spec, tmp_path, left_at=1, reached=6) as (url, standby, worker):
        await worker.until(lambda: 5 in worker.kept)
        worker.kept = {5: worker.kept[5]}  # as after many more updates than workers keep
        async with returning(tmp_path / "host", url, "take over") as old:
            await old.said("at version 6 (params_hash")
            await work(worker)
            await old.outcome()
            await standby.outcome()
    assert payloads(tmp_path / "host") == payloads(tmp_path / "first")
    assert not [line for line in standby.lines if "aside:" in line]


async def test_the_first_of_two_standbys_leads_and_then_the_second(tmp_path: Path) -> None:
    spec = spec_of(**EXACT)
    async with (
        broker(tmp_path / "broker") as url,
        hosted(spec, tmp_path / "host", url, FIRST, SECOND) as run,
        following(run, url, tmp_path / "2", SECOND) as second,
        following(run, url, tmp_path / "1", FIRST) as first,
        steady(run, pause_at=3) as worker,
    ):
        await first.version(3)
        await second.version(3)
        await run.end()
        await worker.until(lambda: worker.heard.epochs[-1].number == 2)
        assert worker.heard.epochs[-1].rank == 1
        await work(worker, 5)
        await second.version(5)
        await second.said("epoch 2 is led by delegate 1")
        assert not second.ready.is_set()
        await first.end()
        await worker.until(lambda: worker.heard.epochs[-1].number == 3)
        assert worker.heard.epochs[-1].rank == 2
        await work(worker)
        outcome = await second.outcome()
    assert outcome.params_hash == params_hash(states_of(spec, 8)[-1].theta)
    history = payloads(tmp_path / "2")
    assert history[:3] == payloads(tmp_path / "host") and history[:5] == payloads(tmp_path / "1")


async def test_updates_that_the_standby_missed_come_from_the_workers(tmp_path: Path) -> None:
    """It was away when the leader made its last ones."""
    spec = spec_of(**EXACT)
    async with (
        broker(tmp_path / "broker") as url,
        Cable(url) as cable,
        hosted(spec, tmp_path / "host", url, FIRST) as run,
        following(run, cable.url, tmp_path / "first", FIRST) as standby,
        steady(run, pause_at=3) as worker,
    ):
        await standby.version(3)
        cable.cut()
        await standby.said("broker lost")
        await work(worker, 5)
        await worker.until(lambda: len(worker.heard.updates) == 5)
        await run.end()
        cable.mend()
        await standby.said("peers had updates 3 to 4, which we lacked")
        await work(worker)
        outcome = await standby.outcome()
    assert payloads(tmp_path / "first")[:5] == payloads(tmp_path / "host")
    assert outcome.params_hash == params_hash(states_of(spec, 8)[-1].theta)


async def test_who_lacks_more_than_anybody_keeps_does_not_lead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It slept while the run went on; leading would throw away all that happened since."""
    monkeypatch.setattr("coordinator.standby.standby.MOST_LACKING", 2)
    spec = spec_of(**EXACT)
    async with (
        broker(tmp_path / "broker") as url,
        Cable(url) as cable,
        hosted(spec, tmp_path / "host", url, FIRST) as run,
        following(run, cable.url, tmp_path / "first", FIRST) as standby,
        steady(run, pause_at=2) as worker,
    ):
        await standby.version(2)
        cable.cut()
        await standby.said("broker lost")
        await work(worker, 6)
        await worker.until(lambda: len(worker.heard.updates) == 6)
        worker.kept = {5: worker.kept[5]}
        await run.end()
        cable.mend()
        await standby.said("not leading: the run is at version 6, our log ends at 2")
        assert worker.heard.epochs[-1].number == 1
        # Whoever has the rest goes on.
        async with returning(tmp_path / "host", url) as old:
            await old.until(old.ready.is_set)
            await work(worker)
            assert (await old.outcome()).updates == 8
            assert (await standby.outcome()).updates == 8
    assert payloads(tmp_path / "first") == payloads(tmp_path / "host")


async def test_who_lacks_much_goes_back_on_purpose_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coordinator.standby.standby.MOST_LACKING", 2)
    spec = spec_of(**EXACT)
    async with (
        broker(tmp_path / "broker") as url,
        hosted(spec, tmp_path / "host", url) as run,
        steady(run, pause_at=6) as worker,
    ):
        await worker.until(lambda: len(worker.heard.updates) == 6)
        worker.kept = {5: worker.kept[5]}
        await run.end()
        with UpdateLog(tmp_path / "host" / "log.sqlite", run.run_id) as log:
            log.set_aside(2, "lost")
        async with returning(tmp_path / "host", url) as old:
            await old.said("not leading: the run is at version 6, our log ends at 2")
        async with returning(tmp_path / "host", url, "take over") as old:
            await old.said("at version 2 (params_hash")
            await old.until(old.ready.is_set)


async def test_a_log_that_lost_its_end_gets_it_back_from_the_workers(tmp_path: Path) -> None:
    spec = spec_of(**EXACT)
    async with (
        broker(tmp_path / "broker") as url,
        hosted(spec, tmp_path / "host", url) as run,
        steady(run, pause_at=5) as worker,
    ):
        await worker.until(lambda: len(worker.heard.updates) == 5)
        await run.end()
        whole = payloads(tmp_path / "host")
        with UpdateLog(tmp_path / "host" / "log.sqlite", run.run_id) as log:
            log.set_aside(2, "lost")
        async with returning(tmp_path / "host", url) as old:
            await old.said("workers of")
            await old.said("peers had updates 2 to 4, which we lacked")
            await work(worker)
            outcome = await old.outcome()
    assert payloads(tmp_path / "host")[:5] == whole
    assert outcome.params_hash == params_hash(states_of(spec, 8)[-1].theta)
    assert worker.heard.epochs[-1].number == 3


async def test_results_of_versions_that_the_run_went_without_do_not_count(tmp_path: Path) -> None:
    """A worker evaluated what only the dead leader's last update led to; ours leads elsewhere."""
    spec = spec_of(**EXACT)
    async with (
        broker(tmp_path / "broker") as url,
        hosted(spec, tmp_path / "host", url) as run,
    ):
        async with steady(run, pause_at=3) as first:
            await first.until(lambda: first.heard.tasks[-1:] and first.heard.tasks[-1].version == 3)
            stale = next(t for t in first.heard.tasks if t.version == 3 and t.kind == "members")
            assert first.state is not None
            result = evaluate(spec, first.state, stale)
            identity, session = first.identity, first.session
            await run.end()
        with UpdateLog(tmp_path / "host" / "log.sqlite", run.run_id) as log:
            log.set_aside(2, "nobody else had it")
        prepared = host.resume(tmp_path / "host")
        again = Led(prepared, url)
        try:
            # The same worker, without the update.
            async with (
                steady(run, identity=identity, pause_at=2) as worker,
                steady(run, pause_at=4),
            ):
                await worker.until(lambda: bool(worker.heard.updates))
                worker.busy = False
                await worker.until(lambda: worker.version == 4)
                worker.send(result)
                await worker.until(lambda: stale.task in worker.heard.acknowledged)
        finally:
            await again.end()
    assert session != worker.session
    assert worker.heard.acknowledged[stale.task] == "late"
    assert "went another way before version 3" in worker.heard.reasons[stale.task]


async def test_who_is_not_appointed_follows_and_never_leads(tmp_path: Path) -> None:
    spec = spec_of(**{**EXACT, "stop": {"updates": 4}})
    async with (
        broker(tmp_path / "broker") as url,
        hosted(spec, tmp_path / "host", url, SECOND) as run,
        following(run, url, tmp_path / "first", FIRST) as standby,
        steady(run, pause_at=2) as worker,
    ):
        await standby.version(2)
        await standby.said(f"not appointed: ask the host to add --delegate {FIRST.fingerprint}")
        await run.end()
        await asyncio.sleep(4 * PATIENCE)  # in which an appointed one would lead
        assert worker.heard.epochs[-1].number == 1 and not standby.ready.is_set()
        assert not standby.says("entrusted")
        async with returning(tmp_path / "host", url) as old:
            await work(worker)
            outcome, seen = await old.outcome(), await standby.outcome()
    assert outcome.params_hash == seen.params_hash
    assert payloads(tmp_path / "first") == payloads(tmp_path / "host")


async def test_a_revoked_delegate_does_not_lead(tmp_path: Path) -> None:
    spec = spec_of(**{**EXACT, "stop": {"updates": 4}})
    async with (
        broker(tmp_path / "broker") as url,
        hosted(spec, tmp_path / "host", url, FIRST) as run,
        following(run, url, tmp_path / "first", FIRST) as standby,
        steady(run, pause_at=2) as worker,
    ):
        await standby.said("appointed as delegate 1")
        await standby.version(2)
        await run.end()
        again = Led(host.resume(tmp_path / "host", delegates=(digest_of(SECOND.fingerprint),)), url)
        try:
            await standby.said("not appointed")
            await again.end()
            await asyncio.sleep(4 * PATIENCE)
            assert worker.heard.epochs[-1].number == 2 and not standby.ready.is_set()
            # Nor would anybody believe it.
            old = run.leader.authority
            forged = announcement(spec, old, FIRST, number=9, rank=1)
            worker.link.publish(topics.epoch(run.run_id), forged, qos=1, retain=True)
            async with returning(tmp_path / "host", url) as host_again:
                await work(worker)
                outcome = await host_again.outcome()
        finally:
            await again.end()
    assert worker.heard.epochs[-1].number == 3 and outcome.state == "finished"


@pytest.mark.parametrize("attack", ["stranger", "worker", "rank", "charter", "replay"])
async def test_nobody_else_can_lead(attack: str, tmp_path: Path) -> None:
    """Neither a leader nor a standby believes it, whoever says so."""
    spec = spec_of(**{**EXACT, "stop": {"updates": 4}})
    stranger = Identity.generate()
    async with (
        broker(tmp_path / "broker") as url,
        hosted(spec, tmp_path / "host", url, FIRST) as run,
        following(run, url, tmp_path / "first", FIRST) as standby,
        steady(run, pause_at=2) as worker,
    ):
        await standby.version(2)
        authority = run.leader.authority
        forged = {
            "stranger": lambda: announcement(spec, authority, stranger, number=7, rank=0),
            "worker": lambda: announcement(spec, authority, worker.identity, number=7, rank=1),
            "rank": lambda: announcement(spec, authority, FIRST, number=7, rank=0),
            "charter": lambda: announcement(
                spec, usurped(authority, stranger), stranger, number=7, rank=1
            ),
            "replay": lambda: announcement(spec, authority, run.identity, number=1, rank=0)[:-1],
        }[attack]()
        worker.link.publish(topics.epoch(run.run_id), forged, qos=1, retain=True)
        beats = len(worker.heard.beats)
        await worker.until(lambda: len(worker.heard.beats) > beats + 3)
        assert not run.running.done()
        assert not [line for line in standby.lines if "epoch 7" in line]
        await work(worker)
        outcome, seen = await run.outcome(), await standby.outcome()
    assert outcome.params_hash == seen.params_hash
    assert [epoch.number for epoch in worker.heard.epochs][-1] == 1


async def test_beats_of_somebody_else_delay_a_standby_but_not_for_ever(tmp_path: Path) -> None:
    spec = spec_of(**{**EXACT, "stop": {"updates": 4}})
    async with (
        broker(tmp_path / "broker") as url,
        hosted(spec, tmp_path / "host", url, FIRST) as run,
        following(run, url, tmp_path / "first", FIRST) as standby,
        steady(run, pause_at=2) as worker,
    ):
        await standby.version(2)
        await run.end()
        beat = plain(Beat(1, 2, b"d" * 16, "open"))
        old = plain(Beat(0, 2, b"d" * 16, "open"))

        async def pretend() -> None:
            while True:
                for payload in (beat, old):
                    worker.link.publish(topics.beat(run.run_id), payload)
                await asyncio.sleep(0.1)

        pretending = asyncio.create_task(pretend())
        await asyncio.sleep(3 * PATIENCE)
        assert worker.heard.epochs[-1].number == 1
        await worker.until(lambda: worker.heard.epochs[-1].number == 2)
        pretending.cancel()
        await work(worker)
        assert (await standby.outcome()).state == "finished"


async def test_a_standby_that_comes_late_gets_all_and_a_reopened_one_the_rest(
    tmp_path: Path,
) -> None:
    spec = spec_of(**EXACT)
    async with (
        broker(tmp_path / "broker") as url,
        hosted(spec, tmp_path / "host", url, FIRST) as run,
        steady(run, pause_at=4) as worker,
    ):
        await worker.until(lambda: len(worker.heard.updates) == 4)
        async with following(run, url, tmp_path / "first", FIRST) as standby:
            await standby.version(4)
        with contextlib.closing(RunDirectory.open(tmp_path / "first")) as directory:
            assert directory.remembered().broker == url  # where whoever resumes finds the workers
        await work(worker, 6)
        await worker.until(lambda: len(worker.heard.updates) == 6)
        async with following(run, url, tmp_path / "first", FIRST) as standby:
            await standby.version(6)
            await work(worker)
            await run.outcome()
            seen = await standby.outcome()
            assert seen.state == "finished"
            assert seen.centre == (await run.outcome()).centre is not None
    assert payloads(tmp_path / "first") == payloads(tmp_path / "host")
    kept, theirs = (listed(tmp_path / name) for name in ("first", "host"))
    assert kept == theirs and kept[-1] > (0.0, 0)


def listed(directory: Path) -> list[tuple[float, int]]:
    """Seconds of the run and workers, of each update in a directory."""
    with LogReader(directory / "log.sqlite") as log:
        return [(row.seconds, row.workers) for row in log.rows()]


async def test_version_0_of_a_fork_comes_from_its_leader(tmp_path: Path) -> None:
    origin = dataclasses.replace(states_of(spec_of(), 3)[-1], version=0, episodes=0, steps=0)
    digest = snapshot.state_digest(origin).hex()
    spec = spec_of(policy={"initialisation": "given", "initial_digest": digest})
    run = host.prepare(spec, tmp_path / "host", None, (digest_of(FIRST.fingerprint),))
    run.directory.snapshots.freeze(origin)
    async with broker(tmp_path / "broker") as url:
        leader = Led(run, url)
        try:
            async with following(leader, url, tmp_path / "first", FIRST) as standby:
                await standby.said("fetching version 0")
                await standby.said("entrusted")
                await leader.end()
                await standby.until(standby.ready.is_set)
        finally:
            await leader.end()
    assert Snapshots(tmp_path / "first" / "snapshots").open(0).digest.hex() == digest


async def test_idle_standby_asks_for_proof_and_nobody_is_told(tmp_path: Path) -> None:
    async with (
        broker(tmp_path / "broker") as url,
        hosted(spec_of(), tmp_path / "host", url, FIRST) as run,
        following(run, url, tmp_path / "first", FIRST) as standby,
    ):
        await standby.said("entrusted")
        await asyncio.sleep(5 * PATIENCE)  # in which it asks twice
        assert not standby.says("nobody leads")
        joined = [line for line in run.lines if "joined" in line]
        assert len(joined) == 1 and joined[0].endswith("(standby, standby): joined")


async def test_full_disk_of_a_standby_is_its_own_affair(tmp_path: Path) -> None:
    """It can't resume: it has no key of the run. It is started again, and gets the rest."""
    spec = spec_of(**EXACT)
    async with (
        broker(tmp_path / "broker") as url,
        hosted(spec, tmp_path / "host", url, FIRST) as run,
        steady(run, pause_at=2) as worker,
    ):
        async with following(run, url, tmp_path / "first", FIRST) as standby:
            await standby.version(2)
            taken = sqlite3.connect(tmp_path / "first" / "log.sqlite")
            with contextlib.closing(taken):
                taken.execute("BEGIN IMMEDIATE")  # what keeps the disk from taking more
                await work(worker, 4)
                with pytest.raises(ShoalError, match="free the disk, then start the standby again"):
                    await standby.outcome()
        async with following(run, url, tmp_path / "first", FIRST) as standby:
            await work(worker)
            assert (await standby.outcome()).updates == 8
    assert payloads(tmp_path / "first") == payloads(tmp_path / "host")


async def test_directory_of_another_run_is_refused(tmp_path: Path) -> None:
    async with (
        broker(tmp_path / "broker") as url,
        hosted(spec_of(), tmp_path / "host", url) as run,
    ):
        async with hosted(spec_of(name="other"), tmp_path / "other", url) as other:
            await other.ready.wait()
        await run.ready.wait()
        async with following(run, url, tmp_path / "other", FIRST) as standby:
            with pytest.raises(ShoalError, match="holds the run other-"):
                await standby.outcome()


def announcement(
    spec: RunSpec, authority: Authority, signer: Identity, number: int, rank: int
) -> bytes:
    """An epoch as that key would announce it, whether or not it may."""
    epoch = Epoch(
        protocol=run_spec.PROTOCOL_VERSION,
        run=authority.run,
        host_key=authority.root,
        number=number,
        rank=rank,
        spec=run_spec.to_bytes(spec),
        state="stopped",
        version=0,
        digest=b"d" * 16,
        leader=b"" if signer.public_key == authority.root else signer.public_key,
        charters=authority.charters,
    )
    return signed(signer, "epoch", (authority.run,), epoch)


def usurped(authority: Authority, stranger: Identity) -> Authority:
    """With a charter that the stranger signed for itself."""
    charter = Charter(5, authority.root, (key_digest(stranger.public_key),))
    payload = signed(stranger, "charter", (authority.run,), charter)
    return dataclasses.replace(authority, charters=(*authority.charters, payload))


def evaluations(directory: Path) -> list[EvaluationRow]:
    with LogReader(directory / "log.sqlite") as log:
        return log.evaluations()
