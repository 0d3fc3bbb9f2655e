from __future__ import annotations

import resource
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from coordinator.log import SCHEMA, LogError, UpdateLog

RUN = "test-00000000"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.sqlite"


def filled(path: Path, *sizes: int) -> UpdateLog:
    log = UpdateLog(path, RUN)
    for version, size in enumerate(sizes):
        log.append(version, bytes([version]) * size, 2, 0)
    return log


def test_updates_come_back_in_order_as_they_were(path: Path) -> None:
    log = filled(path, 3, 5, 8)
    assert log.updates(0, 3) == [b"\0" * 3, b"\1" * 5, b"\2" * 8]
    assert log.updates(1, 2) == [b"\1" * 5]
    assert log.updates(2, 2) == log.updates(3, 9) == []
    log.close()


def test_size_is_that_of_the_updates_between(path: Path) -> None:
    log = filled(path, 3, 5, 8)
    assert [log.size(first, 3) for first in range(5)] == [16, 13, 8, 0, 0]
    assert log.size(1 << 40, 3) == 0
    log.close()


def test_what_was_appended_is_there_after_a_kill(path: Path) -> None:
    """No close, no exit handlers: a process that ends with SIGKILL once `append` has returned."""
    code = (
        "import os, signal, sys; from pathlib import Path; from coordinator.log import UpdateLog\n"
        f"log = UpdateLog(Path(sys.argv[1]), {RUN!r})\n"
        "log.append(0, b'first', 2, 0); log.append(1, b'second', 2, 0)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], cwd=Path.cwd())
    assert done.returncode == -9
    log = UpdateLog(path, RUN)
    assert (log.version, log.updates(0, 2), log.size(0, 2)) == (2, [b"first", b"second"], 11)
    log.append(2, b"third", 2, 0)
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
            log.append(version, b"x", 2, 0)
    assert log.version == 2
    log.close()


def test_evaluation_of_a_version_replaces_the_one_before(path: Path) -> None:
    log = filled(path)
    log.record_evaluation(3, 10, 1.5, 0.5, False)
    log.record_evaluation(3, 100, 2.5, 0.25, True)
    log.close()
    rows = sqlite3.connect(path).execute("SELECT * FROM evaluations").fetchall()
    assert rows == [(3, 100, 2.5, 0.25, 1)]


def test_log_of_another_run_is_not_touched(path: Path) -> None:
    filled(path, 4).close()
    with pytest.raises(LogError, match=f"belongs to the run {RUN}, not to other-11111111"):
        UpdateLog(path, "other-11111111")
    assert UpdateLog(path, RUN).updates(0, 1) == [b"\0" * 4]


def test_log_of_a_later_format_asks_for_an_upgrade(path: Path) -> None:
    filled(path).close()
    sqlite3.connect(path).execute(f"PRAGMA user_version = {SCHEMA + 1}")
    with pytest.raises(LogError, match="upgrade Shoal"):
        UpdateLog(path, RUN)


def test_file_that_is_no_log_is_named(path: Path) -> None:
    path.write_bytes(b"something else, and longer than a header of SQLite would be" * 20)
    with pytest.raises(LogError, match=r"log\.sqlite can't be opened .*not a database"):
        UpdateLog(path, RUN)


def test_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(LogError, match=r"can't be opened .*--run-dir"):
        UpdateLog(tmp_path / "nowhere" / "log.sqlite", RUN)


def test_failed_append_leaves_the_log_as_it_was(path: Path) -> None:
    log = filled(path, 4)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    wal = path.with_name("log.sqlite-wal").stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (wal + 5000, before[1]))
    try:
        with pytest.raises(LogError, match="can't keep update 1, which is not published") as caught:
            log.append(1, bytes(200_000), 2, 0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "\n" not in str(caught.value)
    assert (log.version, log.updates(0, 9)) == (1, [b"\0" * 4])
    log.append(1, b"now there is room", 2, 0)
    log.close()
    assert UpdateLog(path, RUN).updates(1, 2) == [b"now there is room"]


def test_threads_wait_for_each_other(path: Path) -> None:
    log = filled(path)
    failures: list[Exception] = []

    def read() -> None:
        try:
            for _ in range(50):
                seen = log.updates(0, 100)
                assert seen == [bytes([version]) * 9 for version in range(len(seen))]
        except Exception as error:
            failures.append(error)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for version in range(50):
        log.append(version, bytes([version]) * 9, 2, 0)
    for reader in readers:
        reader.join()
    assert not failures and log.version == 50
    log.close()
