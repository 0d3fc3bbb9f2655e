"""Learners in processes of their own, found by a pool, played by hand."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from coordinator.composing import compose
from protocol import learners
from protocol.errors import ShoalError
from scripts import gridworld
from tests.chaos.processes import host, updates, worker
from tests.worker.compiled.test_learners import GRID, JOB, SPEC, spec_of
from worker.acting import require_acting
from worker.compiled.learners import LearnerLanes, Programs
from worker.evaluation import makers, starting
from worker.evaluation.children import Evaluators
from worker.evaluation.jobs import EvaluationJob, join
from worker.member import MemberName, Perturbed
from worker.play import TrainedPolicy, play

DEADLINE = 60.0
THETA = np.array([0.5, 0.0, -0.5, 0.1], np.float32)


def test_the_number_of_lanes_makes_no_other_class() -> None:
    maker = makers.maker(SPEC)
    found, lanes = starting.start(SPEC, maker, lambda take: None, lanes=2)
    other, _ = starting.start(SPEC, maker, lambda take: None, lanes=3)
    assert found.numeric_class == other.numeric_class
    assert len(found.numeric_class) == 16
    assert found.speed > 0 and found.lanes == lanes.count == 2
    assert "2 lanes of 5 agents" in lanes.policy.remark
    assert starting.longest(SPEC, maker) == SPEC.longest == 5 * (120 + 2 * 1000)
    next_trial, _ = starting.start(SPEC, maker, lambda take: None, trial=1, lanes=2)
    assert next_trial.numeric_class != found.numeric_class


def test_as_many_agents_learn_side_by_side_as_suit() -> None:
    assert Programs(spec_of(agents=30), GRID).lanes == 8
    assert Programs(spec_of(agents=300, training_steps=1), GRID).lanes == 1
    assert Programs(spec_of(agents=300, training_steps=1), GRID).agents == 512


async def test_a_process_gives_what_lanes_here_give() -> None:
    evaluators = Evaluators(DEADLINE)
    await evaluators.start(SPEC, 1)
    told: list[Any] = []
    try:
        await evaluators.set_theta(3, THETA, None)
        await evaluators.evaluate(JOB, told.append)
    finally:
        await evaluators.close()
    expected = LearnerLanes(SPEC, Programs(SPEC, GRID, 4)).evaluate(JOB, THETA)
    found = join(told)
    np.testing.assert_array_equal(found.returns, expected.returns)
    np.testing.assert_array_equal(found.lengths, expected.lengths)


def test_playing_trains_the_centre_or_a_member_as_it_was() -> None:
    lanes = LearnerLanes(SPEC, Programs(SPEC, GRID, 1))
    centre = lanes.evaluate(EvaluationJob("centre", 3, 0, 2), THETA).returns
    trained = TrainedPolicy(SPEC, "run", 3, THETA, None)
    np.testing.assert_array_equal(play(trained, 2), centre)
    job = dataclasses.replace(JOB, count=1)
    mirrored = lanes.evaluate(job, THETA).returns[0, 1]
    member = Perturbed(MemberName(3, 5, -1), -JOB.sigma, None, 0)
    returns = play(dataclasses.replace(trained, member=member), 2)
    assert (returns[0] + returns[1]) / 2 == mirrored


def test_nobody_watches_or_asks_for_actions(tmp_path: Path) -> None:
    trained = TrainedPolicy(SPEC, "run", 3, THETA, None)
    with pytest.raises(ShoalError, match="leave --render and --video out"):
        play(trained, 1, video=tmp_path / "film.mp4")
    with pytest.raises(ShoalError, match="doesn't act before it has learned"):
        require_acting(trained, "runs/run")


def test_the_search_of_the_script_is_a_run(tmp_path: Path) -> None:
    file = tmp_path / "search.toml"
    file.write_text(gridworld.SEARCH % {"updates": 3, "seed": 1})
    spec = compose(str(file), {}, []).spec
    assert (spec.stop.updates, spec.seed, spec.policy.agents) == (3, 1, 30)
    given = learners.meant(spec.policy, np.zeros((1, 4), np.float32))
    np.testing.assert_allclose(given, [[0.1, 0.9, 0.1, 0.0]])  # the article's


def test_a_pool_finds_hyperparameters_with_which_agents_learn_the_way(tmp_path: Path) -> None:
    """From a learning rate with which hardly one of them does in so few steps."""
    file = tmp_path / "grid.toml"
    file.write_text(
        """
        [environment]
        id = "jax:GridWorld-v0"
        kwargs = {rows = 3, columns = 4, step_cost = 0.01, limit = 60}
        [policy]
        kind = "q-learning"
        agents = 10
        training_steps = 300
        learning_rate = 0.003
        frozen = ["optimism"]
        [strategy]
        population = 16
        sigma = 1.0
        [optimizer]
        learning_rate = 1.0
        [centre]
        episodes = 4
        screening = 4
        [stop]
        target = 0.9
        updates = 60
        """
    )
    spec = compose(str(file), {}, []).spec
    assert (spec.environment.backend, spec.size) == ("jax", 4)
    run_dir = tmp_path / "run"
    with (
        host(str(file), run_dir=run_dir) as (leader, url),
        worker(url, tmp_path / "home") as volunteer,
    ):
        volunteer.await_line("q-learning in jax:GridWorld-v0 is compiled by JAX")
        assert leader.await_end() == 0, leader.lines
        outcome = leader.last_json()
    assert outcome["solved"], outcome
    tensors = load_file(run_dir / "policy.safetensors")
    assert list(tensors) and tensors["optimism"] == 0.0
    theta = np.concatenate([tensors[name] for name in learners.HYPERPARAMETERS])
    found = learners.meant(spec.policy, theta[np.newaxis])[0]
    np.testing.assert_allclose(gridworld.hyperparameters(run_dir), found)
    assert found[0] > 0.01
    assert updates(run_dir)
