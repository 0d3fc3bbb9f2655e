"""A worker's replica and a replay of the log come to one state, in processes that differ."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from scripts.check_exact import VARIATIONS, by_a_worker, by_replay, make_run, simd_levels
from tests.coordinator.runs import spec_of

UPDATES = 400


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """A run with Adam and a normaliser: its directory, the coordinator's and a worker's digest."""
    path = tmp_path_factory.mktemp("agreement") / "run"
    spec = spec_of(
        policy={"kind": "mlp", "hidden": [7], "initialisation": "scaled"},
        optimizer={"kind": "adam", "learning_rate": 0.02},
        normalizer={"enabled": True},
        strategy={"population": 16},
        pool={"max_staleness": 0},
    )
    digest, payloads, _ = make_run(spec, path, UPDATES)
    return path, digest, by_a_worker(spec, payloads)


def test_a_worker_and_the_coordinator_agree(run: tuple[Path, str, str]) -> None:
    _, digest, ours = run
    assert ours == digest


CHANGES = {**VARIATIONS, **simd_levels()}


@pytest.mark.parametrize(
    "changes", CHANGES.values(), ids=[name.replace(" ", "-") for name in CHANGES]
)
def test_replays_of_the_log_agree(run: tuple[Path, str, str], changes: dict[str, str]) -> None:
    path, digest, _ = run
    assert by_replay(sys.executable, path, UPDATES, changes)["state_digest"] == digest
