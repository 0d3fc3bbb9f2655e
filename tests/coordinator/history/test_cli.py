"""The commands about a run's past as a user meets them."""

from __future__ import annotations

import json
import shutil
import sqlite3
import sys
from pathlib import Path

import pytest

import shoal
from coordinator import host
from coordinator.history.cli import this_command
from protocol import command
from protocol.identity import Identity
from protocol.spec import RunSpec
from protocol.state import State, params_hash
from tests.coordinator.history.conftest import lead
from tests.coordinator.runs import spec_of

UPDATES = 12


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[State]]:
    where = tmp_path_factory.mktemp("written") / "run"
    spec: RunSpec = spec_of(stop={"updates": UPDATES})
    return where, lead(host.prepare(spec, where), UPDATES)


@pytest.fixture
def run_dir(written: tuple[Path, list[State]], tmp_path: Path) -> Path:
    return Path(shutil.copytree(written[0], tmp_path / "run"))


class Said:
    """Calls the command, and keeps what it said."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: object, code: int = 0) -> str:
        """Its output; where it must fail, the error."""
        assert command.run(shoal.app, [str(argument) for argument in arguments]) == code
        said = self._capsys.readouterr()
        if code == 2:
            assert said.out == "" and said.err.startswith("error: ") and said.err.count("\n") == 1
            return said.err
        return said.out


@pytest.fixture
def shoal_says(capsys: pytest.CaptureFixture[str]) -> Said:
    return Said(capsys)


def damage(run_dir: Path, version: int) -> None:
    connection = sqlite3.connect(run_dir / "log.sqlite")
    connection.execute("UPDATE updates SET payload = zeroblob(9) WHERE version = ?", (version,))
    connection.commit()
    connection.close()


def test_replay_prints_the_version(
    run_dir: Path, written: tuple[Path, list[State]], shoal_says: Said, tmp_path: Path
) -> None:
    digest, file = params_hash(written[1][7].theta), tmp_path / "policy.safetensors"
    said = shoal_says("replay", run_dir, "--version", 7, "--save", file)
    assert digest in said and "7 updates" in said and file.stat().st_size > 0
    told = json.loads(shoal_says("replay", run_dir, "--version", 7, "--json", "--from-start"))
    assert (told["version"], told["params_hash"], told["from_version"]) == (7, digest, 0)
    assert told["versions_per_second"] > 0 and told["saved"] is None
    assert shoal_says("replay", run_dir, "--version", 0).endswith(" s\n")
    exported = run_dir / "seventh.safetensors"
    said = shoal_says("export", run_dir, "--version", 7, "--to", "safetensors", "--out", exported)
    assert f"version 7 in {exported}" in said and exported.exists()


def test_log_prints_a_line_for_each_update(run_dir: Path, shoal_says: Said) -> None:
    assert len(shoal_says("log", run_dir).splitlines()) == 1 + UPDATES
    assert len(shoal_says("log", run_dir, "--last", 3).splitlines()) == 1 + 3
    told = [json.loads(line) for line in shoal_says("log", run_dir, "--json").splitlines()]
    assert [each["version"] for each in told] == list(range(1, UPDATES + 1))


def test_verify_says_so_by_its_exit_code(run_dir: Path, shoal_says: Said) -> None:
    assert "sound" in shoal_says("verify", run_dir)
    told = json.loads(shoal_says("verify", run_dir, "--json"))
    assert told["ok"] and told["first_difference"] is None and told["version"] == UPDATES
    assert told["times_faster"] > 1 and told["trained_seconds"] == UPDATES
    damage(run_dir, 5)
    assert "first difference at version 6: " in shoal_says("verify", run_dir, code=1)
    told = json.loads(shoal_says("verify", run_dir, "--json", code=1))
    assert not told["ok"] and told["first_difference"]["version"] == 6
    (run_dir / "log.sqlite").write_bytes(b"no log at all" * 1000)
    told = json.loads(shoal_says("verify", run_dir, "--json", code=1))
    assert told["first_difference"]["version"] == 0


def test_repair_says_what_is_kept_and_lost(run_dir: Path, shoal_says: Said) -> None:
    assert "nothing to repair" in shoal_says("repair", run_dir)
    damage(run_dir, 5)
    said = shoal_says("repair", run_dir)
    assert "kept: everything up to version 5" in said and "lost: 7 updates" in said
    assert "log.damaged-1.sqlite" in said
    assert "sound" in shoal_says("verify", run_dir)


def test_fork_can_be_led_at_once(run_dir: Path, shoal_says: Said, tmp_path: Path) -> None:
    where, change = tmp_path / "fork", ("--set", "strategy.sigma=0.05")
    said = shoal_says("fork", run_dir, "--version", 4, *change, "--run-dir", where)
    assert f"host --resume {where}" in said
    assert "sound" in shoal_says("verify", where)
    told = json.loads(
        shoal_says("fork", run_dir, "--version", 4, "--run-dir", f"{where}2", "--seed", 3, "--json")
    )
    assert told["seed"] == 3 and told["parent_version"] == 4
    assert "policy.kind" in shoal_says(
        "fork", run_dir, "--version", 4, "--set", "policy.kind='mlp'", code=2
    )


def test_archive_says_where_the_updates_are(run_dir: Path, shoal_says: Said) -> None:
    said = shoal_says("archive", run_dir, "--before", 3)
    file = run_dir / "archive-0-3.sqlite"
    assert str(file) in said
    assert f"--archive {file}" in shoal_says("replay", run_dir, "--version", 1, code=2)
    assert "version 1" in shoal_says("replay", run_dir, "--version", 1, "--archive", file)
    assert "versions 3 to 12" in shoal_says("verify", run_dir)
    assert "versions 0 to 12" in shoal_says("verify", run_dir, "--archive", file)
    assert len(shoal_says("log", run_dir, "--archive", file).splitlines()) == 1 + UPDATES


def test_keys_are_shown_backed_up_restored_and_rotated(
    run_dir: Path, shoal_says: Said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOAL_HOME", str(tmp_path / "home"))
    shown = shoal_says("key", "show").strip()
    assert Identity.load(tmp_path / "home" / "host.key").fingerprint == shown
    assert shoal_says("key", "show").strip() == shown
    ours = Identity.load(run_dir / "run.key").fingerprint
    assert shoal_says("key", "show", run_dir).strip() == ours
    assert shoal_says("key", "show", "--key", run_dir / "run.key").strip() == ours
    assert "not both" in shoal_says("key", "show", run_dir, "--key", "x", code=2)
    backup = tmp_path / "backup"
    assert ours in shoal_says("key", "backup", run_dir, backup)
    assert "exists" in shoal_says("key", "backup", run_dir, backup, code=2)
    assert ours in shoal_says("key", "restore", run_dir, backup)
    assert "in charge from epoch 2 on" in shoal_says("key", "rotate", run_dir)
    assert shoal_says("key", "show", run_dir).strip() != ours


@pytest.mark.parametrize(
    "arguments",
    [
        ("replay", "--version", "1"),
        ("log",),
        ("verify",),
        ("repair",),
        ("fork", "--version", "1"),
        ("archive", "--before", "1"),
        ("key", "show"),
        ("key", "rotate"),
    ],
)
def test_what_is_no_run_is_one_line(
    arguments: tuple[str, ...], shoal_says: Said, tmp_path: Path
) -> None:
    words = 2 if arguments[0] == "key" else 1
    said = shoal_says(*arguments[:words], tmp_path, *arguments[words:], code=2)
    assert str(tmp_path) in said


def test_version_must_be_one(run_dir: Path, shoal_says: Said) -> None:
    assert "has reached version 12" in shoal_says("replay", run_dir, "--version", 13, code=2)
    assert "-1" in shoal_says("replay", run_dir, "--version", -1, code=2)


@pytest.mark.parametrize(
    ("found", "program", "told"),
    [
        ("/usr/bin/shoal", "/clone/shoal.py", "shoal"),
        (None, "/venv/bin/shoal", "/venv/bin/shoal"),
        (None, "/clone/shoal.py", f"{sys.executable} /clone/shoal.py"),
    ],
)
def test_the_command_that_is_told_can_be_typed(
    found: str | None, program: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: found)
    monkeypatch.setattr("sys.argv", [program])
    assert this_command() == told
