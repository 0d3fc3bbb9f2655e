"""Lanes of learners: what a training is worth, whoever is beside it and however work is cut."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from protocol import learners, noise
from protocol import spec as run_spec
from protocol.spec import RunSpec
from worker.compiled import bits, grid_world
from worker.compiled.learners import LearnerLanes, Programs, Trainings
from worker.compiled.q_learning import Hyperparameters, Learner
from worker.evaluation import blocks
from worker.evaluation.jobs import Evaluation, EvaluationJob, join, split

GRID = grid_world.make(rows=3, columns=4, step_cost=0.01, limit=60)
SIGMA = 0.3
JOB = EvaluationJob("members", 3, 5, 4, episodes=2, sigma=SIGMA)
THETA = np.zeros(4, np.float32)


def spec_of(**policy: Any) -> RunSpec:
    """A run of learners on the small grid."""
    environment = {
        "id": "jax:GridWorld-v0",
        "backend": "jax",
        "kwargs": {"rows": 3, "columns": 4, "step_cost": 0.01, "limit": 60},
        "observation": {"kind": "discrete", "n": 12},
        "action": {"kind": "discrete", "n": 4},
    }
    given = {"kind": "q-learning", "agents": 5, "training_steps": 120, "trial_episodes": 2}
    return run_spec.parse(
        {"name": "grid", "seed": 8, "environment": environment, "policy": {**given, **policy}}
    )


SPEC = spec_of()


@pytest.fixture(scope="module")
def lanes() -> LearnerLanes:
    """Three, for trainings that come by the dozen."""
    return LearnerLanes(SPEC, Programs(SPEC, GRID, 3))


@pytest.fixture(scope="module")
def whole(lanes: LearnerLanes) -> Evaluation:
    return lanes.evaluate(JOB, THETA)


def same(one: Evaluation, other: Evaluation) -> None:
    """They are the same, bit for bit."""
    assert one.first == other.first
    np.testing.assert_array_equal(one.returns, other.returns)
    np.testing.assert_array_equal(one.lengths, other.lengths)
    assert one.failed == other.failed


def test_a_member_is_worth_the_mean_of_what_its_agents_show(whole: Evaluation) -> None:
    """By the learner itself, one member at a time."""
    learner = Learner(GRID, limit=60)
    seeds = blocks.member_seeds(SPEC, JOB)
    train, play = jax.jit(learner.train), jax.jit(learner.play)
    for place, (direction, sign) in enumerate([(5, 1), (5, -1), (6, 1)]):
        member = noise.member(SPEC.strategy.noise, SPEC.seed, direction, sign, THETA, SIGMA)
        meant = learners.meant(SPEC.policy, member[np.newaxis])[0].astype(np.float32)
        returns, lengths = [], 0
        for seed in seeds[place]:
            keys = jnp.pad(bits.keys(jnp.uint32(seed), 5), ((0, 0), (0, 11)))
            given = Hyperparameters(*(jnp.full(16, value) for value in meant))
            agents = learner.begin(given, keys)
            agents = train(agents, given, keys, jnp.uint32(0), jnp.uint32(120))
            trial = learner.trial(agents, keys, 2)
            trial = play(trial, keys, jnp.uint32(120), jnp.uint32(120))
            returns.append(np.asarray(trial.returns)[:5].astype(np.float64).mean() / 2)
            lengths += 5 * 120 + int(trial.taken[:5].sum())
        assert whole.returns[place // 2, place % 2] == (returns[0] + returns[1]) / 2
        assert whole.lengths[place // 2, place % 2] == lengths


def test_members_differ_and_stay_within_what_there_is_to_get(whole: Evaluation) -> None:
    assert whole.returns.shape == whole.lengths.shape == (4, 2)
    assert len(np.unique(whole.returns)) > 4
    assert whole.returns.max() <= 1.0 - 5 * 0.01
    assert whole.returns.min() >= -0.6
    assert whole.lengths.max() <= 2 * SPEC.longest


@pytest.mark.parametrize("parts", [2, 4])
def test_no_cut_of_the_work_changes_a_return(
    lanes: LearnerLanes, whole: Evaluation, parts: int
) -> None:
    same(join([lanes.evaluate(part, THETA) for part in split(JOB, parts)]), whole)


def test_nor_does_the_number_of_lanes(whole: Evaluation) -> None:
    same(LearnerLanes(SPEC, Programs(SPEC, GRID, 4)).evaluate(JOB, THETA), whole)


def test_jobs_in_hand_share_the_lanes(lanes: LearnerLanes, whole: Evaluation) -> None:
    first, second = (lanes.start(part, THETA) for part in split(JOB, 2))
    stopped = lanes.start(JOB, THETA)
    ended: list[Trainings] = []
    while len(ended) < 2:
        ended += lanes.step()
        assert lanes.busy <= 3
    lanes.stop(stopped)
    assert ended == [first, second]
    one, other = first.take(), second.take()
    assert one is not None and other is not None
    same(join([one, other]), whole)
    assert lanes.step() == []
    assert lanes.busy == 0


def test_what_is_finished_can_be_taken_at_once(lanes: LearnerLanes, whole: Evaluation) -> None:
    taken: list[Evaluation] = []

    def pulse(take: Any) -> None:
        if (found := take()) is not None:
            taken.append(found)

    rest = lanes.evaluate(JOB, THETA, None, pulse)
    assert taken
    same(join([*taken, rest]), whole)


def test_what_raises_in_between_ends_the_job(lanes: LearnerLanes, whole: Evaluation) -> None:
    def pulse(take: Any) -> None:
        if lanes.busy:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lanes.evaluate(JOB, THETA, None, pulse)
    assert lanes.busy == 0
    same(lanes.evaluate(JOB, THETA), whole)


def test_the_centre_is_trained_with_seeds_of_its_own(lanes: LearnerLanes) -> None:
    centre = lanes.evaluate(EvaluationJob("centre", 3, 2, 4), THETA)
    assert centre.first == 2
    assert centre.returns.shape == centre.lengths.shape == (4,)
    again = lanes.evaluate(EvaluationJob("centre", 3, 4, 2), THETA)
    np.testing.assert_array_equal(centre.returns[2:], again.returns)
    other = lanes.evaluate(EvaluationJob("centre", 4, 2, 4), THETA)
    assert not np.array_equal(centre.lengths, other.lengths)


def test_returns_that_are_no_numbers_fail_their_direction(lanes: LearnerLanes) -> None:
    trainings = lanes.start(JOB, THETA)
    trainings.returns[:] = 1.0
    trainings.lengths[:] = 7
    trainings.returns[5] = np.inf  # of the second direction
    trainings.done[:12] = True
    found = trainings.take()
    lanes.stop(trainings)
    assert found is not None
    assert found.first == 5
    np.testing.assert_array_equal(found.returns, [[1.0, 1.0], [np.nan, np.nan], [1.0, 1.0]])
    np.testing.assert_array_equal(found.lengths, [[14, 14], [0, 0], [14, 14]])
    assert [direction for direction, _ in found.failed] == [6]
    assert trainings.take() is None


def test_who_learns_well_is_worth_more(lanes: LearnerLanes) -> None:
    """So that there is something to climb: with hardly a learning rate nobody finds the way."""
    made = LearnerLanes(spec_of(training_steps=1500, trial_episodes=1), lanes.programs)
    job = EvaluationJob("centre", 0, 0, 3)
    learned = made.evaluate(job, THETA).returns
    idle = made.evaluate(job, np.array([-25.0, 0.0, 0.0, 0.0], np.float32)).returns
    assert learned.min() > 0.9
    assert idle.mean() < 0.85
