"""Whatever happens to the bytes of a log: it is found, named to the version, and mended."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator import host
from coordinator.directory import DirectoryError, RunDirectory
from coordinator.history.past import HistoryError, opened
from coordinator.history.repair import Repaired, repair
from coordinator.history.verify import Verdict, verify_directory
from coordinator.log import AsideRow, LogError, LogReader, ResultRow, UpdateLog
from protocol.errors import ShoalError
from protocol.frozen import Snapshots
from protocol.snapshot import state_digest, to_bytes
from protocol.state import State, params_hash
from tests.coordinator import runs
from tests.coordinator.history.conftest import UPDATES
from tests.coordinator.test_log import largest_file

SHORT = 12


def nothing(done: int, total: int) -> None:
    """Nobody looks at the progress."""


def proved(run_dir: Path) -> Verdict:
    return verify_directory(run_dir, (), nothing)


def mended(run_dir: Path) -> Repaired | None:
    return repair(run_dir, lambda line: None, nothing)


def change(run_dir: Path, statement: str) -> None:
    connection = sqlite3.connect(run_dir / "log.sqlite")
    connection.execute(statement)
    connection.commit()
    connection.close()


# What is sound.


def test_sound_run_is_proved_whole(run_dir: Path, states: list[State]) -> None:
    verdict = proved(run_dir)
    assert verdict.sound and verdict.differences == ()
    assert (verdict.base, verdict.reached, verdict.claimed) == (0, UPDATES, UPDATES)
    assert verdict.params_hash == params_hash(states[-1].theta)
    assert verdict.state_digest == state_digest(states[-1]).hex()
    assert (verdict.signed_states, verdict.snapshots) == (1, (0, 64))
    assert verdict.versions_per_second > 0 and (verdict.times_faster or 0) > 0
    assert mended(run_dir) is None
    assert not list(run_dir.glob("log.damaged*"))


def test_run_is_proved_while_it_is_led(run_dir: Path) -> None:
    with opened(run_dir) as past:
        run = past.run
    directory, log = RunDirectory.open(run_dir), UpdateLog(run_dir / "log.sqlite", run)
    assert proved(run_dir).sound
    with pytest.raises(DirectoryError, match="led by another process"):
        mended(run_dir)
    log.close()
    directory.close()


# What is not, place by place.


def test_first_difference_is_named(run_dir: Path) -> None:
    change(run_dir, "UPDATE updates SET payload = zeroblob(200) WHERE version IN (40, 50)")
    verdict = proved(run_dir)
    assert not verdict.sound and (verdict.reached, verdict.claimed) == (40, UPDATES)
    assert verdict.differences[0].version == 41 and "update 40" in verdict.differences[0].reason


def test_update_by_somebody_else_is_found(run_dir: Path, copy: Callable[[str], Path]) -> None:
    """The same content, signed with another key."""
    other = copy("other")
    with opened(other) as past:
        payload = bytearray(past.log.updates(20, 21)[0])
    payload[1] ^= 1
    connection = sqlite3.connect(run_dir / "log.sqlite")
    connection.execute("UPDATE updates SET payload = ? WHERE version = 20", (bytes(payload),))
    connection.commit()
    connection.close()
    difference = proved(run_dir).differences[0]
    assert difference.version == 21 and "signature" in difference.reason


def test_wrong_snapshot_is_found_and_moved(run_dir: Path, states: list[State]) -> None:
    Snapshots(run_dir / "snapshots").keep(64, to_bytes(states[63]))
    verdict = proved(run_dir)
    assert verdict.reached == UPDATES
    assert [each.version for each in verdict.differences] == [64]
    repaired = mended(run_dir)
    assert repaired is not None and repaired.version == UPDATES and not repaired.reason
    assert [path.name for path in repaired.moved] == ["snapshot-64.damaged-1.bin"]
    assert proved(run_dir).sound


def test_columns_that_the_message_contradicts_are_found_and_mended(run_dir: Path) -> None:
    change(run_dir, "UPDATE updates SET members = members + 2 WHERE version = 7")
    change(run_dir, "UPDATE evaluations SET mean = mean + 1 WHERE version = 10")
    assert [each.version for each in proved(run_dir).differences] == [8, 10]
    assert mended(run_dir) is not None
    assert proved(run_dir).sound


def test_version_that_was_judged_once_more_is_no_contradiction(run_dir: Path) -> None:
    later = "UPDATE evaluations SET mean = mean + 1, judged_at = judged_at + 999 WHERE version = 10"
    change(run_dir, later)
    assert proved(run_dir).sound


def test_damage_beside_the_updates_is_found(run_dir: Path) -> None:
    change(run_dir, "UPDATE evaluations SET episodes = 'many' WHERE version = 10")
    verdict = proved(run_dir)
    assert verdict.reached == UPDATES == verdict.differences[0].version
    assert "another type" in verdict.differences[0].reason
    repaired = mended(run_dir)
    assert repaired is not None and repaired.version == UPDATES
    assert proved(run_dir).sound
    with LogReader(run_dir / "log.sqlite") as log:  # updates tell it too
        assert 10 in [row.version for row in log.evaluations()]


def test_lost_tail_is_found_by_the_snapshot_beyond_it(run_dir: Path) -> None:
    change(run_dir, "DELETE FROM updates WHERE version >= 60")
    verdict = proved(run_dir)
    assert (verdict.reached, verdict.claimed, verdict.differences[0].version) == (60, 60, 64)
    repaired = mended(run_dir)
    assert repaired is not None and repaired.version == 60 and len(repaired.moved) == 1
    assert proved(run_dir).sound


def test_damage_of_an_index_is_found_and_mended(run_dir: Path) -> None:
    with sqlite3.connect(run_dir / "log.sqlite") as connection:
        (page,) = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'sqlite_autoindex_results_1'"
        ).fetchone()
    data = bytearray((run_dir / "log.sqlite").read_bytes())
    place = data.index(b"a" * 16, 4096 * (page - 1))
    data[place] ^= 1
    (run_dir / "log.sqlite").write_bytes(data)
    verdict = proved(run_dir)
    assert verdict.reached == UPDATES == verdict.differences[0].version
    assert "index" in verdict.differences[0].reason
    assert mended(run_dir) is not None and proved(run_dir).sound


def test_length_that_no_memory_holds_is_damage(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So SQLite puts it where a damaged row claims to be huge."""

    class Greedy:
        def execute(self, query: str, values: object = ()) -> None:
            raise MemoryError

    with LogReader(run_dir / "log.sqlite") as log, monkeypatch.context() as patch:
        patch.setattr(log, "_connection", Greedy())
        with pytest.raises(LogError, match=r"longer than any memory.*shoal repair"):
            log.evaluations()
        with pytest.raises(LogError, match=r"damaged at update 3 .*longer than any memory"):
            list(log.rows(3, 5))


def test_wrong_spec_is_found(run_dir: Path) -> None:
    file = run_dir / "spec.toml"
    file.write_text(file.read_text().replace("seed = 5", "seed = 6"))
    for reading in (proved, mended):
        with pytest.raises(DirectoryError, match="was changed since the run began"):
            reading(run_dir)
    change(run_dir, "DELETE FROM meta WHERE key = 'spec'")
    assert proved(run_dir).differences[0].version in (0, 1)


def test_lost_log_is_said(run_dir: Path) -> None:
    (run_dir / "log.sqlite").unlink()
    for reading in (proved, mended):
        with pytest.raises(ShoalError, match="there is no log"):
            reading(run_dir)


@pytest.mark.parametrize("content", [b"", b"\xff" * 5000])
def test_mending_a_log_without_any_update_does_not_say_that_nothing_is_lost(
    run_dir: Path, content: bytes
) -> None:
    (run_dir / "log.sqlite").write_bytes(content)
    repaired = mended(run_dir)
    assert repaired is not None and (repaired.version, repaired.lost) == (0, None)
    assert repaired.reason == "update 0 is gone"


# What mending keeps.


def test_all_before_the_damage_is_kept_and_the_rest_stays_beside(
    run_dir: Path, states: list[State]
) -> None:
    with opened(run_dir) as past:
        run = past.run
    with closing(UpdateLog(run_dir / "log.sqlite", run)) as log:
        waiting = ResultRow("a" * 16, "b" * 6, 8, "members", 66, UPDATES, b"waiting")
        log.keep_results([waiting])
        log.keep_aside([AsideRow(next(log.rows(9)), 1, 2.5, "somebody else led")])
    before = (run_dir / "log.sqlite").read_bytes()
    with opened(run_dir) as past:
        rows, evaluations, notes = (
            list(past.log.rows()),
            past.log.evaluations(),
            past.log.notes(),
        )
    change(run_dir, "UPDATE updates SET payload = zeroblob(200) WHERE version = 66")
    damaged = (run_dir / "log.sqlite").read_bytes()
    repaired = mended(run_dir)
    assert repaired is not None and (repaired.version, repaired.lost) == (66, 4)
    assert "update 66 is damaged" in repaired.reason
    assert repaired.kept_as.read_bytes() == damaged != before
    with opened(run_dir) as past:
        assert list(past.log.rows()) == rows[:66]
        assert past.log.evaluations() == [row for row in evaluations if row.version <= 66]
        kept = past.log.notes()
        assert kept == {key: value for key, value in notes.items() if key != "ended"}
        assert past.snapshots.versions() == [0, 64]
        assert past.log.results() == [waiting]
        assert past.log.aside_rows() == [AsideRow(rows[9], 1, 2.5, "somebody else led")]
    verdict = proved(run_dir)
    assert verdict.sound and verdict.params_hash == params_hash(states[66].theta)
    change(run_dir, "DELETE FROM updates WHERE version = 50")
    again = mended(run_dir)
    assert again is not None and again.kept_as.name == "log.damaged-2.sqlite"
    assert [path.name for path in again.moved] == ["snapshot-64.damaged-1.bin"]


def test_mended_run_goes_on(run_dir: Path, states: list[State]) -> None:
    change(run_dir, "INSERT OR REPLACE INTO meta VALUES ('ended', 'update 70 was made')")
    with pytest.raises(host.EndedError):
        host.resume(run_dir)
    change(run_dir, "UPDATE updates SET payload = zeroblob(200) WHERE version = 66")
    assert mended(run_dir) is not None
    course = host.load(run := host.resume(run_dir), lambda line: None)
    assert to_bytes(course.recovered.versions.current) == to_bytes(states[66])
    assert (course.epoch, course.log.version) == (1, 66)
    course.log.close()
    run.directory.close()


def test_updates_are_found_where_sqlite_finds_none(run_dir: Path, states: list[State]) -> None:
    """The first page, without which SQLite reads nothing; the table's root; the pages' kinds."""
    data = bytearray((run_dir / "log.sqlite").read_bytes())
    with sqlite3.connect(run_dir / "log.sqlite") as connection:
        (root,) = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'updates'"
        ).fetchone()
    for begin in (0, 4096 * (root - 1)):
        data[begin : begin + 64] = bytes(64)
    for begin in range(0, len(data), 4096):
        data[begin] ^= 0xFF
    (run_dir / "log.sqlite").write_bytes(data)
    verdict = proved(run_dir)
    assert not verdict.sound and verdict.differences[0].version == 0
    repaired = mended(run_dir)
    assert repaired is not None and repaired.version == UPDATES
    verdict = proved(run_dir)
    assert verdict.sound and verdict.params_hash == params_hash(states[-1].theta)


def test_failing_mending_leaves_the_log_as_it_was(run_dir: Path) -> None:
    change(run_dir, "UPDATE updates SET payload = zeroblob(200) WHERE version = 66")
    damaged = (run_dir / "log.sqlite").read_bytes()
    change(run_dir, "DELETE FROM meta WHERE key = 'root'")
    damaged = (run_dir / "log.sqlite").read_bytes()
    (run_dir / "run.key").unlink()
    with pytest.raises(HistoryError, match=r"no update can be proved: restore run\.key"):
        mended(run_dir)
    assert (run_dir / "log.sqlite").read_bytes() == damaged
    assert not list(run_dir.glob("log.repaired*")) and not list(run_dir.glob("log.damaged*"))


def test_mending_needs_room(run_dir: Path) -> None:
    change(run_dir, "UPDATE updates SET payload = zeroblob(200) WHERE version = 66")
    damaged = (run_dir / "log.sqlite").read_bytes()
    with largest_file(40_000), pytest.raises(LogError, match="free the disk, then do it again"):
        mended(run_dir)
    assert (run_dir / "log.sqlite").read_bytes() == damaged
    assert not list(run_dir.glob("log.repaired*")) and not list(run_dir.glob("log.damaged*"))
    repaired = mended(run_dir)
    assert repaired is not None and repaired.version == 66


def test_updates_that_sqlite_takes_for_never_written_come_back(
    short: Path, truth: list[tuple[str, str]], tmp_path: Path
) -> None:
    run_dir = Path(shutil.copytree(short, tmp_path / "run"))
    wal = run_dir / "log.sqlite-wal"
    data = bytearray(wal.read_bytes())
    with LogReader(run_dir / "log.sqlite") as log:
        assert log.version == SHORT
        (payload,) = log.updates(7, 8)
    data[data.index(payload) + 80] ^= 1  # the first copy of that page; later ones are whole
    wal.write_bytes(data)
    verdict = proved(run_dir)
    assert (verdict.reached, verdict.claimed) == (7, 7)
    assert verdict.differences[0].version == 8
    assert "log.sqlite-wal has update 7, which the log lost" in verdict.differences[0].reason
    repaired = mended(run_dir)
    assert repaired is not None and (repaired.version, repaired.lost) == (SHORT, 0)
    after = proved(run_dir)
    assert after.sound and (after.params_hash, after.state_digest) == truth[SHORT]


def test_update_set_aside_is_not_missed(short: Path, tmp_path: Path) -> None:
    run_dir = Path(shutil.copytree(short, tmp_path / "run"))
    with opened(run_dir) as past:
        run = past.run
    with closing(UpdateLog(run_dir / "log.sqlite", run)) as log:
        log.set_aside(9, "somebody else led")
        assert proved(run_dir).sound and proved(run_dir).reached == 9


# What happens to bytes.


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a few updates, as a kill leaves it: partly in the write-ahead log."""
    where = tmp_path_factory.mktemp("short")
    spec = runs.spec_of(stop={"updates": SHORT}, normalizer={"enabled": True})
    asyncio.run(runs.play(spec, where))
    run_dir = where / "run"
    killed = (
        "import os, signal, sys; from pathlib import Path; from dataclasses import replace\n"
        "from coordinator.log import *; path = Path(sys.argv[1]); reader = LogReader(path)\n"
        "rows, run, notes = list(reader.rows()), reader.run, reader.notes()\n"
        "evaluations = reader.evaluations(); reader.close(); path.unlink()\n"
        "log = UpdateLog(path, run)\n"
        "for key, value in notes.items(): log.note(key, value)\n"
        "for row in rows: log.append(row)\n"
        "for row in evaluations: log.record_evaluation(row)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", killed, str(run_dir / "log.sqlite")], cwd=Path.cwd())
    assert (run_dir / "log.sqlite-wal").stat().st_size > 0
    (run_dir / "log.sqlite-shm").unlink()
    return run_dir


@pytest.fixture(scope="module")
def truth(short: Path) -> list[tuple[str, str]]:
    """(params hash, state digest) of each of its versions."""
    with opened(short) as past:
        first = past.beginning()
        reached = [first, *(state for state, _ in past.states(first, SHORT))]
    return [(params_hash(state.theta), state_digest(state).hex()) for state in reached]


Damage = Callable[[bytearray], None]


def flipped(place: float, mask: int) -> Damage:
    """Some bits of one byte are others."""

    def damage(data: bytearray) -> None:
        data[int(place * (len(data) - 1))] ^= mask

    return damage


def cut(place: float) -> Damage:
    """The end is gone."""

    def damage(data: bytearray) -> None:
        del data[int(place * len(data)) :]

    return damage


def blank(place: float, size: int) -> Damage:
    """A few sectors are empty."""

    def damage(data: bytearray) -> None:
        begin = int(place * len(data)) // 512 * 512
        data[begin : begin + size * 512] = bytes(len(data[begin : begin + size * 512]))

    return damage


places = st.floats(0.0, 1.0)
damages = st.one_of(
    st.builds(flipped, places, st.integers(1, 255)),
    st.builds(flipped, places, st.integers(1, 255)),
    st.builds(cut, places),
    st.builds(blank, places, st.integers(1, 9)),
)


@pytest.mark.parametrize("in_the_wal", [False, True], ids=["file", "write-ahead log"])
@settings(max_examples=20, deadline=None)
@given(damages=st.lists(damages, min_size=1, max_size=2))
def test_no_damage_is_taken_for_a_version(
    short: Path, truth: list[tuple[str, str]], in_the_wal: bool, damages: list[Damage]
) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        run_dir = Path(shutil.copytree(short, Path(temporary) / "run"))
        if not in_the_wal:
            sqlite3.connect(run_dir / "log.sqlite").execute("PRAGMA wal_checkpoint(TRUNCATE)")
            for name in ("log.sqlite-wal", "log.sqlite-shm"):
                (run_dir / name).unlink(missing_ok=True)
        file = run_dir / ("log.sqlite-wal" if in_the_wal else "log.sqlite")
        data = bytearray(file.read_bytes())
        for damage in damages:
            if data:
                damage(data)
        file.write_bytes(data)

        verdict = proved(run_dir)
        if verdict.params_hash:
            assert (verdict.params_hash, verdict.state_digest) == truth[verdict.reached]
        if verdict.sound:
            assert verdict.reached == verdict.claimed
        else:
            assert verdict.differences[0].reason and verdict.differences[0].version <= SHORT + 1
        repaired = mended(run_dir)
        assert (repaired is None) == verdict.sound
        if repaired is not None:
            assert repaired.version >= verdict.reached
            after = proved(run_dir)
            assert after.sound and after.reached == repaired.version
            assert (after.params_hash, after.state_digest) == truth[after.reached]
