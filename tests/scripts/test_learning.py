"""Runs in virtual time are real: the very parameters that the episodes and the rules make."""

import dataclasses

import numpy as np
import pytest
from numpy.typing import NDArray

from coordinator.composing import compose
from coordinator.pool.presets import PRESETS
from protocol.spec import RunSpec
from protocol.state import params_hash
from scripts import compare_pools
from scripts.simulation.compiled import CompiledLanes, plays
from scripts.simulation.crowd import populate
from scripts.simulation.learning import Learner
from scripts.simulation.population import Population
from scripts.simulation.world import World
from tests import alone
from worker.evaluation import environments
from worker.evaluation.jobs import EvaluationJob
from worker.evaluation.lanes import Lanes

UPDATES = 3
ALONE = Population(workers=1, speed=500.0, leaving=0.0, vanishing=0.0, late=0.0, twice=0.0)
CROWD = Population(
    workers=7, speed=500.0, leaving=2.0, vanishing=1.0, late=0.1, twice=0.1, part_seconds=0.5
)


def cartpole(**sections: object) -> RunSpec:
    centre = {"episodes": 2, "screening": 1}
    return compose("CartPole-v1", {"stop": {"target": 1e6}, "centre": centre, **sections}).spec


def simulated(spec: RunSpec, population: Population, seed: int = 0) -> Learner:
    learner = Learner(spec)
    world = World(spec, learner, learn=learner.learn, seed=seed)
    populate(world, population, seed)
    assert world.agenda.run(lambda: learner.state.version == UPDATES, 600.0)
    learner.close()
    return learner


@pytest.mark.parametrize("enabled", [False, True], ids=["compiled", "lanes with a normaliser"])
def test_a_synchronous_pool_of_any_workers_makes_what_is_made_without_a_pool(enabled):
    """Leavers, late results, copies and parts change nothing, to the last bit."""
    spec = cartpole(normalizer={"enabled": enabled}, pool=dict(PRESETS["sync"]))
    expected = alone.trained(spec, UPDATES)
    assert plays(spec) is not enabled
    for population, seed in ((ALONE, 0), (CROWD, 1), (CROWD, 2)):
        learner = simulated(spec, population, seed)
        assert params_hash(learner.state.theta) == params_hash(expected.theta)
        assert learner.late == 0
        assert learner.state.steps == expected.steps
        assert (learner.state.normalizer is None) is not enabled
        if learner.state.normalizer is not None and expected.normalizer is not None:
            np.testing.assert_array_equal(learner.state.normalizer.mean, expected.normalizer.mean)


def test_a_pool_that_does_not_wait_makes_something_else_and_says_how_much_was_stale():
    spec = cartpole(pool={"quorum": 0.5, "max_staleness": 2, "stale_share": 0.5, "patience": 0.0})
    learner = simulated(spec, CROWD)
    assert params_hash(learner.state.theta) != params_hash(alone.trained(spec, UPDATES).theta)
    assert 0 < learner.late < learner.members <= learner.played


def trained_cartpole() -> tuple[RunSpec, NDArray[np.float32]]:
    learner = Learner(cartpole(seed=5))
    for _ in range(6):
        learner.learn(compare_pools.batch_of_ages(learner, (1.0,)))
    return learner.spec, learner.state.theta


def swinging_acrobot() -> tuple[RunSpec, NDArray[np.float32]]:
    spaces = {
        "observation": {"kind": "box", "shape": [6]},
        "action": {"kind": "discrete", "n": 3},
    }
    spec = compose("Acrobot-v1", {"environment": spaces, "policy": {"kind": "linear"}}).spec
    theta = np.zeros(spec.size, dtype=np.float32)
    theta[5], theta[17] = -1.0, 1.0  # a push the way that the lower link turns
    return spec, theta


@pytest.mark.parametrize("known", [trained_cartpole, swinging_acrobot])
def test_compiled_episodes_are_those_of_the_lanes(known):
    spec, theta = known()
    lanes = Lanes(spec, environments.maker(spec.environment), 16)
    for job in (EvaluationJob("members", 3, 77, 10, 1, 0.2), EvaluationJob("centre", 3, 9, 10)):
        compiled, played = CompiledLanes(spec).evaluate(job, theta), lanes.evaluate(job, theta)
        assert len(np.unique(played.returns)) > 4
        # The last bit of a cosine may differ between two libraries, and an episode with it.
        assert (compiled.returns == played.returns).mean() >= 0.9
        assert (compiled.lengths == played.lengths).mean() >= 0.9
        assert compiled.returns.shape == compiled.lengths.shape == job.shape
    lanes.close()


@pytest.mark.parametrize("normalised", [False, True], ids=["compiled", "lanes"])
def test_members_without_mirror_learn_in_a_crowd_what_they_learn_without_a_pool(normalised):
    strategy = {"mirrored": False, "population": 65}
    spec = cartpole(strategy=strategy, normalizer={"enabled": normalised})
    learner = simulated(spec, CROWD)
    assert params_hash(learner.state.theta) == params_hash(alone.trained(spec, UPDATES).theta)
    assert learner.members == 65 * UPDATES


def test_members_without_mirror_learn_to_balance_the_pole():
    target = {"stop": {"target": 475.0}, "centre": {"episodes": 20, "screening": 5}}
    spec = cartpole(strategy={"mirrored": False, "population": 128}, **target)
    learner = Learner(spec)
    assert not learner.reaches_target()
    for _ in range(60):
        learner.learn(compare_pools.batch_of_ages(learner, (1.0,)))
        if learner.reaches_target():
            return
    raise AssertionError("the target was not reached in 60 updates")


def test_what_is_not_compiled_is_left_to_the_lanes():
    assert plays(cartpole())
    assert not plays(cartpole(environment={"max_steps": 50}))
    assert not plays(cartpole(environment={"episodes": 2}))
    assert not plays(compose("CartPole-v0", {}).spec)


def test_members_of_given_ages_are_evaluated_at_versions_that_old():
    spec = cartpole(pool={"max_staleness": 2}, strategy={"population": 20})
    learner, thetas = Learner(spec), []
    for version in range(UPDATES):
        thetas.append(learner.state.theta)
        closed = compare_pools.batch_of_ages(learner, (0.5, 0.0, 0.5))
        ages = [(part.version, part.first, len(part.returns)) for part in closed.contributions]
        assert ages == [(version, 10 * version, 5), (max(0, version - 2), 10 * version + 5, 5)]
        learner.learn(closed)
    old = closed.contributions[1]
    job = EvaluationJob("members", old.version, old.first, 5, 1, spec.strategy.sigma)
    again = CompiledLanes(spec).evaluate(job, thetas[old.version])
    np.testing.assert_array_equal(old.returns, again.returns)
    assert (learner.members, learner.late) == (60, 20)


def test_an_arm_that_misses_the_target_counts_as_infinitely_slow():
    outcome = compare_pools.Outcome("a", 0, 4, 10, 10, 3.0, 4.0, 0.1, 0.5)
    missed = dataclasses.replace(outcome, updates=np.inf, seconds=np.inf)
    row = compare_pools.summary("a", [outcome, missed, missed])
    assert (row["reached"], row["runs"]) == (1, 3)
    assert row["updates"][1] == np.inf and row["stale"] == pytest.approx(0.1)
    assert compare_pools.quantile([1.0, 3.0, np.inf, np.inf], 0.25) == 2.5
    assert "1/3" in compare_pools.table([row])
