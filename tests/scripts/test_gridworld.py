"""The script trains agents that find the way, and draws what they think."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pytest

from scripts import gridworld


def test_agents_are_trained_and_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "grid.png"
    arguments = ["gridworld.py", "--agents", "16", "--steps", "60000", "--out", str(picture)]
    monkeypatch.setattr("sys.argv", arguments)
    gridworld.main()
    assert picture.read_bytes().startswith(b"\x89PNG")
    told = capsys.readouterr().out
    assert "16 agents took 60,000 steps each" in told
    assert "; 18 steps to the goal" in told  # no way is shorter


def test_who_would_turn_in_a_circle_does_not_reach_the_goal() -> None:
    against_the_wall = np.tile([1.0, 0.0, 0.0, 0.0], (96, 1))
    assert gridworld.walked(against_the_wall) == [(7, 11), (7, 11)]
    upwards_then_left = np.tile([0.0, 0.0, 0.0, 1.0], (96, 1))
    upwards_then_left[:12] = [0.0, 0.0, 1.0, 0.0]
    assert len(gridworld.walked(upwards_then_left)) == 19
    assert gridworld.reaching(np.stack([against_the_wall, upwards_then_left])) == 0.5


def test_other_hyperparameters_learn_otherwise() -> None:
    options = argparse.Namespace(agents=16, steps=60_000, seed=0)
    trained = gridworld.train(np.array([0.5, 0.9, 0.1, 0.0]), options, gridworld.ARTICLES)
    assert trained.values.shape == (16, 8, 12)
    assert trained.tables.shape == (16, 96, 4)
    np.testing.assert_allclose(trained.values[:, 7, 11], 0.9**17, rtol=0.05)
    assert gridworld.described(np.array([0.5, 0.9, 0.1, 0.0])).startswith("learning rate 0.5, ")
