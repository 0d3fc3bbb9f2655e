"""A policy that JAX trained acts in its environment like any other, and is exported."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from worker import bench, export
from worker.acting import LoadedPolicy
from worker.play import TrainedPolicy


def trained(limit: int) -> TrainedPolicy:
    changes = {"environment": {"max_steps": limit}, "policy": {"hidden": [8]}}
    subject = bench.untrained("jax:CartPole-v1", changes)
    theta = np.zeros_like(subject.theta)
    theta[:4] = 0.05, 0.1, 0.5, 0.5  # the first hidden unit balances the pole
    theta[40], theta[48] = -1.0, 1.0
    return TrainedPolicy(subject.spec, "bench", 3, theta, None, None)


def test_its_episodes_are_cut_as_in_training() -> None:
    policy = LoadedPolicy(trained(30))
    assert repr(policy) == "<policy of bench, version 3: jax:CartPole-v1, mlp, 58 parameters>"
    environment = policy.environment()
    observation, _ = environment.reset(seed=5)
    policy.reset(5)
    for step in range(1, 31):
        observation, reward, terminated, truncated, _ = environment.step(policy(observation))
        assert (reward, terminated, truncated) == (1.0, False, step == 30)


def test_it_is_exported_and_tried_out(tmp_path: Path) -> None:
    policy = trained(20)
    path = export.export(policy, "torchscript", tmp_path / "policy.pt")
    steps, strays = export.check(policy, path, "torchscript", 2)
    assert (steps, strays) == (40, 0)
