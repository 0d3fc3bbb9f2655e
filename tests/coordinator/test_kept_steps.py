"""Runs that keep only better steps: the same end whoever leads, stops, joins or looks back."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from coordinator import server, update
from coordinator.history.fork import carried_over, changed_spec
from coordinator.history.listing import lines
from coordinator.history.past import opened
from coordinator.history.verify import verify_directory
from coordinator.log import LogReader
from coordinator.making import Maker
from coordinator.pool.acceptance import BEGINNING, Acceptance
from coordinator.pool.events import CentreJudged, CloseBatch
from protocol import replay, snapshot
from protocol.identity import Identity
from protocol.spec import RunSpec
from protocol.state import State, params_hash
from tests.coordinator.runs import Led, broker, contribution, led, resumed, spec_of
from tests.coordinator.scripted import DEADLINE, ScriptedWorker, centre_return
from tests.coordinator.standbys import BEATS, appointing, standing_by

UPDATES = 14
CLIMBING: dict[str, Any] = {
    "normalizer": {"enabled": True},
    "strategy": {
        "kind": "hill-climbing",
        "population": 12,
        "mirrored": False,
        "noise": "gaussian",
        "sigma": 0.6,
        "sigma_better": 1.2,
        "sigma_worse": 0.7,
    },
    "optimizer": {"kind": "sgd", "learning_rate": 1.0, "momentum": 0.0},
    "pool": {"minimum_task_seconds": 0.0, "task_seconds": 0.01},
    "stop": {"updates": UPDATES},
}


def climbing(**changes: Any) -> RunSpec:
    return spec_of(**{**CLIMBING, **changes})


def by_hand(spec: RunSpec) -> list[State]:
    """All versions, by definition: no wire, no pool, no server."""
    rules = replay.arithmetic(spec)
    states = [replay.initial_state(spec)]
    acceptance = Acceptance(True, 0, BEGINNING)
    assert spec.stop.updates is not None
    while True:
        state, size = states[-1], spec.directions
        mean = centre_return(state, state.theta)
        acceptance.judge(CentreJudged(state.version, 2, mean, 0.0, 2, False, False))
        if state.version >= spec.stop.updates and not acceptance.rejected:
            return states
        batch = (contribution(spec, state, state.version * size, size),)
        closed = CloseBatch(state.version, batch, ())
        if acceptance.rejected:
            closed = CloseBatch(state.version, (), (), reverts=True)
        states.append(update.make(spec, rules, state, 1, closed).after)
        acceptance.reach(state.version + 1, acceptance.rejected)


SPEC = climbing()
STATES = by_hand(SPEC)
CANDIDATES = [state.version for state in STATES if state.is_candidate]
FAILED = [
    before.version
    for before, after in itertools.pairwise(STATES)
    if before.is_candidate and not after.is_candidate
]


def test_the_course_has_steps_that_are_kept_and_others_that_are_not() -> None:
    assert len(FAILED) >= 3
    assert any(version + 1 in CANDIDATES for version in CANDIDATES)
    goals = [centre_return(s, s.theta) for s in STATES if not s.is_candidate]
    assert goals[-1] > goals[0]
    for version in FAILED:
        before, back = STATES[version].accepted, STATES[version + 1]
        assert before is not None
        assert params_hash(back.theta) == params_hash(before.theta)
        assert back.sigma == pytest.approx(0.7 * STATES[version].sigma)


@contextlib.asynccontextmanager
async def workers(run: Led, count: int, **options: Any) -> AsyncIterator[list[ScriptedWorker]]:
    async with contextlib.AsyncExitStack() as stack:
        pool = [run.worker(speed=500.0, credit=3, **options) for _ in range(count)]
        for worker in pool:
            await stack.enter_async_context(worker)
        yield pool


def hashes(directory: Path) -> list[str]:
    with opened(directory) as past:
        return [line.update.digest_after.hex() for line in lines(past)]


def expected(states: list[State] = STATES) -> list[str]:
    return [params_hash(state.theta) for state in states[1:]]


@pytest.mark.parametrize("count", [1, 3])
async def test_a_pool_takes_the_course_that_the_definition_has(count: int, tmp_path: Path) -> None:
    async with led(SPEC, tmp_path) as run, workers(run, count) as pool:
        outcome = await run.outcome()
        for worker in pool:
            await worker.until(lambda worker=worker: worker.version == STATES[-1].version)
            assert worker.state is not None
            assert snapshot.state_digest(worker.state) == snapshot.state_digest(STATES[-1])
        for task in (task for worker in pool for task in worker.heard.tasks):
            assert task.kind == "centre" or task.version not in FAILED
    assert hashes(tmp_path / "run") == expected()
    assert outcome.version == outcome.updates == STATES[-1].version
    assert outcome.centre is not None and outcome.centre.full
    with opened(tmp_path / "run") as past:
        told = [line.to_json() for line in lines(past)]
    assert [line["version"] - 1 for line in told if line["reverts"]] == FAILED
    rows = [
        json.loads(row) for row in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    ]
    updates = [row for row in rows if row["kind"] == "update"]
    assert [row["version"] - 1 for row in updates if row["reverts"]] == FAILED
    assert verify_directory(tmp_path / "run", (), lambda done, whole: None).sound


@pytest.mark.parametrize("seed", range(3))
async def test_stopped_anywhere_it_takes_the_same_course(seed: int, tmp_path: Path) -> None:
    moments = random.Random(seed)
    async with broker(tmp_path / "broker") as url, contextlib.AsyncExitStack() as stack:
        directory = tmp_path / "run"
        async with led(SPEC, tmp_path, url) as run:
            pool = await stack.enter_async_context(workers(run, 2))
            tasks = moments.randint(1, 30)
            # Of both together: one may do nearly all, and updates are news to either.
            await pool[0].until(lambda: sum(len(each.heard.tasks) for each in pool) >= tasks)
        for _ in range(3):
            goal = min(UPDATES - 1, max(w.version for w in pool) + moments.randint(1, 3))
            async with resumed(tmp_path, url):
                await pool[1].until(lambda goal=goal: pool[1].version >= goal)
        async with resumed(tmp_path, url) as run:
            await run.outcome()
    assert hashes(directory) == expected()


@pytest.mark.parametrize("version", [FAILED[0], FAILED[-1], next(
    v for v in CANDIDATES if v not in FAILED)])  # fmt: skip
async def test_killed_at_a_candidate_it_is_judged_by_who_goes_on(
    version: int, tmp_path: Path
) -> None:
    async with broker(tmp_path / "broker") as url, contextlib.AsyncExitStack() as stack:
        directory = tmp_path / "run"
        async with led(SPEC, tmp_path, url) as run:
            (worker,) = await stack.enter_async_context(workers(run, 1, pause_at=version))
            await worker.until(lambda: any(t.version == version for t in worker.heard.tasks))
            assert {t.kind for t in worker.heard.tasks if t.version == version} == {"centre"}
        async with resumed(tmp_path, url) as run:
            await worker.until(lambda: len(worker.heard.welcomes) == 2)
            worker.resume()
            await run.outcome()
    assert hashes(directory) == expected()


async def test_killed_between_verdict_and_revert_it_reverts_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = FAILED[1]
    make = Maker.make

    async def stuck(self: Maker, closed: CloseBatch) -> None:
        if closed.version == failed:
            await asyncio.sleep(3600.0)
        await make(self, closed)

    async with broker(tmp_path / "broker") as url, contextlib.AsyncExitStack() as stack:
        directory = tmp_path / "run"
        monkeypatch.setattr(Maker, "make", stuck)
        async with led(SPEC, tmp_path, url) as run:
            (worker,) = await stack.enter_async_context(workers(run, 1))
            async with asyncio.timeout(DEADLINE):
                while not judged(directory, failed):
                    await asyncio.sleep(0.02)
            assert run.server._pool.updating
        monkeypatch.setattr(Maker, "make", make)
        asked = len(worker.heard.tasks)
        async with resumed(tmp_path, url) as run:
            await run.outcome()
        again = [task for task in worker.heard.tasks[asked:] if task.version == failed]
        assert not again, "it was judged already"
    assert hashes(directory) == expected()


def judged(directory: Path, version: int) -> bool:
    with LogReader(directory / "log.sqlite") as log:
        return any(row.version == version for row in log.evaluations())


async def test_a_standby_takes_over_at_a_candidate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "BEAT_SECONDS", BEATS)
    monkeypatch.setattr("coordinator.hosting.LISTEN_SECONDS", 0.6)
    delegate, failed = Identity(b"1" * 32), FAILED[1]
    async with broker(tmp_path / "broker") as url:
        run = appointing(SPEC, tmp_path / "host", url, delegate)
        root = run.leader.authority.root
        async with (
            standing_by(run.run_id, root, url, tmp_path / "first", delegate) as standby,
            workers(run, 1, pause_at=failed) as (worker,),
        ):
            await standby.version(failed)
            await standby.said("entrusted")
            await worker.until(lambda: any(t.version == failed for t in worker.heard.tasks))
            await run.end()
            await worker.until(lambda: len(worker.heard.welcomes) == 2)
            worker.resume()
            await standby.outcome()
    assert hashes(tmp_path / "first") == expected()


async def test_who_joins_late_is_in_step(tmp_path: Path) -> None:
    version = FAILED[2] + 1
    async with led(SPEC, tmp_path) as run, run.worker(pause_at=version) as first:
        await first.until(lambda: first.version == version)
        async with run.worker() as late:
            await late.until(lambda: late.version == version)
            assert late.state is not None
            assert snapshot.state_digest(late.state) == snapshot.state_digest(STATES[version])
            first.resume()
            await run.outcome()
    assert hashes(tmp_path / "run") == expected()


async def test_a_pool_that_stops_at_a_failing_candidate_returns_what_is_accepted(
    tmp_path: Path,
) -> None:
    spec = climbing(stop={"updates": FAILED[0]})
    async with led(spec, tmp_path) as run, workers(run, 1):
        outcome = await run.outcome()
    accepted = STATES[FAILED[0]].accepted
    assert accepted is not None
    assert (outcome.version, outcome.updates) == (FAILED[0] + 1, FAILED[0] + 1)
    assert outcome.params_hash == params_hash(accepted.theta)
    assert outcome.centre is not None and outcome.centre.full


@pytest.mark.parametrize("version", [FAILED[0], FAILED[0] + 1])
def test_a_fork_begins_with_an_accepted_version(version: int) -> None:
    spec = changed_spec(SPEC, version, {})
    begun = carried_over(SPEC, spec, STATES[version])
    assert begun.accepted is not None and not begun.is_candidate
    assert params_hash(begun.theta) == params_hash(STATES[version].theta)
    assert begun.sigma == spec.strategy.sigma
    rules = replay.arithmetic(spec)
    restored = snapshot.from_bytes(rules, snapshot.to_bytes(begun))
    assert snapshot.state_digest(restored) == snapshot.state_digest(begun)
    plain = changed_spec(SPEC, version, {"strategy": {"keep": "always", "sigma_better": 1.0,
                                                      "sigma_worse": 1.0}})  # fmt: skip
    assert carried_over(SPEC, plain, STATES[version]).accepted is None
