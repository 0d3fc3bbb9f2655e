"""Run directories that a real server wrote, each test with copies of its own."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from protocol.spec import RunSpec
from protocol.state import State
from tests.coordinator import runs

UPDATES = 70


def spec() -> RunSpec:
    """Of the run that the tests here read: with a snapshot on the way, slots and statistics."""
    return runs.spec_of(
        policy={"kind": "mlp", "hidden": [3], "initialisation": "scaled"},
        optimizer={"kind": "adam", "learning_rate": 0.05},
        normalizer={"enabled": True},
        centre={"evaluate_every": 5, "episodes": 4, "screening": 2},
        stop={"updates": UPDATES},
    )


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 70 updates; not to be changed."""
    where = tmp_path_factory.mktemp("original")
    outcome = asyncio.run(runs.play(spec(), where, workers=2))
    assert outcome.updates == UPDATES
    return where / "run"


@pytest.fixture(scope="session")
def states() -> list[State]:
    """What its versions are by definition."""
    return runs.states_of(spec(), UPDATES)


@pytest.fixture
def run_dir(original: Path, tmp_path: Path) -> Path:
    """A copy of the run."""
    return shutil.copytree(original, tmp_path / "run")


@pytest.fixture
def copy(original: Path, tmp_path: Path) -> Callable[[str], Path]:
    """More copies of it, by name."""
    return lambda name: shutil.copytree(original, tmp_path / name)
