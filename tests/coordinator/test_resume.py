"""Runs that are led on from their directory: the same end, and nothing lost that was answered."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import random
import sqlite3
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from coordinator import host, recorder, update
from coordinator.directory import DirectoryError
from coordinator.history.archive import archive
from coordinator.history.verify import verify_directory
from coordinator.host import EndedError
from coordinator.log import LogError, LogReader, ResultRow, UpdateLog
from coordinator.server import Behind, SteppedAside
from protocol import topics
from protocol.envelope import signed
from protocol.errors import ShoalError
from protocol.identity import Identity, key_digest
from protocol.messages import Epoch
from protocol.packing import unpack_integers
from protocol.state import params_hash
from tests.coordinator.runs import Led, broker, led, resumed, spec_of, states_of
from tests.coordinator.scripted import DEADLINE, ScriptedWorker

EXACT: dict[str, Any] = {
    "normalizer": {"enabled": True},
    "strategy": {"population": 64},
    "optimizer": {"kind": "adam", "learning_rate": 0.05},
    "pool": {"quorum": 1.0, "max_staleness": 0, "minimum_task_seconds": 0.0, "task_seconds": 0.01},
    "stop": {"updates": 6},
}


@contextlib.asynccontextmanager
async def workers(run: Led, count: int, **options: Any) -> AsyncIterator[list[ScriptedWorker]]:
    """So many workers that stay whoever leads."""
    async with contextlib.AsyncExitStack() as stack:
        pool = [run.worker(speed=500.0, credit=3, **options) for _ in range(count)]
        for worker in pool:
            await stack.enter_async_context(worker)
        yield pool


def answered(pool: list[ScriptedWorker]) -> set[int]:
    """The directions whose returns were acknowledged as accepted."""
    return {
        direction
        for worker in pool
        for task in worker.heard.tasks
        if task.kind == "members" and worker.heard.acknowledged.get(task.task) == "accepted"
        for direction in range(task.first, task.first + task.count)
    }


def asked(worker: ScriptedWorker, epoch: int) -> set[int]:
    """The directions that the worker was given in that epoch."""
    return {
        direction
        for task in worker.heard.tasks
        if task.kind == "members" and (task.task - 1) >> 32 == epoch - 1
        for direction in range(task.first, task.first + task.count)
    }


@pytest.mark.parametrize("seed", range(3))
async def test_stopped_anywhere_it_comes_to_the_same_end(seed: int, tmp_path: Path) -> None:
    """Three lives; the same workers, which are told nothing."""
    moments = random.Random(seed)
    spec = spec_of(**{**EXACT, "stop": {"updates": 9}})
    async with broker(tmp_path / "broker") as url, contextlib.AsyncExitStack() as stack:
        async with led(spec, tmp_path, url) as run:
            pool = await stack.enter_async_context(workers(run, 2))
            # Of both together: one may be given so many more that the run ends before.
            tasks = moments.randint(1, 30)
            await pool[0].until(lambda: sum(len(each.heard.tasks) for each in pool) >= tasks)
        for epoch in (2, 3):
            kept = answered(pool)
            before = max(worker.version for worker in pool)
            async with resumed(tmp_path, url) as run:
                assert run.leader.epoch == epoch
                assert run.course.recovered.version >= before, "published, and lost"
                if epoch == 3:
                    outcome = await run.outcome()
                else:
                    goal = min(6, before + moments.randint(1, 3))
                    await pool[1].until(lambda goal=goal: pool[1].version >= goal)
            for worker in pool:
                assert not asked(worker, epoch) & kept, "answered for, and asked for again"
    assert outcome.params_hash == params_hash(states_of(spec, 9)[-1].theta)
    assert outcome.updates == 9 and outcome.state == "finished"
    assert outcome.centre is not None and outcome.centre.full
    assert all(worker.heard.epochs[-1].number == 3 for worker in pool)


@pytest.mark.parametrize("seed", range(2))
async def test_no_direction_counts_twice_however_often_it_is_stopped(
    seed: int, tmp_path: Path
) -> None:
    """Stragglers are left behind and count late, across the lives of the coordinator."""
    moments = random.Random(seed)
    pool = {"quorum": 0.6, "max_staleness": 2, "minimum_task_seconds": 0.0, "task_seconds": 0.01}
    spec = spec_of(**{**EXACT, "pool": pool, "stop": {"updates": 12}})
    async with broker(tmp_path / "broker") as url, contextlib.AsyncExitStack() as stack:
        async with led(spec, tmp_path, url) as run:
            workers_here = await stack.enter_async_context(workers(run, 3))
            await workers_here[0].until(lambda: workers_here[0].version >= moments.randint(1, 3))
        for goal in (5, 8):
            async with resumed(tmp_path, url):
                await workers_here[1].until(lambda goal=goal: workers_here[1].version >= goal)
        async with resumed(tmp_path, url) as run:
            outcome = await run.outcome()
    assert outcome.updates == 12
    counted: list[int] = []
    with LogReader(run.directory.log_path) as log:
        for row in log.rows():
            for cohort in run.leader.authority.open_update(row.payload).cohorts:
                weights = unpack_integers(cohort.weights, spec.directions)
                counted += (cohort.first + np.flatnonzero(weights)).tolist()
    assert len(set(counted)) == len(counted) > 12 * 32 * 0.6


async def test_straggler_of_an_earlier_life_counts_late(tmp_path: Path) -> None:
    pool = {"quorum": 0.5, "max_staleness": 1, "minimum_task_seconds": 0.0, "task_seconds": 0.01}
    spec = spec_of(**{**EXACT, "pool": pool, "stop": {"updates": 3}})
    async with (
        broker(tmp_path / "broker") as url,
        led(spec, tmp_path, url) as run,
        run.worker(busy=False, credit=1, speed=300.0) as slow,
    ):
        await slow.until(lambda: bool(slow.heard.tasks))
        held = slow.heard.tasks[0]
        async with run.worker(pause_at=1, speed=300.0) as fast:
            await fast.until(lambda: fast.version >= 1)
            await run.end()
            async with resumed(tmp_path, url) as again:
                await slow.until(lambda: len(slow.heard.welcomes) == 2)
                slow.resume()
                await slow.until(lambda: held.task in slow.heard.acknowledged)
                assert slow.heard.acknowledged[held.task] == "accepted"
                fast.resume()
                await again.outcome()
    with LogReader(run.directory.log_path) as log:
        _, second, _ = (run.leader.authority.open_update(row.payload) for row in log.rows())
    assert held.first in [cohort.first for cohort in second.cohorts], "it is of batch 0"


async def test_counters_go_on(tmp_path: Path) -> None:
    spec = spec_of(**EXACT)
    async with led(spec, tmp_path / "whole") as run, workers(run, 1):
        whole = await run.outcome()
    async with broker(tmp_path / "broker") as url:
        async with led(spec, tmp_path, url) as run, workers(run, 1, pause_at=3) as pool:
            await pool[0].until(lambda: len(pool[0].heard.updates) >= 3)
            async with asyncio.timeout(DEADLINE):
                while run.server.progress.centre is None or run.server.progress.version < 3:
                    await asyncio.sleep(0.01)
            first = dataclasses.replace(run.server.progress)
            run.server.pause("enough for today")
            assert (await run.outcome()).state == "paused"
        async with resumed(tmp_path, url) as run, workers(run, 1):
            before = run.course.recovered
            assert before.seconds > 0.0
            assert (before.progress.episodes, before.progress.steps, before.progress.mean) == (
                first.episodes,
                first.steps,
                first.mean,
            )
            assert first.wire_bytes >= before.progress.wire_bytes > 0
            outcome = await run.outcome()
    assert outcome.params_hash == whole.params_hash
    assert outcome.progress.episodes == whole.progress.episodes
    assert outcome.progress.steps == whole.progress.steps
    assert outcome.progress.wire_bytes > before.progress.wire_bytes
    with LogReader(run.directory.log_path) as log:
        rows = list(log.rows())
        assert [row.version for row in rows] == list(range(6))
        assert [row.seconds for row in rows] == sorted(row.seconds for row in rows)
        assert {row.version for row in log.evaluations()} == set(range(7))
        assert log.results() == []


@pytest.mark.parametrize(
    ("rule", "reason"),
    [({"episodes": 128}, "128 episodes are used"), ({"seconds": 60.0}, "60 s have passed")],
)
async def test_limits_are_those_of_the_whole_run(
    rule: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    """Not of each life: 32 episodes an update, and a first life of a minute."""
    spec = spec_of(stop={"updates": None, **rule})
    async with (
        broker(tmp_path / "broker") as url,
        led(spec, tmp_path, url) as run,
        run.worker(pause_at=2) as worker,
    ):
        await worker.until(lambda: len(worker.heard.updates) >= 2)
        run.server._maker._began -= 60.0 if "seconds" in rule else 0.0
        run.server.pause("enough for today")
        await run.outcome()
        await run.end()
        worker.resume()
        async with resumed(tmp_path, url) as again:
            outcome = await again.outcome()
    assert outcome.reason.startswith(reason)
    assert outcome.updates == 4 if "episodes" in rule else outcome.updates <= 3


async def test_paused_run_lets_workers_wait(tmp_path: Path) -> None:
    async with (
        broker(tmp_path / "broker") as url,
        led(spec_of(), tmp_path, url) as run,
        run.worker(pause_at=2) as worker,
    ):
        await worker.until(lambda: len(worker.heard.updates) >= 2)
        run.server.pause("the host shuts down")
        outcome = await run.outcome()
        await worker.until(lambda: worker.heard.beats[-1].phase == "lost")
        assert worker.heard.epochs[-1].state == "paused"
        assert worker.heard.epochs[-1].reason == "the host shuts down"
        assert (outcome.version, outcome.reached) == (2, False)
        await run.end()
        worker.resume()
        async with resumed(tmp_path, url) as again:
            await again.outcome()
            await worker.until(lambda: worker.heard.epochs[-1].state == "finished")


async def test_stopped_run_can_go_on_and_a_finished_one_cannot(tmp_path: Path) -> None:
    async with broker(tmp_path / "broker") as url:
        async with led(spec_of(), tmp_path, url) as run, run.worker() as worker:
            await worker.until(lambda: len(worker.heard.updates) >= 2)
            run.server.stop("stopped by the host (SIGINT)")
            assert (await run.outcome()).state == "stopped"
        async with resumed(tmp_path, url) as run, run.worker():
            assert (await run.outcome()).updates == 5
    with pytest.raises(EndedError, match=r"has ended at version 5: 5 updates are made; .*fork"):
        host.resume(tmp_path / "run")


async def test_a_run_spec_never_changes(tmp_path: Path) -> None:
    async with led(spec_of(stop={"updates": 99}), tmp_path) as run, workers(run, 1) as pool:
        await pool[0].until(lambda: len(pool[0].heard.updates) >= 2)
    directory = tmp_path / "run"
    written = (directory / "spec.toml").read_text()
    (directory / "spec.toml").write_text(written.replace("sigma = 0.1", "sigma = 0.5"))
    assert (directory / "spec.toml").read_text() != written
    with pytest.raises(DirectoryError, match="was changed since the run began"):
        host.resume(directory)
    with pytest.raises(DirectoryError, match="was changed since the run began"):
        verify_directory(directory, (), lambda done, whole: None)
    (directory / "spec.toml").unlink()
    again = host.resume(directory)
    again.directory.close()
    assert again.spec == run.server.spec
    assert (directory / "spec.toml").read_text() == written


async def test_late_verdict_is_reached_after_a_restart(tmp_path: Path) -> None:
    """The centre of version 0 is judged in the second life, at version 2."""
    spec = spec_of(stop={"target": -100.0, "updates": 50})
    async with broker(tmp_path / "broker") as url:
        async with led(spec, tmp_path, url) as run, run.worker(judge_at=99, pause_at=2) as worker:
            await worker.until(lambda: len(worker.heard.updates) >= 2)
        async with resumed(tmp_path, url) as run, run.worker():
            assert run.course.recovered.unjudged == (0, 1, 2)
            outcome = await run.outcome()
    assert outcome.reached and outcome.version == 0 and outcome.updates >= 2


async def test_evaluations_are_told_in_updates(tmp_path: Path) -> None:
    """Standbys know them, also those that were judged in the moment before a crash."""
    async with broker(tmp_path / "broker") as url:
        async with led(spec_of(), tmp_path, url) as run, workers(run, 1, pause_at=2) as pool:
            await pool[0].until(lambda: len(pool[0].heard.updates) >= 2)
            pool[0].pause_at = 1 << 40  # judges version 2, then waits for the end
        async with resumed(tmp_path, url) as run, workers(run, 1):
            await run.outcome()
    with LogReader(run.directory.log_path) as log:
        told = [
            judged.version
            for row in log.rows()
            for judged in run.leader.authority.open_update(row.payload).judged
        ]
        known = [row.version for row in log.evaluations()]
    assert told == sorted(told) and set(known) - set(told) <= {4, 5}


async def test_lost_tail_of_the_log_is_noticed(tmp_path: Path) -> None:
    async with (
        broker(tmp_path / "broker") as url,
        led(spec_of(), tmp_path, url) as run,
        run.worker(pause_at=3) as worker,
    ):
        await worker.until(lambda: len(worker.heard.updates) >= 3)
        await run.end()
        with contextlib.closing(sqlite3.connect(run.directory.log_path)) as database:
            database.execute("DELETE FROM updates WHERE version >= 1")
            database.commit()
        async with resumed(tmp_path, url) as again:
            assert again.course.recovered.version == 1
            with pytest.raises(Behind, match="at version 3, our log ends at 1") as caught:
                await again.outcome()
    assert caught.value.version == 3


async def test_later_epoch_of_somebody_else_makes_room(tmp_path: Path) -> None:
    def epoch(run: Led, number: int, signer: Identity) -> bytes:
        said = Epoch(1, run.run_id, signer.public_key, number, 0, b"", "running", 0, b"d" * 16)
        return signed(signer, "epoch", (run.run_id,), said)

    async with led(spec_of(stop={"updates": 10**6}), tmp_path) as run, run.worker() as worker:
        await worker.until(lambda: bool(worker.heard.epochs))
        topic = topics.epoch(run.run_id)
        worker.link.publish(topic, epoch(run, 9, Identity.generate()), qos=1, retain=True)
        worker.link.publish(topic, epoch(run, 1, run.identity), qos=1, retain=True)
        await worker.until(lambda: len(worker.heard.updates) >= 2)
        assert not run.running.done()
        worker.link.publish(topic, epoch(run, 2, run.identity), qos=1, retain=True)
        with pytest.raises(SteppedAside, match="in epoch 2: stepping aside") as caught:
            await run.outcome()
    assert caught.value.announcement.epoch.number == 2


async def test_results_are_durable_before_they_are_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk takes no results: none is answered for, and the run waits for a better one."""

    def fail(self: UpdateLog, rows: object) -> None:
        raise LogError("no room for results")

    spec = spec_of(strategy={"population": 64}, pool={"minimum_task_seconds": 0.0})
    async with led(spec, tmp_path) as run, run.worker(busy=False, credit=1, speed=300.0) as slow:
        await slow.until(lambda: bool(slow.heard.tasks))
        monkeypatch.setattr(UpdateLog, "keep_results", fail)
        async with run.worker(credit=1) as worker:
            with pytest.raises(LogError, match="no room for results"):
                await run.outcome()
            assert worker.unanswered, "nothing was evaluated: nothing is shown"
            members = {task.task for task in worker.heard.tasks if task.kind == "members"}
            assert not members & worker.heard.acknowledged.keys()
            await worker.until(lambda: worker.heard.epochs[-1].state == "paused")


async def test_what_an_update_has_used_is_written_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing else would write results, they are answered for all the same."""
    monkeypatch.setattr(recorder, "GROUP_SECONDS", 1000.0)
    written: list[Any] = []
    async with led(spec_of(**EXACT), tmp_path) as run:
        monkeypatch.setattr(run.course.log, "keep_results", written.extend)
        async with workers(run, 3) as pool:
            await run.outcome()
        for worker in pool:
            members = {t.task for t in worker.heard.tasks if t.kind == "members"}
            assert members and members <= worker.heard.acknowledged.keys()
    assert not [row for row in written if row.kind == "members"]


async def test_results_are_written_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that came within a moment are synced at once, though their update is far away."""
    monkeypatch.setattr(recorder, "GROUP_SECONDS", 0.5)
    written: list[int] = []
    spec = spec_of(**EXACT, centre={"evaluate_every": 0})
    async with led(spec, tmp_path) as run:
        keep = run.course.log.keep_results

        def counting(rows: Sequence[ResultRow]) -> None:
            written.append(len(rows))
            keep(rows)

        monkeypatch.setattr(run.course.log, "keep_results", counting)
        async with run.worker(busy=False, credit=1, speed=500.0), run.worker(credit=1) as worker:
            await worker.until(lambda: bool(worker.heard.acknowledged))
            assert len(worker.heard.tasks) > 3
    assert len(written) == 1 and written[0] > 3


@pytest.mark.parametrize("keep_returns", [False, True])
async def test_returns_are_kept_for_who_wants_them(keep_returns: bool, tmp_path: Path) -> None:
    spec = spec_of(stop={"updates": 3})
    async with broker(tmp_path / "broker") as url:
        run = Led(host.prepare(spec, tmp_path / "run", keep_returns=keep_returns), url)
        async with run.worker() as worker:
            await run.outcome()
        await run.end()
    with contextlib.closing(sqlite3.connect(run.directory.log_path)) as database:
        rows = database.execute("SELECT task FROM results WHERE kind = 'members'").fetchall()
    members = {task.task for task in worker.heard.tasks if task.kind == "members"}
    assert {task for (task,) in rows} == (members if keep_returns else set())


async def test_held_leases_go_on_in_the_next_epoch(tmp_path: Path) -> None:
    """A worker in the midst of a task is not asked to begin anew, nor is anybody else."""
    async with (
        broker(tmp_path / "broker") as url,
        led(spec_of(), tmp_path, url) as run,
        run.worker(busy=False, credit=1) as worker,
    ):
        await worker.until(lambda: bool(worker.heard.tasks))
        held = worker.heard.tasks[0]
        await run.end()
        async with resumed(tmp_path, url) as again:
            await worker.until(lambda: worker.heard.epochs[-1].number == 2)
            async with asyncio.timeout(DEADLINE):
                while not any("taken up again" in line for line in again.lines):
                    await asyncio.sleep(0.01)
            await worker.until(lambda: len(worker.heard.welcomes) == 2)
            worker.resume()
            await again.outcome()
            assert worker.heard.acknowledged[held.task] == "accepted"
    given = [(task.kind, task.version, task.first) for task in worker.heard.tasks]
    assert given.count((held.kind, held.version, held.first)) == 1


async def test_invented_leases_are_not_believed(tmp_path: Path) -> None:
    async with led(spec_of(), tmp_path) as run, run.worker(busy=False, credit=1) as worker:
        await worker.until(lambda: bool(worker.heard.tasks))
        task = worker.heard.tasks[0]
        worker._waiting = [msgspec.structs.replace(task, count=task.count - 1)]
        worker.say_hello()
        await worker.until(lambda: len(worker.heard.welcomes) >= 2)
        await worker.until(lambda: len(worker.heard.tasks) >= 2)
    assert not any("taken up again" in line for line in run.lines)


async def test_snapshots_are_frozen_while_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(update, "SNAPSHOT_EVERY", 2)
    monkeypatch.setattr(recorder, "SNAPSHOT_SHARE", 1.0)  # however slow the disk is
    spec = spec_of(stop={"updates": 12}, centre={"evaluate_every": 0})
    async with (
        broker(tmp_path / "broker") as url,
        led(spec, tmp_path, url) as run,
        run.worker() as worker,
    ):
        await worker.until(lambda: len(worker.heard.updates) >= 11)
        await run.end()
        kept = run.directory.snapshots.versions()
        assert kept[0] == 0 and 2 <= len(kept) <= 4 and all(v % 2 == 0 for v in kept)
        async with resumed(tmp_path, url) as again:
            outcome = await again.outcome()
    assert outcome.params_hash == params_hash(states_of(spec, 12)[-1].theta)


async def test_snapshot_that_an_archived_log_begins_with_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(update, "SNAPSHOT_EVERY", 2)
    monkeypatch.setattr(recorder, "SNAPSHOT_SHARE", 1.0)  # however slow the disk is
    spec = spec_of(stop={"updates": 30}, centre={"evaluate_every": 0})
    async with (
        broker(tmp_path / "broker") as url,
        led(spec, tmp_path, url) as run,
        run.worker() as worker,
    ):
        await worker.until(lambda: len(worker.heard.updates) >= 12)
        await run.end()
        await asyncio.to_thread(archive, tmp_path / "run", 2, None, lambda done, total: None)
        async with resumed(tmp_path, url) as again:
            assert (await again.outcome()).version == 30
    kept = again.directory.snapshots.versions()
    assert kept[:2] == [0, 2] and kept[2] > 12
    verdict = await asyncio.to_thread(
        verify_directory, tmp_path / "run", (), lambda done, total: None
    )
    assert verdict.sound and (verdict.base, verdict.reached) == (2, 30)


async def test_delegates_hold_from_the_epoch_that_names_them(tmp_path: Path) -> None:
    friend, other = Identity.generate(), Identity.generate()
    digests = tuple(key_digest(person.public_key) for person in (friend, other))
    async with broker(tmp_path / "broker") as url:
        run = Led(host.prepare(spec_of(), tmp_path / "run", delegates=digests), url)
        async with run.worker(pause_at=1) as worker:
            await worker.until(lambda: bool(worker.heard.epochs))
            assert worker.heard.epochs[-1].charters == run.leader.authority.charters
            assert run.leader.authority.rank(1, other.public_key) == 2
        await run.end()
        async with resumed(tmp_path, url) as again:
            assert again.leader.authority == run.leader.authority
        last = Led(host.resume(tmp_path / "run", delegates=(digests[1],)), url)
        await last.end()
    assert last.leader.authority.extends(run.leader.authority)
    assert last.leader.authority.rank(2, friend.public_key) == 1
    assert last.leader.authority.rank(3, friend.public_key) is None
    assert last.leader.authority.rank(3, other.public_key) == 1


async def test_foreign_key_does_not_lead(tmp_path: Path) -> None:
    run = host.prepare(spec_of(), tmp_path / "run")
    course = host.load(run, print)
    host.enter(run, course, 1)
    course.log.close()
    run.directory.close()
    key = tmp_path / "foreign.key"
    Identity.generate().save(key)
    again = host.resume(tmp_path / "run", key)
    course = host.load(again, print)
    with pytest.raises(ShoalError, match="may not lead the run test-"):
        host.enter(again, course, 2)
    course.log.close()
    again.directory.close()
