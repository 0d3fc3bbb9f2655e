"""A run directory without any server: what is read from it, what is said where it is damaged."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from coordinator import host, recovery, update
from coordinator import log as update_log
from coordinator.directory import DirectoryError
from coordinator.host import Course, Run
from coordinator.log import DamagedError, EvaluationRow, ResultRow, UpdateRow
from coordinator.pool.events import CentreJudged, CloseBatch
from coordinator.recovery import RecoveryError
from protocol import replay, snapshot
from protocol.identity import lease_token
from protocol.messages import Part, Result, Task, encode
from protocol.packing import pack
from protocol.spec import RunSpec
from protocol.state import State, params_digest
from tests.coordinator.runs import contribution, spec_of
from tests.coordinator.scripted import evaluate, evaluate_part

RUN: dict[str, Any] = {
    "normalizer": {"enabled": True},
    "optimizer": {"kind": "adam", "learning_rate": 0.05},
    "stop": {"target": 0.5, "updates": None},
}
WORKER = "a" * 16


class Made:
    """A run that was led for so many updates, on disk, and closed."""

    def __init__(self, path: Path, updates: int, every: int = 4, **changes: Any) -> None:
        self.spec: RunSpec = spec_of(**{**RUN, **changes})
        self.run: Run = host.prepare(self.spec, path)
        self.course: Course = host.load(self.run, lambda line: None)
        self.leader = host.enter(self.run, self.course, 3)
        self.states: list[State] = [self.course.recovered.versions.current]
        self._rules = replay.arithmetic(self.spec)
        for version in range(updates):
            self.update(version, every)

    def update(self, version: int, every: int, *judged: CentreJudged) -> None:
        before, size = self.states[-1], self.spec.directions
        closed = CloseBatch(version, (contribution(self.spec, before, version * size, size),), ())
        made, payload = update.make_signed(
            self.spec, self._rules, self.leader, before, closed, judged
        )
        self.states.append(made.after)
        row = UpdateRow(version, payload, time.time(), 32, 0, 1.5 * version, 1)
        self.course.log.append(row)
        if made.after.version % every == 0:
            self.run.directory.snapshots.freeze(made.after)

    def close(self) -> None:
        self.course.log.close()
        self.run.directory.close()

    @property
    def path(self) -> Path:
        return self.run.directory.path

    def change(self, statement: str, *values: object) -> None:
        with contextlib.closing(sqlite3.connect(self.path / "log.sqlite")) as database:
            database.execute(statement, values)
            database.commit()


@contextlib.contextmanager
def resumed(path: Path) -> Iterator[tuple[Course, list[str]]]:
    lines: list[str] = []
    run = host.resume(path)
    try:
        course = host.load(run, lines.append)
        yield course, lines
        course.log.close()
    finally:
        run.directory.close()


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(update, "SNAPSHOT_EVERY", 4)


@pytest.fixture
def made(tmp_path: Path) -> Made:
    made = Made(tmp_path / "run", 22)
    made.close()
    return made


def followed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The versions that are replayed from now on."""
    seen: list[int] = []
    follow = replay.follow

    def counting(spec: Any, rules: Any, before: State, made: Any) -> State:
        seen.append(before.version)
        return follow(spec, rules, before, made)

    monkeypatch.setattr(replay, "follow", counting)
    return seen


def test_state_and_last_versions_are_there_again(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = followed(monkeypatch)
    with resumed(made.path) as (course, lines):
        recovered = course.recovered
        kept = made.spec.versions_kept
        assert kept == 9, "the numbers below are about that"
        assert snapshot.to_bytes(recovered.versions.current) == snapshot.to_bytes(made.states[22])
        for version in range(22 - kept, 23):
            point = recovered.versions.get(version)
            assert point.digest == params_digest(made.states[version].theta)
        assert course.epoch == 3 and recovered.seconds == 1.5 * 21 and lines == []
    assert seen == list(range(12, 22)), "from the newest snapshot that gives all of them"


@pytest.mark.parametrize(
    "damage", [lambda data: b"", lambda data: data[:-1], lambda data: data[:-1] + b"\x7f"]
)
def test_damaged_snapshot_is_left_out(
    made: Made, damage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = made.path / "snapshots" / "snapshot-12.bin"
    file.write_bytes(damage(file.read_bytes()))
    seen = followed(monkeypatch)
    with resumed(made.path) as (course, lines):
        assert snapshot.to_bytes(course.recovered.versions.current) == snapshot.to_bytes(
            made.states[22]
        )
    assert seen[0] == 8
    assert len(lines) == 1 and lines[0].startswith("the snapshot of version 12 is left out")


def test_without_snapshots_all_is_replayed(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    for file in (made.path / "snapshots").iterdir():
        file.unlink()
    seen = followed(monkeypatch)
    monkeypatch.setattr(recovery, "TELL_EVERY", 0.0)
    with resumed(made.path) as (course, lines):
        assert course.recovered.version == 22
    assert seen == list(range(22))
    assert "replaying the log: 11 of 22 updates since version 0" in lines


DAMAGES: dict[str, tuple[str, bytes | None]] = {
    "bit in the signature": ("UPDATE updates SET payload = ? WHERE version = 17", None),
    "cut short": ("UPDATE updates SET payload = ? WHERE version = 17", b"\1abc"),
    "gone": ("DELETE FROM updates WHERE version = 17 AND ? IS NOT NULL", b""),
}


@pytest.mark.parametrize("case", DAMAGES)
def test_damaged_update_is_named_with_the_remedy(made: Made, case: str) -> None:
    statement, data = DAMAGES[case]
    if data is None:
        with contextlib.closing(sqlite3.connect(made.path / "log.sqlite")) as database:
            query = "SELECT payload FROM updates WHERE version = 17"
            (payload,) = database.execute(query).fetchone()
        data = payload[:40] + bytes([payload[40] ^ 1]) + payload[41:]
    made.change(statement, data)
    with (
        pytest.raises(DamagedError, match=r"update 17.*shoal repair") as caught,
        resumed(made.path),
    ):
        pass
    assert caught.value.version == 17 and "\n" not in str(caught.value)


def test_update_of_another_place_is_found(made: Made) -> None:
    with contextlib.closing(sqlite3.connect(made.path / "log.sqlite")) as database:
        query = "SELECT payload FROM updates WHERE version = 18"
        (payload,) = database.execute(query).fetchone()
    made.change("UPDATE updates SET payload = ? WHERE version = 17", payload)
    with pytest.raises(DamagedError, match="it is update 18"), resumed(made.path):
        pass


def test_evaluations_are_known_owed_and_told(tmp_path: Path) -> None:
    made = Made(tmp_path / "run", 20)
    for version in range(18):
        row = EvaluationRow(version, 4, -2.0, 0.5, 40, False, time.time(), 100.0 + version)
        made.course.log.record_evaluation(row)
    made.update(20, 4, CentreJudged(14, 4, -2.0, 0.5, 40, False, False))
    made.close()
    with resumed(made.path) as (course, _):
        recovered = course.recovered
        assert recovered.unjudged == (18, 19, 20, 21)
        assert [centre.version for centre in recovered.untold] == [12, 13, 15, 16, 17]
        assert recovered.versions.judged(17) is not None
        assert recovered.progress.centre == recovered.versions.judged(17)
        assert recovered.seconds == 117.0
        assert recovered.progress.episodes == 21 * 32 + 18 * 4
        assert recovered.progress.steps == made.states[-1].steps + 18 * 40


def test_evaluation_that_reached_the_target_is_made_once_more(tmp_path: Path) -> None:
    """The run should have ended with it: it was stopped in that moment."""
    made = Made(tmp_path / "run", 3)
    for version, mean in ((1, 0.9), (2, 0.1)):
        row = EvaluationRow(version, 4, mean, 0.0, 40, True, time.time(), 1.0)
        made.course.log.record_evaluation(row)
    made.close()
    with resumed(made.path) as (course, _):
        assert course.recovered.unjudged == (0, 1, 3)


def test_results_come_back_as_they_were_and_forged_ones_do_not(tmp_path: Path) -> None:
    made = Made(tmp_path / "run", 2)
    secret, size = made.run.directory.read_secret(), made.spec.directions

    def result(task: int, first: int) -> Result:
        lease = (task, WORKER, 2, first, 4, 1, "members")
        token = lease_token(secret, made.run.id, *lease)
        asked = Task(task, "members", 2, b"d" * 16, first, 4, 1, token)
        return evaluate(made.spec, made.states[2], asked)

    good, forged = result(7, 2 * size), result(8, 2 * size + 4)
    whole = result(9, 2 * size + 8)
    asked = Task(9, "members", 2, b"d" * 16, whole.first, 4, 1, whole.token)
    part = evaluate_part(made.spec, made.states[2], asked, 1, 2)
    beyond = msgspec.structs.replace(part, part=Part(2, 2))
    for message, worker in ((good, WORKER), (forged, "b" * 16), (part, WORKER), (beyond, WORKER)):
        row = ResultRow(worker, "c" * 6, message.name, "members", 2, 2, encode(message))
        made.course.log.keep_results([row])
    made.close()
    with resumed(made.path) as (course, lines):
        kept = course.recovered.kept
        assert [one.message for one in kept] == [good, part]
        assert (kept[0].arrived.session, kept[0].arrived.first) == ((WORKER, "c" * 6), 2 * size)
        assert (kept[1].arrived.name, kept[1].arrived.first) == ((9, 1), whole.first + 1)
        assert kept[1].arrived.leased == (whole.first, 4)
    assert len(lines) == 2
    assert lines[0].startswith("the result of task 8 is left out")
    assert lines[1].startswith("the part after 2 of the result of task 9 is left out")


def test_given_version_0_comes_from_its_snapshot(tmp_path: Path) -> None:
    old = Made(tmp_path / "old", 3)
    old.close()
    start = old.states[3]
    first = State(0, start.theta, start.slots, start.sigma, start.normalizer)
    digest = snapshot.state_digest(first).hex()
    spec = spec_of(**RUN, policy={"initialisation": "given", "initial_digest": digest})
    run = host.prepare(spec, tmp_path / "new")
    with pytest.raises(RecoveryError, match="version 0 of the run is not in"):
        host.load(run, print)
    run.directory.snapshots.freeze(start)
    run.directory.snapshots.keep(0, snapshot.to_bytes(start))
    with pytest.raises(RecoveryError, match=f"the spec says {digest}"):
        host.load(run, print)
    run.directory.snapshots.freeze(first)
    course = host.load(run, print)
    assert snapshot.to_bytes(course.recovered.versions.current) == snapshot.to_bytes(first)
    assert course.recovered.gathered
    course.log.close()
    run.directory.close()


def test_archived_log_begins_with_its_base(made: Made) -> None:
    base = snapshot.state_digest(made.states[12]).hex()
    made.change("DELETE FROM updates WHERE version < 12")
    made.change("INSERT INTO meta VALUES (?, ?)", update_log.BASE, 12)
    made.change("INSERT INTO meta VALUES (?, ?)", update_log.BASE_DIGEST, base)
    with resumed(made.path) as (course, _):
        assert course.recovered.version == 22
    (made.path / "snapshots" / "snapshot-12.bin").unlink()
    with pytest.raises(RecoveryError, match="begins at version 12"), resumed(made.path):
        pass


def test_charters_that_prove_nothing_are_no_authority(made: Made) -> None:
    made.change("UPDATE meta SET value = ? WHERE key = ?", pack([b"x" * 80]), update_log.CHARTERS)
    with pytest.raises(RecoveryError, match="does not tell who may lead"), resumed(made.path):
        pass


def test_lost_log_is_not_begun_anew(made: Made) -> None:
    (made.path / "log.sqlite").unlink()
    with pytest.raises(DirectoryError, match="is gone or empty, though"), resumed(made.path):
        pass
    assert not (made.path / "log.sqlite").exists()


@pytest.mark.parametrize("log", [False, True])
def test_host_that_died_before_it_led_can_be_resumed(tmp_path: Path, log: bool) -> None:
    run = host.prepare(spec_of(), tmp_path / "run")
    run.directory.close()
    if log:
        run.directory.log_path.touch()
    with resumed(tmp_path / "run") as (course, _):
        assert (course.recovered.version, course.epoch) == (0, 0)


def test_host_that_died_before_it_wrote_the_spec_left_nothing(tmp_path: Path) -> None:
    run = host.prepare(spec_of(), tmp_path / "run")
    run.directory.close()
    (tmp_path / "run" / "spec.toml").unlink()
    with pytest.raises(DirectoryError, match="never begun"), resumed(tmp_path / "run"):
        pass


@pytest.mark.parametrize("content", [None, b"", b"\xff" * 300])
def test_lost_run_key_is_named_with_the_remedy(made: Made, content: bytes | None) -> None:
    (made.path / "run.key").unlink()
    if content is not None:
        (made.path / "run.key").write_bytes(content)
    with pytest.raises(DirectoryError, match="shoal key restore"), resumed(made.path):
        pass


def test_run_that_lost_its_secret_goes_on_with_a_new_one(made: Made) -> None:
    secret = made.run.directory.read_secret()
    (made.path / "secret").unlink()
    with resumed(made.path) as (course, lines):
        assert course.recovered.version == 22
        assert len([line for line in lines if "has lost the run's secret" in line]) == 1
    with resumed(made.path) as (_, lines):
        assert not lines and made.run.directory.read_secret() != secret
