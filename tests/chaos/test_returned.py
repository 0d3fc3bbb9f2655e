"""What a run returns is the version that was evaluated, and whoever plays it gets its returns."""

from pathlib import Path

import numpy as np

from tests.chaos.processes import host, worker
from worker import play

RUN = (
    *("CartPole-v1", "--seed", "3", "--updates", "3", "--normalize", "--population", "32"),
    *("--set", "stop.target=1e9", "--set", "normalizer.clip=1.5", "--set", "centre.episodes=20"),
)


def test_the_returned_policy_plays_as_its_centre_did_with_its_normaliser(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    with host(*RUN, run_dir=run_dir) as (leader, url), worker(url, tmp_path / "home"):
        assert leader.await_end() == 0, leader.lines
        outcome = leader.last_json()
        said = leader.await_line("returns version 3")
    policy = play.load(run_dir)
    assert policy.version == outcome["version"] == outcome["updates"] == 3
    assert policy.normalization is not None and policy.normalization.inverse_deviation.all()
    returns = play.play(policy, 20)
    assert returns.mean() == outcome["centre_return"]
    assert returns.std(ddof=1) == outcome["centre_deviation"] > 0
    half = 2.093024 * returns.std(ddof=1) / np.sqrt(20)  # Student's t of 19 degrees of freedom
    low, high = outcome["centre_interval"]
    np.testing.assert_allclose((low, high), (returns.mean() - half, returns.mean() + half))
    assert f"centre {returns.mean():.1f} over 20 episodes (deviation " in said
    assert f"95% interval {low:.1f} to {high:.1f})" in said
    assert play.load(run_dir, play.BEST).version <= 3
