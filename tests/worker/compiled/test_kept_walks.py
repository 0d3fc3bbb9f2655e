"""The directory of a run in JAX's grid is loaded, filmed and watched like any other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from typer.testing import CliRunner

import shoal
from protocol import spec as run_spec
from protocol.policy_file import to_tensors
from protocol.state import params_hash
from tests.worker.test_stream_frames import JPEG, Notes, played
from worker import bench
from worker.acting import load_policy
from worker.compiled import drawing

ROWS, COLUMNS = 3, 5
GRID = {"rows": ROWS, "columns": COLUMNS, "start": "0,0", "goal": "0,4", "walls": "1,2"}


@pytest.fixture
def walk(tmp_path: Path) -> Path:
    """A run directory with a policy that goes to the right."""
    changes = {"environment": {"kwargs": GRID}, "policy": {"kind": "linear"}}
    subject = bench.untrained("jax:GridWorld-v0", changes)
    tensors = to_tensors(subject.spec, np.zeros_like(subject.theta), None)
    bias = next(values for name, values in tensors.items() if name.endswith("bias"))
    bias[:] = 1.0, 0.0, 0.0, 0.0
    theta = np.concatenate([values.ravel() for values in tensors.values()])
    about = {"version": "7", "run": "walk-00000000", "params_hash": params_hash(theta)}
    (tmp_path / "spec.toml").write_text(run_spec.to_toml(subject.spec))
    save_file(tensors, tmp_path / "policy.safetensors", metadata=about)
    return tmp_path


def walker(picture: drawing.Picture) -> list[int]:
    """Row and column of the cell in which a picture has its walker."""
    side = drawing.LARGEST_CELL
    middles = picture[side // 2 :: side, side // 2 :: side]
    cell: list[int]
    (cell,) = np.argwhere((middles == drawing.BLUE).all(axis=2)).tolist()
    return cell


def test_its_policy_acts_and_each_step_is_drawn(walk: Path) -> None:
    policy = load_policy(walk)
    environment = policy.environment("rgb_array")
    observation, _ = environment.reset(seed=3)
    policy.reset(3)
    cells, over = [walker(environment.render())], False
    while not over:
        observation, _, over, _, _ = environment.step(policy(observation))
        cells.append(walker(environment.render()))
    assert cells == [[0, column] for column in range(COLUMNS)]


def test_it_is_played_and_recorded(walk: Path, recwarn: pytest.WarningsRecorder) -> None:
    imageio = pytest.importorskip("imageio.v3")
    said = CliRunner().invoke(shoal.app, ["play", str(walk), "--episodes", "2"])
    assert said.exit_code == 0 and "1.0" in said.output, said.output
    said = CliRunner().invoke(shoal.app, ["record", str(walk)])
    assert said.exit_code == 0, said.output
    frames = list(imageio.imiter(walk / "film.mp4"))
    assert len(frames) == COLUMNS and not (frames[0] == frames[-1]).all()
    assert not [one for one in recwarn if "fork" in str(one.message)]


def test_it_is_watched_in_the_dashboard(walk: Path) -> None:
    notes = Notes()
    assert next(played(walk, notes)) == 1.0
    assert notes.frames and all(jpeg.startswith(JPEG) for _, jpeg in notes.frames)
    assert notes.told[-1]["steps"] == COLUMNS - 1 and notes.told[-1]["over"]
