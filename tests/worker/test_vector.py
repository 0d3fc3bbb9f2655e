"""Environments that step as one tell what they tell one by one, bit for bit."""

from __future__ import annotations

import dataclasses
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from gymnasium.envs.registration import registry
from gymnasium.wrappers import ClipReward
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worker import reference
from tests.worker.reference import TOYS, run_spec
from worker.evaluation import environments
from worker.evaluation.cartpoles import FEW, CartPoles, vectorised
from worker.evaluation.choosing import MOST_VECTOR_LANES
from worker.evaluation.jobs import EvaluationJob, Normalization
from worker.evaluation.lanes import Lanes
from worker.evaluation.probe import probe
from worker.evaluation.vector import Share, VectorMaker


def alone() -> Any:
    return gymnasium.make("CartPole-v1").unwrapped


def played(spec: Any, maker: Any, count: int, job: EvaluationJob) -> Any:
    view = None
    if spec.normalizer.enabled:
        mean, shift = np.float32([0.1, 0, -0.1, 0]), np.zeros(4)
        view = Normalization(mean, np.full(4, 2, np.float32), shift, np.full(4, 2.0**30))
    return Lanes(spec, maker, count).evaluate(job, reference.theta(spec), view)


@settings(max_examples=12, deadline=None)
@given(
    st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=2 * FEW),
    st.randoms(use_true_random=False),
)
def test_cartpoles_are_cartpole(seeds, random):
    poles, envs = CartPoles(alone()), [alone() for _ in seeds]
    numbers = np.array([poles.share().number for _ in seeds])
    for env, number, seed in zip(envs, numbers, seeds, strict=True):
        assert np.array_equal(poles.reset(number, seed), env.reset(seed=seed)[0])
    for _ in range(60):
        some = np.flatnonzero([random.random() < 0.8 for _ in seeds])
        if not some.size:
            continue
        actions = [np.int64(random.randrange(2)) for _ in some]
        observations, rewards, terminated = poles.prepare_step(numbers[some])(np.array(actions))
        for place, lane in enumerate(some):
            envs[lane].steps_beyond_terminated = None
            told = envs[lane].step(actions[place])
            assert np.array_equal(observations[place], told[0])
            assert observations[place].dtype == told[0].dtype
            assert (rewards[place], terminated[place]) == (told[1], told[2])


@pytest.mark.parametrize(
    "sections",
    [
        {},
        {"policy": {"kind": "gru", "hidden": [4]}, "environment": {"max_steps": 20}},
        {"normalizer": {"enabled": True}, "environment": {"episodes": 3}},
    ],
)
def test_returns_are_those_of_environments_one_by_one(sections):
    spec = run_spec("CartPole-v1", **sections)
    maker = environments.maker(spec.environment)
    job = EvaluationJob("members", 0, 3, 20, spec.environment.episodes, 0.5)
    expected = played(spec, maker, 5, job)
    vector = vectorised(maker)
    assert vector is not None
    for count in (1, 3, 64):
        found = played(spec, vector, count, job)
        np.testing.assert_array_equal(found.returns, expected.returns)
        np.testing.assert_array_equal(found.lengths, expected.lengths)
        assert found.observed == expected.observed and found.failed == ()


@pytest.mark.parametrize(
    ("environment", "sections", "used"),
    [
        ("CartPole-v1", {}, True),
        ("CartPole-v1", {"environment": {"kwargs": {"sutton_barto_reward": True}}}, False),
        ("CartPole-v1", {"environment": {"wrappers": [{"kind": "action-repeat", "n": 2}]}}, False),
        ("CartPole-v1", {"policy": {"hidden": [3000]}}, False),
        ("ToyWalk-v0", {}, False),
    ],
)
def test_the_probe_takes_it_where_it_may(environment, sections, used):
    spec = run_spec(environment, **sections)
    maker = environments.maker(spec.environment, [TOYS])
    found = probe(spec, maker, lambda take: None)
    assert isinstance(found.maker, VectorMaker) is used
    assert found.together is used and (found.lanes == MOST_VECTOR_LANES or not used)


def heavier(**kwargs: Any) -> Any:
    """A CartPole by type, but not by nature."""
    pole = CartPoleEnv(**kwargs)
    pole.gravity = 12.0
    return pole


@pytest.mark.parametrize(
    ("registered", "used"),
    [
        ({}, True),
        ({"entry_point": CartPoleEnv}, True),
        ({"max_episode_steps": 7}, True),
        ({"kwargs": {"sutton_barto_reward": True}}, False),
        ({"additional_wrappers": (ClipReward.wrapper_spec(min_reward=0.5),)}, False),
        ({"entry_point": heavier}, False),
    ],
    ids=["plain", "same class", "shorter", "kwargs", "wrapped", "other maker"],
)
def test_an_id_that_stands_for_something_else_here_is_stepped_singly(registered, used, monkeypatch):
    known = dataclasses.replace(gymnasium.spec("CartPole-v1"), **registered)
    monkeypatch.setitem(registry, "CartPole-v1", known)
    vector = vectorised(environments.maker(run_spec("CartPole-v1").environment))
    assert (vector is not None) is used
    assert vector is None or vector.limit == registered.get("max_episode_steps", 500)


class Slanted(CartPoles):
    """Where a step's last bit differs."""

    def prepare_step(self, numbers: Any) -> Any:
        def step(actions: Any) -> Any:
            observations, rewards, terminated = straight(actions)
            return np.nextafter(observations, np.float32(1)), rewards, terminated

        straight = super().prepare_step(numbers)
        return step


class Lopsided(CartPoles):
    """Where steps side by side differ."""

    def prepare_step(self, numbers: Any) -> Any:
        def step(actions: Any) -> Any:
            observations, rewards, terminated = straight(actions)
            observations[FEW:] += 1
            return observations, rewards, terminated

        straight = super().prepare_step(numbers)
        return step


@pytest.mark.parametrize("kind", [Slanted, Lopsided])
def test_the_probe_leaves_what_tells_otherwise(kind, monkeypatch):
    monkeypatch.setattr("worker.evaluation.cartpoles.CartPoles", kind)
    spec = run_spec("CartPole-v1")
    maker = environments.maker(spec.environment)
    assert probe(spec, maker, lambda take: None).maker is maker


def test_what_fails_fails_by_name():
    class Broken(CartPoles):
        def prepare_step(self, numbers: Any) -> Any:
            def step(actions: Any) -> Any:
                raise ValueError("no way")

            return step

    spec = run_spec("CartPole-v1")
    maker = VectorMaker(Broken(alone()), 500)
    found = played(spec, maker, 4, EvaluationJob("members", 0, 0, 5, 1, 0.5))
    assert [reason for _, reason in found.failed] == ["step 1 raised ValueError: no way"] * 5
    assert isinstance(maker.make(), Share)
