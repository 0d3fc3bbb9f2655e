"""TensorBoard is shown what the metrics say."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest

from coordinator import board
from coordinator.board import Board, scalars


@pytest.fixture(autouse=True)
def wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests' hosts do without, and load the sooner."""
    monkeypatch.delenv(board.SWITCH)


def test_each_number_has_its_tag_and_what_is_not_finite_is_left_out() -> None:
    line = {"kind": "update", "version": 3, "mean_return": -4, "sigma": 0.5, "best_return": None}
    assert scalars(line) == {"return/members": -4.0, "update/sigma": 0.5}
    assert scalars({"kind": "update", "step_cosine": float("nan")}) == {}
    assert scalars({"kind": "centre", "mean_return": 2.5}) == {"return/centre": 2.5}
    assert scalars({"kind": "else", "mean_return": 2.5}) == {}
    tags = [tag for fields in board.TAGS.values() for tag in fields.values()]
    assert len(tags) == len(set(tags))


def test_events_are_read_as_they_were_written(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import (  # type: ignore[import-untyped]
        EventAccumulator,
    )

    shown = Board(tmp_path / "events")
    for version in range(1, 4):
        shown.add({"kind": "update", "version": version, "mean_return": 10.0 * version})
    shown.add({"kind": "centre", "version": 3, "mean_return": 99.0})
    shown.close()
    read = EventAccumulator(str(tmp_path / "events"))
    read.Reload()
    points = [(point.step, point.value) for point in read.Scalars("return/members")]
    assert points == [(1, 10.0), (2, 20.0), (3, 30.0)]
    assert [(point.step, point.value) for point in read.Scalars("return/centre")] == [(3, 99.0)]


def test_a_run_does_without_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("tensorboard")
    (tmp_path / "events").write_text("no folder")
    shown = Board(tmp_path / "events")
    with caplog.at_level(logging.WARNING):
        for version in range(2):
            shown.add({"kind": "update", "version": version, "mean_return": 1.0})
    shown.close()
    assert len(caplog.records) == 1 and "no more events for TensorBoard" in caplog.text


def test_they_can_be_turned_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(board.SWITCH, "0")
    Board(tmp_path / "events").add({"kind": "update", "version": 1, "mean_return": 1.0})
    assert not (tmp_path / "events").exists()


def test_nothing_is_loaded_and_written_where_it_is_not_installed(tmp_path: Path) -> None:
    code = (
        "import importlib.util, json, sys; found = importlib.util.find_spec;"
        "importlib.util.find_spec = lambda name: None if name == 'tensorboard' else found(name);"
        "from pathlib import Path; from coordinator.board import Board; shown = Board(Path('e'));"
        "shown.add({'kind': 'update', 'version': 1, 'mean_return': 1.0}); shown.close();"
        "print(json.dumps(['tensorboard' in sys.modules, Path('e').exists()]))"
    )
    root = str(Path(__file__).parents[2])
    told = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {root!r}); {code}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(told.stdout) == [False, False]
