"""Environments of gymnax, brax and MuJoCo Playground, where these are installed."""

import numpy as np
import pytest

from protocol.spec import parse
from worker.compiled.environment import functional
from worker.compiled.lanes import CompiledLanes
from worker.evaluation.jobs import EnvironmentUnavailable, EvaluationJob


def played(environment_id, cap, **kwargs):
    """Mean return and length of a few members, and the environment."""
    from protocol.section import plain

    found = functional(environment_id, kwargs)
    spec = parse(
        {
            "name": "test",
            "environment": {
                "id": environment_id,
                "backend": "jax",
                "observation": plain(found.observation),
                "action": plain(found.action),
            },
            "policy": {"hidden": [4]},
            "normalizer": {"enabled": True},
        }
    )
    lanes = CompiledLanes(spec, found, 16, limit=found.limit)
    job = EvaluationJob("members", 0, 0, 8, 1, 0.5, cap)
    evaluation = lanes.evaluate(job, np.zeros(spec.size, np.float32))
    assert not evaluation.failed
    return evaluation, found


def test_gymnax_plays_cart_pole():
    pytest.importorskip("gymnax")
    evaluation, found = played("gymnax:CartPole-v1", 0)
    assert found.limit == 500 and found.observation.shape == (4,) and found.action.n == 2
    np.testing.assert_array_equal(evaluation.returns, evaluation.lengths)
    assert evaluation.lengths.min() >= 8 and evaluation.lengths.max() <= 500


def test_arguments_of_gymnax_are_its_parameters():
    pytest.importorskip("gymnax")
    evaluation, found = played("gymnax:Pendulum-v1", 0, max_steps_in_episode=7)
    assert found.limit == 7 and found.action.high == (2.0,)
    assert (evaluation.lengths == 7).all() and (evaluation.returns < 0).all()


def test_an_environment_that_gymnax_has_not_is_named():
    pytest.importorskip("gymnax")
    with pytest.raises(EnvironmentUnavailable, match="no environment 'CartPole-v7': it has CartP"):
        functional("gymnax:CartPole-v7", {})


def test_brax_plays_the_inverted_pendulum():
    pytest.importorskip("brax")
    evaluation, found = played("brax:inverted_pendulum", 30)
    assert found.limit == 1000 and found.action.low == (-3.0,)
    assert evaluation.lengths.max() <= 30


def test_an_environment_that_brax_has_not_is_named():
    pytest.importorskip("brax")
    with pytest.raises(EnvironmentUnavailable, match="no environment 'Ant': it has ant"):
        functional("brax:Ant", {})


def test_playground_plays_the_pole_on_its_cart():
    pytest.importorskip("mujoco_playground")
    evaluation, found = played("playground:CartpoleBalance", 0, episode_length=12)
    assert found.limit == 12 and found.observation.shape == (5,)
    assert (found.action.low, found.action.high) == ((-1.0,), (1.0,))
    assert (evaluation.lengths == 12).all() and (evaluation.returns > 0).all()


def test_an_environment_that_playground_has_not_is_named():
    pytest.importorskip("mujoco_playground")
    with pytest.raises(EnvironmentUnavailable, match="no environment 'Ant': it has CheetahRun"):
        functional("playground:Ant", {})


def test_a_step_of_brax_leaves_the_state_before_it_alone():
    pytest.importorskip("brax")
    import jax

    found = functional("brax:ant", {})

    def step(key):
        state, _ = found.reset(key)
        before = dict(state.metrics)
        found.step(state, np.zeros(8, np.float32), key)
        assert all(state.metrics[name] is value for name, value in before.items())
        return key

    jax.eval_shape(step, jax.random.key(0))
