"""Playing a run's policy gives the returns that its centre was judged by."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from protocol import replay
from protocol import spec as run_spec
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


def test_a_film_has_a_frame_per_step_and_one_before(tmp_path: Path) -> None:
    imageio = pytest.importorskip("imageio.v3")
    kept_run(tmp_path)
    film = tmp_path / "film.mp4"
    (steps,) = play.play(play.load(tmp_path), 1, video=film)  # CartPole rewards each step with 1
    assert len(list(imageio.imiter(film))) == steps + 1


def test_a_film_may_be_a_gif(tmp_path: Path) -> None:
    imageio = pytest.importorskip("imageio.v3")
    kept_run(tmp_path)
    film = tmp_path / "film.gif"
    (steps,) = play.play(play.load(tmp_path), 1, video=film)
    frames = list(imageio.imiter(film))
    assert 1 < len(frames) <= steps + 1  # frames that are alike are one
    assert frames[0].shape == (400, 600, 3)


def test_mistakes_are_named(tmp_path: Path) -> None:
    with pytest.raises(play.PolicyError, match=r"holds no policy\.safetensors"):
        play.load(tmp_path)
    kept_run(tmp_path, params_hash="0" * 32)
    with pytest.raises(play.PolicyError, match="damaged"):
        play.load(tmp_path)
    kept_run(tmp_path)
    other = run_spec.parse(
        run_spec.merge(run_spec.to_plain(SPEC), {"policy": {"hidden": [5]}, "stop": {}})
    )
    (tmp_path / "spec.toml").write_text(run_spec.to_toml(other))
    with pytest.raises(play.PolicyError, match="different runs"):
        play.load(tmp_path)


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    kept_run(tmp_path)
    (tmp_path / "policy.safetensors").write_bytes(b"\xff" * 100)
    with pytest.raises(play.PolicyError, match="can't be read"):
        play.load(tmp_path)
