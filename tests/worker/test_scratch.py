from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

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
