from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO

import pytest

from worker import scratch as scratch_module
from worker.scratch import Scratch

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_nothing_is_there_before_it_is_needed_nor_afterwards(tmp_path: Path) -> None:
    scratch = Scratch()
    assert scratch.path is None
    assert list(tmp_path.iterdir()) == []
    (scratch.make() / "snapshot").touch()
    assert scratch.make() == scratch.path
    scratch.remove()
    assert list(tmp_path.iterdir()) == []
    Scratch().remove()


@pytest.mark.skipif(sys.platform == "win32", reason="no locks that end with a process")
def test_what_a_killed_process_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    code = "from worker.scratch import Scratch as S; import os; S().make(); os.kill(os.getpid(), 9)"
    command, environment = [sys.executable, "-c", code], {"TMPDIR": str(tmp_path)}
    subprocess.run(command, cwd=ROOT, env=environment, check=False)
    (left,) = tmp_path.iterdir()
    (tmp_path / "shoal-snapshots-other").mkdir()
    first, second = Scratch(), Scratch()
    first.make()
    assert not left.exists()
    second.make()
    assert first.path is not None
    assert first.path.exists()
    assert (tmp_path / "shoal-snapshots-other").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="no locks that end with a process")
@pytest.mark.parametrize("moment", ["before", "during"])
def test_who_sweeps_while_one_is_made_does_no_harm(
    moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = scratch_module._try_lock
    swept = []

    def raced(file: IO[str]) -> bool:
        """What another process does between our file and our lock, or while we try for that."""
        monkeypatch.setattr(scratch_module, "_try_lock", lock)
        swept.append(file.name)
        if moment == "before":
            scratch_module._sweep(tmp_path)
            return lock(file)
        with Path(file.name).open("r+") as theirs:
            assert lock(theirs)
            ours = lock(file)
            Path(file.name).unlink()
        return ours

    monkeypatch.setattr(scratch_module, "_try_lock", raced)
    scratch = Scratch()
    (scratch.make() / "snapshot").touch()
    assert swept and Path(swept[0]).parent != scratch.path
    Scratch().make()
    assert (scratch.make() / "snapshot").exists()
    scratch.remove()
