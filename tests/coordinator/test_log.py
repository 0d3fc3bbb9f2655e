from __future__ import annotations

import dataclasses
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from coordinator.log import (
    ARCHIVE,
    BASE,
    BASE_DIGEST,
    SCHEMA,
    DamagedError,
    EvaluationRow,
    LogError,
    LogReader,
    ResultRow,
    UpdateLog,
    UpdateRow,
    Value,
)
from protocol.messages import ResultName

RUN = "test-00000000"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.sqlite"


def row(version: int, payload: bytes, **changes: object) -> UpdateRow:
    return dataclasses.replace(UpdateRow(version, payload, 9.5, 2, 0, 1.25, 3), **changes)


def filled(path: Path, *sizes: int, keep_returns: bool = False) -> UpdateLog:
    log = UpdateLog(path, RUN, keep_returns=keep_returns)
    for version, size in enumerate(sizes):
        log.append(row(version, bytes([version]) * size))
    return log


def result(name: ResultName, version: int = 0, until: int = 0, **changes: object) -> ResultRow:
    made = ResultRow("a" * 16, "b" * 6, name, "members", version, until, b"result")
    return dataclasses.replace(made, **changes)


def evaluation(version: int, mean: float = 1.5, full: bool = True) -> EvaluationRow:
    return EvaluationRow(version, 100, mean, 0.5, 1234, full, 9.5, 1.25)


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """No file of this process may grow beyond `size` bytes: a disk that is full, to SQLite."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_updates_come_back_in_order_as_they_were(path: Path) -> None:
    log = filled(path, 3, 5, 8)
    assert log.updates(0, 3) == [b"\0" * 3, b"\1" * 5, b"\2" * 8]
    assert log.updates(1, 2) == [b"\1" * 5]
    assert log.updates(2, 2) == log.updates(3, 9) == []
    assert list(log.rows(1)) == [row(1, b"\1" * 5), row(2, b"\2" * 8)]
    assert [r.version for r in log.rows(end=2)] == [0, 1]
    log.close()


def test_rows_are_read_a_few_at_a_time_while_the_log_grows(path: Path) -> None:
    log = filled(path, *([4] * 200))
    seen = []
    for read in log.rows():
        seen.append(read.version)
        if read.version == 100:
            log.append(row(200, b"late"))
    assert seen == list(range(201))
    log.close()


def test_size_is_that_of_the_updates_between(path: Path) -> None:
    log = filled(path, 3, 5, 8)
    assert [log.size(first, 3) for first in range(5)] == [16, 13, 8, 0, 0]
    assert log.size(1 << 40, 3) == 0
    log.close()


def test_page_ends_within_its_bounds_and_has_one_update_at_least(path: Path) -> None:
    log = filled(path, 5, 8, 1, 1, 1)
    assert log.page_end(0, 256, 1 << 20) == 5
    assert log.page_end(2, 2, 1 << 20) == 4
    assert log.page_end(0, 256, 13) == 2
    assert log.page_end(1, 256, 1) == 2
    log.close()


def test_what_was_written_is_there_after_a_kill(path: Path) -> None:
    """No close, no exit handlers: a process that ends with SIGKILL once it was told so."""
    code = (
        "import os, signal, sys; from pathlib import Path; from coordinator.log import *\n"
        f"log = UpdateLog(Path(sys.argv[1]), {RUN!r})\n"
        "log.append(UpdateRow(0, b'first', 9.5, 2, 0, 1.25, 3))\n"
        "log.append(UpdateRow(1, b'second', 9.5, 2, 0, 1.25, 3))\n"
        "log.keep_results([ResultRow('a', 'b', 7, 'members', 2, 2, b'result')])\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], cwd=Path.cwd())
    assert done.returncode == -9
    log = UpdateLog(path, RUN)
    assert (log.version, log.updates(0, 2), log.size(0, 2)) == (2, [b"first", b"second"], 11)
    assert log.results() == [ResultRow("a", "b", 7, "members", 2, 2, b"result")]
    log.append(row(2, b"third"))
    log.close()


def test_every_append_is_synced(path: Path) -> None:
    log = filled(path)
    settings = [
        log._connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("journal_mode", "synchronous")
    ]
    assert settings == ["wal", 2]
    log.close()


def test_versions_have_no_gap_and_no_twin(path: Path) -> None:
    log = filled(path, 1, 1)
    for version in (0, 1, 3):
        with pytest.raises(LogError, match="it ends at version 2"):
            log.append(row(version, b"x"))
    for versions in ((1, 2), (2, 2), (2, 4), (3, 4)):
        with pytest.raises(LogError, match="it ends at version 2"):
            log.extend([row(version, b"x") for version in versions])
    assert log.version == 2
    log.extend([row(2, b"xyz"), row(3, b"x")])
    log.extend([])
    assert (log.version, log.size(0, 4), len(list(log.rows()))) == (4, 6, 4)
    log.close()


def test_results_stay_until_an_update_has_used_them(path: Path) -> None:
    log = filled(path)
    kept = [result(9, until=1), result(3, until=0), result(4, until=2)]
    log.keep_results(kept[:2])
    log.keep_results(kept[2:])
    assert log.results() == kept
    log.append(row(0, b"x"))
    assert log.results() == [kept[0], kept[2]]
    log.append(row(1, b"x"))
    log.append(row(2, b"x"))
    assert log.results() == []
    assert log._connection.execute("SELECT COUNT(*) FROM results").fetchone() == (0,)
    log.close()


def test_result_that_comes_again_takes_the_place_of_the_first(path: Path) -> None:
    log = filled(path)
    log.keep_results([result(1), result(2)])
    log.keep_results([result(1, session="c" * 6), result(1, until=1), result(1, worker="w" * 16)])
    assert [(r.worker[0], r.session[0], r.name, r.until) for r in log.results()] == [
        ("a", "c", 1, 0),
        ("a", "b", 2, 0),
        ("a", "b", 1, 1),
        ("w", "b", 1, 0),
    ]
    log.close()


def test_parts_of_a_task_are_results_of_their_own(path: Path) -> None:
    log = filled(path)
    kept = [result((1, 0)), result((1, 4096)), result(1), result((2, 0))]
    log.keep_results(kept)
    log.keep_results([result((1, 4096), payload=b"again"), result((1, 0), until=1)])
    kept[1] = result((1, 4096), payload=b"again")
    assert log.results() == [*kept, result((1, 0), until=1)]
    log.append(row(0, b"x"))
    assert log.results() == [result((1, 0), until=1)]
    log.close()


def test_group_of_results_is_kept_whole_or_not_at_all(path: Path) -> None:
    log = filled(path)
    with pytest.raises(LogError, match="can't keep results, which are not acknowledged"):
        log.keep_results([result(1), result(2, payload=None)])
    assert log.results() == []
    log.keep_results([result(1)])
    assert log.results() == [result(1)]
    log.close()


def test_results_of_the_centre_stay_until_it_is_judged(path: Path) -> None:
    log = filled(path)
    centre = [result(task, version, kind="centre") for task, version in ((1, 0), (2, 1), (3, 1))]
    log.keep_results(centre)
    log.append(row(0, b"x"))
    assert log.results() == centre
    log.record_evaluation(evaluation(1))
    assert log.results() == centre[:1]
    assert log._connection.execute("SELECT task FROM results").fetchall() == [(1,)]
    log.close()


def test_kept_returns_stay_but_do_not_count_again(path: Path) -> None:
    log = filled(path, keep_returns=True)
    log.keep_results([result(1, until=0), result(2, until=1), result(3, 0, kind="centre")])
    log.append(row(0, b"x"))
    log.record_evaluation(evaluation(0))
    assert [kept.name for kept in log.results()] == [2]
    assert log._connection.execute("SELECT COUNT(*) FROM results").fetchone() == (3,)
    log.close()


def test_evaluation_of_a_version_replaces_the_one_before(path: Path) -> None:
    log = filled(path)
    for judged in (evaluation(7), evaluation(3, 1.0, full=False), evaluation(3, 2.5)):
        log.record_evaluation(judged)
    assert log.evaluations() == [evaluation(3, 2.5), evaluation(7)]
    log.close()


def test_own_updates_that_the_run_went_without_are_set_aside(path: Path) -> None:
    log = filled(path, 1, 2, 3)
    log.keep_results([result(1, 1, until=3), result(2, 2, until=3)])
    for version in (1, 2):
        log.record_evaluation(evaluation(version))
    assert log.set_aside(1, "led by somebody else from version 1 on") == 2
    assert (log.version, log.size(0, 1)) == (1, 1)
    assert [r.name for r in log.results()] == [1]
    assert log.evaluations() == [evaluation(1)]
    log.append(row(1, b"theirs"))
    aside = log.aside_rows()
    assert [kept.update for kept in aside] == [row(1, b"\1" * 2), row(2, b"\2" * 3)]
    assert aside[0].why == "led by somebody else from version 1 on" and aside[0].set_aside_at > 1e9
    assert log.set_aside(9, "nothing") == 0 and log.version == 2
    log.close()
    again = UpdateLog(path, RUN)
    assert (again.version, again.updates(0, 9)) == (2, [b"\0", b"theirs"])
    again.close()


def test_notes_come_back_as_what_they_were(path: Path) -> None:
    log = filled(path)
    notes = {"epoch": 3, "seconds": 1.5, "ended": "target reached", "charters": b"\x91\xc4\x01x"}
    for key, value in notes.items():
        log.note(key, "something else")
        log.note(key, value)
    assert {key: log.noted(key) for key in notes} == notes
    assert log.noted("nothing") is None and log.run == RUN
    log.close()


def test_archived_log_begins_at_its_base(path: Path) -> None:
    log = filled(path, 3, 5, 8)
    log.begin_at(2, b"d" * 16, "cellar.sqlite")
    for _ in range(2):
        assert (log.base, log.version, log.size(2, 3)) == (2, 3, 8)
        log.close()
        log = UpdateLog(path, RUN)
    assert [log.noted(key) for key in (BASE, BASE_DIGEST, ARCHIVE)] == [
        2,
        (b"d" * 16).hex(),
        "cellar.sqlite",
    ]
    assert [r.version for r in log.rows()] == [2]
    with pytest.raises(LogError, match="begins at version 2: 1 is archived"):
        log.size(1, 3)
    log.append(row(3, b"x"))
    log.set_aside(3, "why not")
    assert log.version == 3
    log.close()


def test_log_of_another_run_is_not_touched(path: Path) -> None:
    filled(path, 4).close()
    with pytest.raises(LogError, match=f"belongs to the run {RUN}, not to other-11111111"):
        UpdateLog(path, "other-11111111")
    assert UpdateLog(path, RUN).updates(0, 1) == [b"\0" * 4]


@pytest.mark.parametrize(
    ("format", "remedy"), [(SCHEMA + 1, "upgrade Shoal"), (SCHEMA - 1, "that wrote it")]
)
def test_log_of_another_format_is_left_alone_with_the_remedy(
    path: Path, format: int, remedy: str
) -> None:
    filled(path).close()
    sqlite3.connect(path).execute(f"PRAGMA user_version = {format}")
    before = path.read_bytes()
    for opening in (lambda: UpdateLog(path, RUN), lambda: LogReader(path)):
        with pytest.raises(LogError, match=f"has format {format}, .* only {SCHEMA}: .*{remedy}"):
            opening()
    assert path.read_bytes() == before


def test_file_that_is_no_log_is_named(path: Path) -> None:
    path.write_bytes(b"something else, and longer than a header of SQLite would be" * 20)
    for opening in (lambda: UpdateLog(path, RUN), lambda: LogReader(path)):
        with pytest.raises(LogError, match=r"log\.sqlite can't be opened .*not a database"):
            opening()


def test_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(LogError, match=r"can't be opened .*--run-dir"):
        UpdateLog(tmp_path / "nowhere" / "log.sqlite", RUN)
    with pytest.raises(LogError, match=r"no log .*give the directory of a run"):
        LogReader(tmp_path / "nowhere" / "log.sqlite")


def test_reader_follows_a_log_that_is_written(path: Path) -> None:
    log = filled(path, 1)
    with LogReader(path) as reader:
        assert reader.version == 1
        log.append(row(1, b"more"))
        assert (reader.version, reader.updates(1, 2)) == (2, [b"more"])
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            reader._connection.execute("DELETE FROM updates")
    log.close()


def test_reader_needs_no_right_to_write(path: Path, tmp_path: Path) -> None:
    """A copy of a log that is being written, in a directory where nothing can be made."""
    log = filled(path, 1, 2)
    sealed = tmp_path / "sealed"
    sealed.mkdir()
    for name in ("log.sqlite", "log.sqlite-wal"):
        shutil.copy(path.with_name(name), sealed / name)
    log.close()
    with unwritable(sealed):
        with LogReader(sealed / "log.sqlite") as reader:
            assert reader.updates(0, 9) == [b"\0", b"\1\1"]
        assert sorted(entry.name for entry in sealed.iterdir()) == ["log.sqlite", "log.sqlite-wal"]


def test_reader_of_a_closed_log_needs_no_right_to_write(path: Path) -> None:
    filled(path, 1, 2).close()
    with unwritable(path.parent), LogReader(path) as reader:
        assert reader.updates(0, 9) == [b"\0", b"\1\1"]
    with largest_file(0), LogReader(path) as reader:  # nor room for anything
        assert reader.updates(0, 9) == [b"\0", b"\1\1"]


@contextmanager
def unwritable(directory: Path) -> Iterator[None]:
    """Nothing can be written there, if that is to be had on this machine."""
    if os.geteuid():
        directory.chmod(0o500)
    else:
        bind = ["mount", "--bind", "-o", "ro", str(directory), str(directory)]
        if subprocess.run(bind, capture_output=True).returncode:
            pytest.skip("root can write everywhere, and may not mount here")
    try:
        yield
    finally:
        if os.geteuid():
            directory.chmod(0o700)
        else:
            subprocess.run(["umount", str(directory)], check=True)


def test_failed_append_leaves_the_log_as_it_was(path: Path) -> None:
    log = filled(path, 4)
    log.keep_results([result(1, until=1)])
    wal = path.with_name("log.sqlite-wal").stat().st_size
    with largest_file(wal + 5000):
        with pytest.raises(LogError, match="can't keep update 1, which is not published") as caught:
            log.append(row(1, bytes(200_000)))
        with pytest.raises(LogError, match="can't keep results") as other:
            log.keep_results([result(2, payload=bytes(200_000))])
    for error in (caught, other):
        text = str(error.value)
        assert "\n" not in text and f"`shoal host --resume {path.parent}`" in text
    assert (log.version, log.updates(0, 9), log.results()) == (1, [b"\0" * 4], [result(1, until=1)])
    log.append(row(1, b"now there is room"))
    log.close()
    assert UpdateLog(path, RUN).updates(1, 2) == [b"now there is room"]


def test_full_disk_stops_the_log_and_nothing_is_lost(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(disk)]
    if os.geteuid() or subprocess.run(mounting, capture_output=True).returncode:
        pytest.skip("only root can make a disk so small")
    try:
        log = UpdateLog(disk / "log.sqlite", RUN)
        ballast = disk / "ballast"
        ballast.write_bytes(bytes(100_000))
        with pytest.raises(LogError, match=r"can't keep update \d+.* free the disk"):
            for version in range(1000):
                log.append(row(version, bytes(3000)))
        kept = log.version
        assert kept > 10 and log.updates(0, 9999) == [bytes(3000)] * kept
        log.close()
        ballast.unlink()
        log = UpdateLog(disk / "log.sqlite", RUN)
        assert log.version == kept
        log.append(row(kept, b"on we go"))
        log.close()
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_missing_update_is_named(path: Path) -> None:
    filled(path, 1, 1, 1, 1).close()
    connection = sqlite3.connect(path)
    connection.execute("DELETE FROM updates WHERE version = 2")
    connection.commit()
    connection.close()
    with pytest.raises(DamagedError, match=r"damaged at update 2 .*shoal repair") as caught:
        UpdateLog(path, RUN)
    assert caught.value.version == 2
    with LogReader(path) as reader:
        rows = reader.rows()
        assert [next(rows).version, next(rows).version] == [0, 1]
        with pytest.raises(DamagedError, match="damaged at update 2"):
            next(rows)


def test_update_that_can_not_be_read_is_named(path: Path) -> None:
    filled(path, *([3000] * 40)).close()
    damaged = bytearray(path.read_bytes())
    place = damaged.index(bytes([20]) * 3000) // 4096 * 4096
    damaged[place] ^= 0xFF
    path.write_bytes(damaged)
    seen = []
    with LogReader(path) as reader, pytest.raises(DamagedError) as caught:
        for read in reader.rows():
            seen.append(read.version)
    assert seen == list(range(20)) and caught.value.version == 20


def test_threads_wait_for_each_other(path: Path) -> None:
    log = filled(path)
    failures: list[Exception] = []

    def read() -> None:
        try:
            for _ in range(50):
                seen = log.updates(0, 100)
                assert seen == [bytes([version]) * 9 for version in range(len(seen))]
                log.note("epoch", 1)
        except Exception as error:
            failures.append(error)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for version in range(50):
        log.append(row(version, bytes([version]) * 9))
    for reader in readers:
        reader.join()
    assert not failures and log.version == 50
    log.close()


@pytest.mark.parametrize("noted", ["xyz", "a", 7, b"\x00"])
def test_a_note_that_should_be_octets_and_is_not_is_damage(path: Path, noted: Value) -> None:
    with UpdateLog(path, RUN) as log:
        log.note("octets", "0a0b")
        assert log.noted_octets("octets") == b"\x0a\x0b" and log.noted_octets("other") == b""
        log.note("octets", noted)
        with pytest.raises(LogError, match=r"its note 'octets' is none.*shoal repair"):
            log.noted_octets("octets")
