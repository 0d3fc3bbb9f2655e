"""Settings that a person changes while a run goes on: carried by an update, known to every peer by
the history alone, whoever leads, dies, joins late or replays."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from coordinator import recorder, server, update, wanted
from coordinator.amending import Amending
from coordinator.history.fork import fork
from coordinator.history.listing import lines
from coordinator.history.past import opened
from coordinator.history.rebuild import rebuild
from coordinator.history.settings import settings
from coordinator.history.verify import verify_directory
from coordinator.pool.events import CloseBatch
from protocol import amendments, replay, snapshot
from protocol.amended import NOTHING
from protocol.errors import ShoalError
from protocol.identity import Identity
from protocol.messages import Update
from protocol.spec import RunSpec
from protocol.state import State, params_hash
from tests.coordinator.runs import Led, broker, contribution, led, resumed, spec_of
from tests.coordinator.scripted import ScriptedWorker
from tests.coordinator.standbys import BEATS, appointing, payloads, standing_by
from tests.coordinator.test_handing_on import SPEC as SMALL
from tests.coordinator.test_handing_on import Keeper, Newcomer

EXACT: dict[str, Any] = {
    "normalizer": {"enabled": True},
    "strategy": {"population": 64},
    "optimizer": {"kind": "adam", "learning_rate": 0.05},
    "pool": {"quorum": 1.0, "max_staleness": 0, "minimum_task_seconds": 0.0, "task_seconds": 0.01},
    "stop": {"updates": 8},
}
CHANGES = {"strategy.population": 20.0, "optimizer.learning_rate": 0.01, "stop.updates": 9.0}


# What is wanted lies in a file.


def test_the_last_word_on_a_field_holds_and_is_forgotten_once_done(tmp_path: Path) -> None:
    path = tmp_path / wanted.WANTED
    assert wanted.read(path) == {}
    wanted.add(path, {"stop.target": 1.0, "stop.updates": 7.0})
    wanted.add(path, {"stop.target": 2.0})
    assert wanted.read(path) == {"stop.target": 2.0, "stop.updates": 7.0}
    wanted.remove(path, {"stop.target": 1.0, "stop.updates": 7.0})
    assert wanted.read(path) == {"stop.target": 2.0}, "it was said anew meanwhile"
    wanted.remove(path, {"stop.target": 2.0})
    assert not path.exists()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"stop.target": "x"}',
        '{"a": NaN}',
        json.dumps(dict.fromkeys(map(str, range(65)), 1.0)),
    ],
)
def test_a_damaged_file_is_one_error(text: str, tmp_path: Path) -> None:
    path = tmp_path / wanted.WANTED
    path.write_text(text)
    with pytest.raises(ShoalError, match=r"is damaged .* remove it, and say again what to set"):
        wanted.read(path)


def test_what_is_wanted_waits_for_no_lock_that_other_users_can_have(tmp_path: Path) -> None:
    """They can open all that they may read, and lock it for ever."""
    handle = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    command = "import sys; from pathlib import Path; from coordinator import wanted; "
    command += "wanted.add(Path(sys.argv[1]), {'stop.target': 5.0})"
    path = tmp_path / wanted.WANTED
    subprocess.run([sys.executable, "-c", command, str(path)], check=True, timeout=20.0)
    os.close(handle)
    assert wanted.read(path) == {"stop.target": 5.0}
    assert (tmp_path / wanted.LOCK).stat().st_mode & 0o077 == 0


def test_what_is_new_is_told_once_and_what_holds_already_is_forgotten(tmp_path: Path) -> None:
    path, said = tmp_path / wanted.WANTED, list[str]()
    amending = Amending(spec_of(**EXACT), path, said.append)
    wanted.add(path, {"strategy.population": 64.0, "stop.target": 2.0})
    for _ in range(3):
        assert amending.look(NOTHING) == {"stop.target": 2.0}
    assert said == ["to be set with the next update: stop.target = 2"]
    assert wanted.read(path) == {"stop.target": 2.0}
    path.write_text("{")
    assert amending.look(NOTHING) == amending.look(NOTHING) == {}
    assert len(said) == 2 and "is damaged" in said[1]


# A run that is led.


def by_definition(spec: RunSpec, updates: list[Update]) -> list[State]:
    """The versions of a synchronous run with these amendments: no wire, no pool, no server."""
    states, rules = [replay.initial_state(spec)], replay.arithmetic(spec)
    for version, made in enumerate(updates):
        before = states[-1]
        layout = amendments.layout(spec, before.amended)
        batch = contribution(spec, before, layout.first(version), layout.count(version))
        closed = CloseBatch(version, (batch,), ())
        states.append(update.make(spec, rules, before, 1, closed, made.amendments).after)
    return states


def updates_of(directory: Path) -> list[Update]:
    with opened(directory) as past:
        return [made for _, made in past.updates(0)]


async def carried(run: Led, worker: ScriptedWorker) -> int:
    """The version of the first update with amendments, once the worker has applied one."""

    def found() -> list[int]:
        return [v for v, state in worker.states.items() if state.amended.values]

    await worker.until(lambda: bool(found()))
    return min(found()) - 1


async def test_a_change_is_history_for_who_resumes_and_who_replays(tmp_path: Path) -> None:
    spec = spec_of(**EXACT)
    async with broker(tmp_path / "broker") as url:
        async with led(spec, tmp_path, url) as run, run.worker(pause_at=3) as worker:
            await worker.until(lambda: worker.version == 3)
            wanted.add(run.directory.wanted_path, CHANGES)
            worker.pause_at = 5
            worker.begin()
            await worker.until(lambda: worker.version == 5)
            assert wanted.read(run.directory.wanted_path) == {}
            assert any("strategy.population 64 -> 20 from version 5 on" in s for s in run.lines)
            assert any("stop.updates 8 -> 9 from version 4 on" in s for s in run.lines)
        async with resumed(tmp_path, url) as run, run.worker() as worker:
            assert run.course.recovered.versions.current.amended.values
            outcome = await run.outcome()
            metrics = [m for m in run.metrics if m["kind"] == "update"]
    assert outcome.updates == 9 and outcome.state == "finished"
    made = updates_of(tmp_path / "run")
    assert [m.amendments for m in made] == [{}] * 3 + [CHANGES] + [{}] * 5
    assert [m.learning_rate for m in made] == [0.05] * 4 + [0.01] * 5
    states = by_definition(spec, made)
    assert outcome.params_hash == params_hash(states[-1].theta)
    assert [m["members"] for m in metrics] == [20] * 4
    verdict = verify_directory(tmp_path / "run", (), lambda version, of: None)
    assert verdict.sound and verdict.reached == 9
    with opened(tmp_path / "run") as past:
        told = [line.to_json()["amendments"] for line in lines(past)]
        assert told == [m.amendments for m in made]
        assert "strategy.population=20" in next(
            line.to_text() for line in lines(past) if line.version == 4
        )
        _, found = settings(past)
        since = {each.field: (each.value, each.since, each.spec) for each in found}
        assert since["strategy.population"] == (20.0, 5, 64.0)
        assert since["stop.updates"] == (9.0, 4, 8.0)
        assert since["stop.target"] == (None, 0, None)
        assert past.spec == spec
        origin = rebuild(past, 6, False, lambda line: None, lambda done, of: None).state
        forked = fork(past, origin, {"stop": {"updates": 3}}, tmp_path / "fork")
    assert forked.spec.strategy.population == 20 and forked.spec.stop.updates == 3
    assert dict(forked.amended) == {k: v for k, v in CHANGES.items() if k != "stop.updates"}
    text = (tmp_path / "run" / "metrics.jsonl").read_text()
    assert [json.loads(row)["amendments"] for row in text.splitlines() if "amendments" in row] == [
        CHANGES
    ]


async def test_a_change_survives_a_host_that_is_killed_before_any_update(tmp_path: Path) -> None:
    """It is done once: not again in the next life."""
    spec = spec_of(**EXACT)
    async with broker(tmp_path / "broker") as url:
        async with led(spec, tmp_path, url) as run, run.worker(pause_at=3) as worker:
            await worker.until(lambda: worker.version == 3)
            wanted.add(run.directory.wanted_path, {"strategy.population": 6.0})
        async with resumed(tmp_path, url) as run, run.worker() as worker:
            outcome = await run.outcome()
    made = updates_of(tmp_path / "run")
    assert [m.version for m in made if m.amendments] == [3]
    assert outcome.params_hash == params_hash(by_definition(spec, made)[-1].theta)


async def test_what_the_run_cant_have_is_told_and_forgotten(tmp_path: Path) -> None:
    async with led(spec_of(**EXACT), tmp_path) as run:
        wanted.add(run.directory.wanted_path, {"strategy.population": 7.0})
        async with run.worker():
            outcome = await run.outcome()
    assert outcome.updates == 8
    assert (
        sum("nothing is set: strategy.population is 7: must be even" in s for s in run.lines) == 1
    )
    assert not run.directory.wanted_path.exists()
    assert not any(m.amendments for m in updates_of(tmp_path / "run"))


async def test_a_standby_takes_over_with_what_was_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "BEAT_SECONDS", BEATS)
    monkeypatch.setattr("coordinator.hosting.LISTEN_SECONDS", 0.6)
    spec, delegate = spec_of(**EXACT), Identity(b"1" * 32)
    async with broker(tmp_path / "broker") as url:
        run = appointing(spec, tmp_path / "host", url, delegate)
        root = run.leader.authority.root
        wanted.add(run.directory.wanted_path, CHANGES)
        async with (
            standing_by(run.run_id, root, url, tmp_path / "own", delegate) as standby,
            run.worker(speed=500.0, credit=3, pause_at=2) as worker,
        ):
            await standby.version(2)
            await standby.said("entrusted")
            await worker.until(lambda: worker.version == 2)
            await run.end()
            await worker.until(lambda: worker.key is not None)
            worker.resume()
            outcome = await standby.outcome()
    made = updates_of(tmp_path / "own")
    assert [m.amendments for m in made] == [CHANGES] + [{}] * 8
    assert [m.epoch for m in made] == [1, 1] + [2] * 7
    assert [m.episodes for m in made] == [64] * 2 + [20] * 7
    assert payloads(tmp_path / "own")[:2] == payloads(tmp_path / "host")
    assert outcome.params_hash == params_hash(by_definition(spec, made)[-1].theta)


async def test_who_joins_by_a_snapshot_agrees_on_what_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "SNAPSHOT_SHARE", 1.0)
    async with led(SMALL, tmp_path) as run, Keeper(run.url, run.run_id, pause_at=40) as worker:
        await worker.until(lambda: worker.version == 40)
        wanted.add(run.directory.wanted_path, {"strategy.population": 10.0, "stop.updates": 90.0})
        worker.pause_at = 70
        worker.begin()
        await worker.until(lambda: worker.version == 70)
        async with Newcomer(run.url, run.run_id) as newcomer:
            await newcomer.join()
            await newcomer.until(lambda: newcomer.version == 70)
        ours, theirs = newcomer.states[70], worker.states[70]
        assert not set(newcomer.states) & set(range(1, 64)), "it replayed what it could skip"
        assert ours.amended == theirs.amended != replay.initial_state(SMALL).amended
        assert snapshot.to_bytes(ours) == snapshot.to_bytes(theirs)
        assert amendments.layout(SMALL, ours.amended).count(70) == 5
        worker.resume()
        outcome = await run.outcome()
    assert outcome.updates == 90
