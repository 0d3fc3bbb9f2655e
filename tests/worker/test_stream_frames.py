"""Frames of the newest policy for who watches: at the speed of life, and gone with the watcher."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import ShoalError
from protocol.film import FRAME, HEAD, NEWS
from tests.worker.test_play import kept_run
from worker import stream_frames

JPEG = b"\xff\xd8"


class Notes:
    """What is said, and a clock that only sleep moves."""

    def __init__(self) -> None:
        self.now = 100.0
        self.frames: list[tuple[float, bytes]] = []
        self.told: list[dict[str, Any]] = []

    def frame(self, jpeg: bytes) -> None:
        self.frames.append((self.now, jpeg))

    def news(self, said: dict[str, Any]) -> None:
        self.told.append(said)

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def played(directory: Path, notes: Notes) -> Any:
    pytest.importorskip("PIL")
    pytest.importorskip("pygame")
    return stream_frames.play(directory, (), notes, lambda: notes.now, notes.sleep)  # type: ignore[arg-type]


def test_an_episode_is_shown_in_ten_frames_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    kept_run(tmp_path)
    notes = Notes()
    total = next(played(tmp_path, notes))
    assert all(jpeg.startswith(JPEG) for _, jpeg in notes.frames)
    steps = int(total)  # CartPole rewards each step with 1; it has 50 a second
    assert notes.frames[0][0] == 100.0 and len(notes.frames) in (steps // 5 + 1, steps // 5 + 2)
    times = [moment for moment, _ in notes.frames]
    assert all(b - a <= 0.1 + 1e-9 for a, b in itertools.pairwise(times))
    assert notes.told[-1] == {
        **{"version": 7, "episode": 0, "steps": steps, "return": total},
        "over": True,
    }


def test_the_next_episode_is_by_the_newest_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    kept_run(tmp_path)
    notes = Notes()
    playing = played(tmp_path, notes)
    for _ in range(2):
        next(playing)
    kept_run(tmp_path, version="12")
    next(playing)
    shown = list(dict.fromkeys((told["version"], told["episode"]) for told in notes.told))
    assert shown == [(7, 0), (7, 1), (12, 0)]


def test_what_cannot_be_shown_is_said_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(ShoalError, match=r"holds no policy\.safetensors: give the directory"):
        next(played(tmp_path, Notes()))


def test_the_process_says_frames_and_ends_with_its_input(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    pytest.importorskip("pygame")
    kept_run(tmp_path)
    command = [sys.executable, "-m", "worker.stream_frames", "--", str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            kinds = []
            for _ in range(3):
                kind, size = HEAD.unpack(process.stdout.read(HEAD.size))
                body = process.stdout.read(size)
                kinds.append(kind)
                assert kind != FRAME or body.startswith(JPEG)
            assert set(kinds) == {FRAME, NEWS}
            nice = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[16]
            assert nice == "19"
            process.stdin.close()
            assert process.wait(10.0) == 0
        finally:
            process.kill()


def test_where_the_run_lies_on_the_host_is_told_nobody(tmp_path: Path) -> None:
    with pytest.raises(ShoalError) as raised:
        next(played(tmp_path, Notes()))
    assert str(tmp_path) in str(raised.value)
    said = stream_frames._public(str(raised.value), tmp_path)
    assert str(tmp_path) not in said and said.startswith(f"{tmp_path.name} holds no policy")


def test_mujoco_is_drawn_in_memory_where_there_is_no_display() -> None:
    environment: dict[str, str] = {}
    stream_frames.draw_without_display(environment)
    assert environment["SDL_VIDEODRIVER"] == "dummy"
    if sys.platform == "linux":
        assert environment["MUJOCO_GL"] in ("osmesa", "egl")
    chosen = {"MUJOCO_GL": "glfw", "DISPLAY": ":1"}
    stream_frames.draw_without_display(chosen)
    assert chosen["MUJOCO_GL"] == "glfw"
