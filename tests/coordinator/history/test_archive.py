from __future__ import annotations

from pathlib import Path

import pytest

from coordinator import host
from coordinator.directory import DirectoryError, RunDirectory
from coordinator.history.archive import Archived, archive
from coordinator.history.listing import lines
from coordinator.history.past import HistoryError, opened
from coordinator.history.rebuild import rebuild
from coordinator.history.repair import repair
from coordinator.history.verify import Verdict, verify_directory
from coordinator.log import LogError, LogReader
from protocol.snapshot import to_bytes
from protocol.state import State
from tests.coordinator.history.conftest import UPDATES, lead, spec
from tests.coordinator.test_log import largest_file


def nothing(done: int, total: int) -> None:
    """Nobody looks at the progress."""


def archived(run_dir: Path, before: int, to: Path | None = None) -> Archived:
    return archive(run_dir, before, to, nothing)


def proved(run_dir: Path, *archives: Path) -> Verdict:
    return verify_directory(run_dir, archives, nothing)


def version_of(run_dir: Path, version: int, *archives: Path) -> bytes:
    with opened(run_dir, archives) as past:
        return to_bytes(rebuild(past, version, False, print, nothing).state)


def test_old_updates_move_and_all_versions_stay(run_dir: Path, states: list[State]) -> None:
    with opened(run_dir) as past:
        rows, evaluations = list(past.log.rows()), past.log.evaluations()
    moved = archived(run_dir, 30)
    assert (moved.first, moved.end, moved.file) == (0, 30, run_dir / "archive-0-30.sqlite")
    assert moved.bytes_after < moved.bytes_before
    with opened(run_dir) as past, LogReader(moved.file) as old:
        assert list(past.log.rows()) == rows[30:] and list(old.rows()) == rows[:30]
        assert (past.base, past.version, old.version) == (30, UPDATES, 30)
        assert past.log.evaluations() == evaluations, "a coordinator counts them"
        assert old.evaluations() == [row for row in evaluations if row.version < 30]
        assert len(past.log.results()) == 1
        assert past.snapshots.versions() == [0, 30, 64]
    for version in (30, 31, 64, UPDATES):
        assert version_of(run_dir, version) == to_bytes(states[version])
    for version in (0, 29, 30, 31, UPDATES):
        assert version_of(run_dir, version, moved.file) == to_bytes(states[version])
    here, whole = proved(run_dir), proved(run_dir, moved.file)
    assert here.sound and (here.base, here.reached, here.snapshots) == (30, UPDATES, (30, 64))
    assert whole.sound and (whole.base, whole.reached) == (0, UPDATES)
    assert whole.state_digest == here.state_digest
    with opened(run_dir, [moved.file]) as past:
        assert [line.version for line in lines(past)] == list(range(1, UPDATES + 1))
    with opened(run_dir) as past:
        assert [line.version for line in lines(past, 3)] == [68, 69, 70]
        assert next(lines(past)).version == 31


def test_archived_version_is_not_to_be_had_without_the_file(run_dir: Path) -> None:
    moved = archived(run_dir, 30)
    with pytest.raises(HistoryError, match=f"give --archive {moved.file.absolute()}"):
        version_of(run_dir, 12)


def test_archives_follow_each_other(run_dir: Path, states: list[State], tmp_path: Path) -> None:
    first = archived(run_dir, 20, tmp_path / "cellar" / "first.sqlite").file
    second = archived(run_dir, 50).file
    assert second.name == "archive-20-50.sqlite"
    assert version_of(run_dir, 5, second, first) == to_bytes(states[5])
    assert version_of(run_dir, 25, second) == to_bytes(states[25])
    assert proved(run_dir, first, second).base == 0
    with pytest.raises(HistoryError, match=r"ends at version 20, .* begins at 50: give --archive"):
        version_of(run_dir, 5, first)
    with pytest.raises(HistoryError, match=f"give --archive {first}"):
        version_of(run_dir, 5, second)


def test_archived_run_goes_on(run_dir: Path, states: list[State]) -> None:
    moved = archived(run_dir, UPDATES - spec().versions_kept)
    reached = lead(host.resume(run_dir), 3)
    assert to_bytes(reached[0]) == to_bytes(states[UPDATES])
    assert proved(run_dir, moved.file).reached == UPDATES + 3


def test_damage_of_an_archived_run_is_mended(run_dir: Path, states: list[State]) -> None:
    moved = archived(run_dir, 30)
    data = bytearray((run_dir / "log.sqlite").read_bytes())
    with LogReader(run_dir / "log.sqlite") as log:
        (payload,) = log.updates(45, 46)
    data[data.index(payload) + 80] ^= 4
    (run_dir / "log.sqlite").write_bytes(data)
    assert proved(run_dir).differences[0].version == 46
    mended = repair(run_dir, print, nothing)
    assert mended is not None and (mended.version, mended.lost) == (45, 25)
    assert proved(run_dir).sound and proved(run_dir, moved.file).base == 0
    assert version_of(run_dir, 12, moved.file) == to_bytes(states[12])


def test_damage_of_the_archive_is_found(run_dir: Path) -> None:
    moved = archived(run_dir, 30)
    data = bytearray(moved.file.read_bytes())
    with LogReader(moved.file) as log:
        (payload,) = log.updates(11, 12)
    data[data.index(payload) + 80] ^= 4
    moved.file.write_bytes(data)
    verdict = proved(run_dir, moved.file)
    assert verdict.differences[0].version == 12 and str(moved.file) in verdict.differences[0].reason
    assert proved(run_dir).sound


@pytest.mark.parametrize("before", [UPDATES - 8, UPDATES, 999])
def test_what_a_coordinator_needs_is_not_archived(run_dir: Path, before: int) -> None:
    assert spec().versions_kept == 9
    with pytest.raises(HistoryError, match=f"--before {before}: give a version from 1 to 61"):
        archived(run_dir, before)
    archived(run_dir, 61)
    with pytest.raises(HistoryError, match="nothing to archive yet"):
        archived(run_dir, 61)


def test_nothing_is_moved_where_there_is_no_room(run_dir: Path) -> None:
    before = (run_dir / "log.sqlite").read_bytes()
    with largest_file(40_000), pytest.raises(LogError, match="free the disk"):
        archived(run_dir, 61)
    assert (run_dir / "log.sqlite").read_bytes() == before
    assert not list(run_dir.glob("*archive*"))
    assert archived(run_dir, 61).end == 61


def test_nothing_is_moved_where_something_is_wrong(run_dir: Path, tmp_path: Path) -> None:
    before = (run_dir / "log.sqlite").read_bytes()
    taken = tmp_path / "taken"
    taken.touch()
    with pytest.raises(HistoryError, match="exists: give another --to"):
        archived(run_dir, 30, taken)
    with pytest.raises(HistoryError, match=r"can't be written .*give another --to"):
        archived(run_dir, 30, taken / "below")
    leading = RunDirectory.open(run_dir)
    with pytest.raises(DirectoryError, match="led by another process"):
        archived(run_dir, 30)
    leading.close()
    assert (run_dir / "log.sqlite").read_bytes() == before
    lead(host.resume(run_dir), 12)
    data = bytearray((run_dir / "log.sqlite").read_bytes())
    with LogReader(run_dir / "log.sqlite") as log:
        (payload,) = log.updates(11, 12)
    data[data.index(payload) + 80] ^= 4
    (run_dir / "log.sqlite").write_bytes(data)
    with pytest.raises(LogError, match="update 11"):
        archived(run_dir, 70)  # though the snapshot at 64 is good
    assert not list(run_dir.glob("*archive*"))
