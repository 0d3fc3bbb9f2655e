"""Playing a run's policy gives the returns that its centre was judged by."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from safetensors.numpy import save_file
from typer.testing import CliRunner

import shoal
from protocol import replay
from protocol import spec as run_spec
from protocol.errors import ShoalError
from protocol.policy_file import PolicyError
from protocol.state import params_hash
from worker import play
from worker.evaluation import environments
from worker.evaluation.jobs import EvaluationJob
from worker.evaluation.lanes import Lanes

SPEC = run_spec.parse(
    {
        "name": "cartpole",
        "seed": 4,
        "environment": {
            "id": "CartPole-v1",
            "observation": {"kind": "box", "shape": [4]},
            "action": {"kind": "discrete", "n": 2},
        },
        "policy": {"kind": "mlp", "hidden": [3]},
    }
)


def kept_run(directory: Path, **about: str) -> np.ndarray:
    """Write a run directory by hand, as the documents describe it; its parameters."""
    theta = np.array(replay.initial_state(SPEC).theta)
    (directory / "spec.toml").write_text(run_spec.to_toml(SPEC))
    tensors = {
        "layers.0.weight": theta[:12].reshape(3, 4),
        "layers.0.bias": theta[12:15],
        "layers.1.weight": theta[15:21].reshape(2, 3),
        "layers.1.bias": theta[21:],
    }
    known = {"version": "7", "run": "cartpole-00000000", "params_hash": params_hash(theta)}
    save_file(tensors, directory / "policy.safetensors", metadata=known | about)
    return theta


def test_returns_are_those_of_the_centre(tmp_path: Path) -> None:
    theta = kept_run(tmp_path)
    policy = play.load(tmp_path)
    np.testing.assert_array_equal(policy.theta, theta)
    heard: list[tuple[int, float, int]] = []
    returns = play.play(policy, 3, on_episode=lambda *said: heard.append(said))
    lanes = Lanes(SPEC, environments.maker(SPEC.environment), 2)
    judged = lanes.evaluate(EvaluationJob("centre", 7, 0, 3), theta)
    lanes.close()
    np.testing.assert_array_equal(returns, judged.returns)
    assert heard == [(e, judged.returns[e], judged.lengths[e]) for e in range(3)]


def test_the_best_policy_is_another_file_of_the_run(tmp_path: Path) -> None:
    kept_run(tmp_path)
    with pytest.raises(PolicyError, match=r"holds no best\.safetensors: no evaluation"):
        play.load(tmp_path, play.BEST)
    (tmp_path / play.LATEST).rename(tmp_path / play.BEST)
    kept_run(tmp_path, version="8")
    assert play.load(tmp_path).version == 8
    assert play.load(tmp_path, play.BEST).version == 7


def test_a_film_has_a_frame_per_step_and_one_before(tmp_path: Path) -> None:
    imageio = pytest.importorskip("imageio.v3")
    kept_run(tmp_path)
    film = tmp_path / "film.mp4"
    (steps,) = play.play(play.load(tmp_path), 1, video=film)  # CartPole rewards each step with 1
    assert len(list(imageio.imiter(film))) == steps + 1


def test_record_films_into_the_run(tmp_path: Path) -> None:
    imageio = pytest.importorskip("imageio.v3")
    kept_run(tmp_path)
    result = CliRunner().invoke(shoal.app, ["record", str(tmp_path)])
    assert result.exit_code == 0 and "film.mp4" in result.output, result.output
    assert len(list(imageio.imiter(tmp_path / "film.mp4"))) > 1


def test_a_film_may_be_a_gif(tmp_path: Path) -> None:
    imageio = pytest.importorskip("imageio.v3")
    kept_run(tmp_path)
    film = tmp_path / "film.gif"
    (steps,) = play.play(play.load(tmp_path), 1, video=film)
    frames = list(imageio.imiter(film))
    assert 1 < len(frames) <= steps + 1  # frames that are alike are one
    assert frames[0].shape == (400, 600, 3)


@pytest.mark.parametrize(
    ("name", "chosen", "camera"),
    [
        ("HalfCheetah-v5", {}, 0),  # its model's only one
        ("HalfCheetah-v5", {"camera_name": "track"}, 0),
        ("InvertedPendulum-v5", {}, -1),  # has none that follows
    ],
)
def test_the_camera_of_a_film_goes_with_the_body(
    name: str, chosen: dict[str, Any], camera: int
) -> None:
    environment = gymnasium.make(name, render_mode="rgb_array", **chosen)
    play.follow(environment)
    assert environment.unwrapped.mujoco_renderer.camera_id == camera
    environment.close()


def test_a_policy_file_in_a_run_directory_can_be_named(tmp_path: Path) -> None:
    theta = kept_run(tmp_path)
    saved = tmp_path / "version-7.safetensors"
    (tmp_path / "policy.safetensors").rename(saved)
    np.testing.assert_array_equal(play.load(saved).theta, theta)
    (tmp_path / "spec.toml").unlink()
    with pytest.raises(PolicyError, match=r"no .*spec\.toml: put the policy into the directory"):
        play.load(saved)


def test_mistakes_are_named(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=r"holds no policy\.safetensors"):
        play.load(tmp_path)
    kept_run(tmp_path, params_hash="0" * 32)
    with pytest.raises(PolicyError, match="damaged"):
        play.load(tmp_path)
    kept_run(tmp_path)
    other = run_spec.parse(
        run_spec.merge(run_spec.to_plain(SPEC), {"policy": {"hidden": [5]}, "stop": {}})
    )
    (tmp_path / "spec.toml").write_text(run_spec.to_toml(other))
    with pytest.raises(PolicyError, match="different runs"):
        play.load(tmp_path)


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    kept_run(tmp_path)
    (tmp_path / "policy.safetensors").write_bytes(b"\xff" * 100)
    with pytest.raises(PolicyError, match="can't be read"):
        play.load(tmp_path)


@contextmanager
def without_rights() -> Iterator[None]:
    """As somebody whom permissions hold: root is nobody for a while."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def test_a_policy_that_may_not_be_read_is_told_from_one_that_is_not_there(tmp_path: Path) -> None:
    kept_run(tmp_path)
    file = tmp_path / "policy.safetensors"
    file.chmod(0)
    with without_rights(), pytest.raises(PolicyError, match="you may not read") as told:
        play.load(tmp_path)
    assert str(file) in str(told.value)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("film.avi", r"ends in \.avi: end its name in \.mp4 or \.gif"),
        ("film", r"ends in nothing: end its name in"),
        ("nowhere/film.mp4", "there is no folder .*nowhere"),
        ("taken.gif", "can't be written .*directory"),
    ],
)
def test_a_film_that_cannot_be_kept_is_refused_before_anything_is_played(
    tmp_path: Path, name: str, words: str
) -> None:
    kept_run(tmp_path)
    (tmp_path / "taken.gif").mkdir()
    before = sorted(tmp_path.iterdir())
    heard: list[Any] = []
    with pytest.raises(ShoalError, match=words) as told:
        play.play(
            play.load(tmp_path),
            1,
            video=tmp_path / name,
            on_episode=lambda *said: heard.append(said),
        )
    assert "\n" not in str(told.value)
    assert heard == []
    assert sorted(tmp_path.iterdir()) == before


def test_a_folder_that_may_not_be_written_is_refused(tmp_path: Path) -> None:
    kept_run(tmp_path)
    policy = play.load(tmp_path)
    closed = tmp_path / "closed"
    closed.mkdir()
    closed.chmod(0o500)
    with without_rights(), pytest.raises(ShoalError, match=r"can't be written .*may write to"):
        play.play(policy, 1, video=closed / "film.mp4")


@pytest.mark.parametrize(("height", "width"), [(35, 52), (34, 51), (36, 50)])
def test_frames_of_a_film_are_not_stretched(
    tmp_path: Path, height: int, width: int, capfd: pytest.CaptureFixture[str]
) -> None:
    imageio = pytest.importorskip("imageio.v3")
    film = tmp_path / "film.mp4"
    writer = play._open_video(film, environments.maker(SPEC.environment))
    frame = np.zeros((height, width, 3), np.uint8)
    frame[:, : width // 2] = 255  # an edge that stretching would move
    for _ in range(3):
        writer.append_data(frame)
    writer.close()
    kept = imageio.imread(film, index=0)
    assert kept.shape == (height + height % 2, width + width % 2, 3)
    bright = (kept[5, :, 0] > 127).sum()
    assert bright == width // 2
    assert capfd.readouterr().err == ""


WINDOW = """
import sys
from pathlib import Path
from worker import play
try:
    play.play(play.load(Path(sys.argv[1])), 1, render=sys.argv[2] == "human")
except play.ShoalError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems need no variable for a window")
def test_a_window_without_a_display_is_one_line_that_names_the_film(tmp_path: Path) -> None:
    kept_run(tmp_path)
    bare = {name: value for name, value in os.environ.items() if name not in play.DISPLAYS}
    said = {}
    for watch in ("human", "none"):
        command = [sys.executable, "-c", WINDOW, str(tmp_path), watch]
        done = subprocess.run(command, capture_output=True, text=True, env=bare, check=True)
        said[watch] = done.stdout.splitlines(), done.stderr
    assert said["none"] == ([], "")
    (line,), errors = said["human"]
    assert "needs a display" in line
    assert "--video" in line
    assert errors == ""
