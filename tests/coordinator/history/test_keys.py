from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from coordinator import host
from coordinator.directory import DirectoryError, RunDirectory
from coordinator.history.keys import backup, home_key, read_backup, restore, rotate
from coordinator.history.past import HistoryError, opened
from coordinator.history.repair import repair
from coordinator.history.verify import verify_directory
from coordinator.log import EPOCH
from protocol.errors import ShoalError
from protocol.identity import Identity, key_digest
from tests.coordinator.history.conftest import UPDATES, lead


def nothing(done: int, total: int) -> None:
    """Nobody looks at the progress."""


def key_of(run_dir: Path) -> Identity:
    return Identity.load(run_dir / "run.key")


def may_lead(run_dir: Path) -> tuple[int, int]:
    """(epoch, rank) of who goes on with the run."""
    run = host.resume(run_dir)
    course = host.load(run, lambda line: None)
    try:
        leader = host.enter(run, course, course.epoch + 1)
        return leader.epoch, leader.rank
    finally:
        course.log.close()
        run.directory.close()


def test_new_key_leads_and_the_old_one_does_no_more(run_dir: Path) -> None:
    old = key_of(run_dir)
    rotated = rotate(run_dir)
    assert rotated.identity.public_key == key_of(run_dir).public_key != old.public_key
    assert (rotated.epoch, rotated.kept_as) == (2, run_dir / "run.key.1")
    assert Identity.load(rotated.kept_as).public_key == old.public_key
    assert stat.S_IMODE((run_dir / "run.key").stat().st_mode) == 0o600
    with opened(run_dir) as past:
        assert past.authority.root == old.public_key
        assert past.authority.run_key(1) == old.public_key
        assert past.authority.run_key(2) == rotated.identity.public_key
        assert past.log.noted(EPOCH) == 2
    lead(host.resume(run_dir), 2)
    verdict = verify_directory(run_dir, (), nothing)
    assert verdict.sound and verdict.reached == UPDATES + 2
    (run_dir / "run.key").unlink()
    rotated.kept_as.rename(run_dir / "run.key")
    with pytest.raises(ShoalError, match="may not lead"):
        may_lead(run_dir)


def test_keys_succeed_each_other(run_dir: Path) -> None:
    keys = [key_of(run_dir).public_key]
    for number in range(1, 4):
        rotated = rotate(run_dir)
        keys.append(rotated.identity.public_key)
        assert rotated.kept_as.name == f"run.key.{number}"
    assert len(set(keys)) == 4 and may_lead(run_dir) == (5, 0)
    assert verify_directory(run_dir, (), nothing).sound


def test_delegates_stay_when_the_key_changes(run_dir: Path) -> None:
    delegate = key_digest(Identity.generate().public_key)
    lead(host.resume(run_dir, delegates=(delegate,)), 1)
    assert rotate(run_dir).epoch == 3
    with opened(run_dir) as past:
        assert past.authority.delegates(2) == past.authority.delegates(3) == (delegate,)
    lead(host.resume(run_dir, delegates=()), 1)  # and can be named anew at once
    with opened(run_dir) as past:
        assert past.authority.delegates(4) == ()
    assert verify_directory(run_dir, (), nothing).reached == UPDATES + 2


def test_charters_survive_mending(run_dir: Path) -> None:
    rotate(run_dir)
    lead(host.resume(run_dir), 2)
    data = bytearray((run_dir / "log.sqlite").read_bytes())
    data[:64] = bytes(64)  # SQLite knows nothing more
    (run_dir / "log.sqlite").write_bytes(data)
    mended = repair(run_dir, print, nothing)
    assert mended is not None and mended.version == UPDATES + 2
    assert verify_directory(run_dir, (), nothing).sound and may_lead(run_dir) == (4, 0)


def test_rotation_that_was_cut_off_is_finished(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Path, target: Path) -> Path:
        raise OSError("cut off")

    with monkeypatch.context() as patched, pytest.raises(HistoryError):
        patched.setattr(Path, "replace", fail)
        rotate(run_dir)
    with pytest.raises(ShoalError, match="may not lead"):
        may_lead(run_dir)
    rotated = rotate(run_dir)
    assert rotated.epoch == 2 and key_of(run_dir).public_key == rotated.identity.public_key
    assert may_lead(run_dir) == (3, 0)


def test_nobody_rotates_the_key_of_a_run_that_is_led(run_dir: Path, tmp_path: Path) -> None:
    backup(run_dir, tmp_path / "backup")
    leading = RunDirectory.open(run_dir)
    for attempt in (lambda: rotate(run_dir), lambda: restore(run_dir, tmp_path / "backup")):
        with pytest.raises(DirectoryError, match="led by another process"):
            attempt()
    leading.close()


def test_backup_brings_back_key_secret_and_charters(
    run_dir: Path, copy: Callable[[str], Path], tmp_path: Path
) -> None:
    rotate(run_dir)
    file = tmp_path / "backup"
    made = backup(run_dir, file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert read_backup(file).secret == made.secret == (run_dir / "secret").read_bytes()
    with pytest.raises(HistoryError, match="no backup is overwritten"):
        backup(run_dir, file)
    # What a standby has: all updates, and neither key nor secret.
    standby = copy("standby")
    for name in ("run.key", "secret"):
        (standby / name).unlink()
    held, kept_as = restore(standby, file)
    assert held.identity.public_key == key_of(run_dir).public_key and kept_as is None
    assert key_of(standby).public_key == held.identity.public_key
    assert (standby / "secret").read_bytes() == made.secret
    assert may_lead(standby)[1] == 0
    assert restore(standby, file)[1] is None


def test_other_key_that_lies_there_is_kept(run_dir: Path, tmp_path: Path) -> None:
    backup(run_dir, tmp_path / "backup")
    (run_dir / "run.key").unlink()
    other = Identity.generate()
    other.save(run_dir / "run.key")
    held, kept_as = restore(run_dir, tmp_path / "backup")
    assert kept_as is not None and Identity.load(kept_as).public_key == other.public_key
    assert key_of(run_dir).public_key == held.identity.public_key
    (run_dir / "run.key").write_bytes(b"rubbish")
    assert restore(run_dir, tmp_path / "backup")[1] is not None


def test_backup_from_before_a_rotation_is_refused(run_dir: Path, tmp_path: Path) -> None:
    backup(run_dir, tmp_path / "backup")
    rotate(run_dir)
    before = (run_dir / "run.key").read_bytes()
    with pytest.raises(HistoryError, match="succeeded by another one from epoch 2 on"):
        restore(run_dir, tmp_path / "backup")
    assert (run_dir / "run.key").read_bytes() == before


def test_backup_of_another_run_is_refused(
    run_dir: Path, copy: Callable[[str], Path], tmp_path: Path
) -> None:
    backup(run_dir, tmp_path / "backup")
    other = tmp_path / "other"
    lead(host.prepare(host.resume(copy("read")).spec, other), 1)
    with pytest.raises(HistoryError, match="is a backup of the run"):
        restore(other, tmp_path / "backup")


@pytest.mark.parametrize(
    "change",
    [
        lambda content: "no JSON",
        lambda content: "[]",
        lambda content: json.dumps(content | {"format": "other"}),
        lambda content: json.dumps(content | {"key": "00"}),
        lambda content: json.dumps(content | {"secret": "zz"}),
        lambda content: json.dumps(content | {"charters": ["00"]}),
        lambda content: json.dumps(content | {"charters": 5}),
        lambda content: json.dumps(content | {"root": "00" * 32}),
        lambda content: json.dumps(content | {"run": None}),
        lambda content: json.dumps({"format": content["format"]}),
    ],
)
def test_file_that_is_no_backup_is_one_line(
    run_dir: Path, tmp_path: Path, change: Callable[[dict[str, object]], str]
) -> None:
    file = tmp_path / "backup"
    backup(run_dir, file)
    file.write_text(change(json.loads(file.read_text())))
    with pytest.raises(HistoryError, match="is no backup of a run's key") as caught:
        restore(run_dir, file)
    assert "\n" not in str(caught.value)
    with pytest.raises(HistoryError, match="No such file"):
        read_backup(tmp_path / "nothing")


def test_key_of_this_machine_lies_at_home(tmp_path: Path) -> None:
    assert home_key(str(tmp_path)) == tmp_path / "host.key"
    assert home_key("").parts[-3:] == ("share", "shoal", "host.key")
