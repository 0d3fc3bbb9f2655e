"""A function is minimised by real processes, and only by those that allow it."""

import signal
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from tests.chaos.processes import host, updates, worker
from tests.worker import problems

RUN = (
    *("--objective", "tests.worker.problems:noisy", "--parameters", "5", "--minimise"),
    *("--optimizer", "adam", "--learning-rate", "0.2", "--population", "32"),
    *("--target=-0.4", "--updates", "300", "--set", "objective.start=[2.0]"),
    *("--allow-module", "tests.worker.problems"),
)


def test_a_pool_finds_the_minimum_of_a_function_that_its_volunteers_allow(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    with host(*RUN, run_dir=run_dir) as (leader, url):
        with worker(url, tmp_path / "wary") as wary:
            wary.await_line("is not allowed here")
            wary.signal(signal.SIGTERM)
            wary.await_end()
        assert not updates(run_dir)
        with worker(url, tmp_path / "home", "--allow-module", "tests.worker.problems"):
            assert leader.await_end() == 0, leader.lines
        outcome = leader.last_json()
    assert outcome["solved"], outcome
    assert outcome["centre_episodes"] == 100  # its function takes a seed
    found = load_file(run_dir / "policy.safetensors")["parameters"]
    assert problems.sphere(found) < 0.4 + 4 * outcome["centre_deviation"] / 10
    assert problems.sphere(np.full(5, 2.0, dtype=np.float32)) == 5.0
