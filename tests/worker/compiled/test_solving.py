"""A real pool of a worker with JAX learns to balance the pole."""

from __future__ import annotations

from pathlib import Path

from tests.chaos.processes import host, updates, worker


def test_a_pool_of_a_worker_with_jax_reaches_a_target(tmp_path: Path) -> None:
    run = (
        *("jax:CartPole-v1", "--hidden", "8", "--population", "128", "--seed", "1"),
        *("--target", "150", "--updates", "200"),
    )
    run_dir = tmp_path / "run"
    with (
        host(*run, run_dir=run_dir) as (leader, url),
        worker(url, tmp_path / "home") as volunteer,
    ):
        volunteer.await_line("jax:CartPole-v1 is compiled by JAX")
        assert leader.await_end() == 0, leader.lines
        outcome = leader.last_json()
    assert outcome["solved"], outcome
    assert updates(run_dir)
