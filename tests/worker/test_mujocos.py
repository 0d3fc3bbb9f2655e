"""MuJoCo's tasks on one model tell what Gymnasium's own instances tell, bit for bit."""

from __future__ import annotations

import dataclasses
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import registry
from gymnasium.wrappers import ClipReward

from tests.worker import reference
from tests.worker.reference import run_spec
from worker.evaluation import environments
from worker.evaluation.jobs import EvaluationJob, Normalization
from worker.evaluation.lanes import Lanes
from worker.evaluation.mujocos import TASKS, Mujocos, vectorised
from worker.evaluation.probe import probe
from worker.evaluation.quiet import quieten
from worker.evaluation.vector import Share, VectorMaker

mujoco = pytest.importorskip("mujoco")

SIZES = {
    "HalfCheetah-v5": (17, 6, 1.0),
    "Swimmer-v5": (8, 2, 1.0),
    "Hopper-v5": (11, 3, 1.0),
    "Walker2d-v5": (17, 6, 1.0),
    "InvertedPendulum-v5": (4, 1, 3.0),
    "Ant-v5": (105, 8, 1.0),
    "Humanoid-v5": (348, 17, float(np.float32(0.4))),
}
"""Of what is seen, and of actions, and how large these may be."""
HEAVY = ("Ant-v5", "Humanoid-v5")
CHEETAH = "HalfCheetah-v5"


def spec_of(name: str, sights: int = 0, **sections: Any) -> Any:
    """A run's spec; `sights`: more than usual."""
    seen, many, largest = SIZES[name]
    bounds = {"low": [-largest] * many, "high": [largest] * many}
    spaces = {
        "observation": reference.box(seen + sights),
        "action": {**reference.box(many), **bounds},
    }
    return run_spec(
        name, **{**sections, "environment": {**spaces, **sections.get("environment", {})}}
    )


def maker_of(spec: Any) -> environments.Maker:
    maker = environments.maker(spec.environment)
    quieten(maker.registration)
    return maker


def vector_of(maker: environments.Maker) -> VectorMaker:
    vector = vectorised(maker)
    assert vector is not None
    return vector


def same(one: Any, other: Any) -> bool:
    one, other = np.asarray(one), np.asarray(other)
    return one.dtype == other.dtype and one.tobytes() == other.tobytes()


STAYING = {"terminate_when_unhealthy": False, "healthy_reward": -0.5, "ctrl_cost_weight": 3}


@pytest.mark.parametrize(
    ("name", "kwargs"),
    [
        *((name, {}) for name in TASKS),
        ("Hopper-v5", STAYING),
        ("Swimmer-v5", {"exclude_current_positions_from_observation": False, "frame_skip": 1}),
        (CHEETAH, {"forward_reward_weight": -2.5, "reset_noise_scale": 0.3}),
    ],
    ids=str,
)
def test_steps_are_those_of_the_environment(name, kwargs):
    """A thousand of them and fewer of the heavy ones, of lanes that come and go and begin anew in
    between, and some of which are thrown out of what can be simulated."""
    sights = TASKS[name].hidden if "exclude_current_positions_from_observation" in kwargs else 0
    maker = maker_of(spec_of(name, sights, environment={"kwargs": kwargs}))
    made, chance = vector_of(maker), np.random.default_rng(5)
    vector: Any = made.vector
    alone: list[Any] = [maker.make().unwrapped for _ in range(2)]
    shares = [made.make() for _ in alone]
    numbers = np.array([share.number for share in shares])
    orders = (0,), (1, 0), (0, 1), (0, 1)
    steps = {lanes: vector.prepare_step(numbers[list(lanes)]) for lanes in orders}
    over = 0

    def begin(lane: int) -> None:
        seed = int(chance.integers(2**31))
        assert same(shares[lane].reset(seed=seed)[0], alone[lane].reset(seed=seed)[0])

    begin(0)
    begin(1)
    _, many, largest = SIZES[name]
    for number in range(250 if name in HEAVY or kwargs else 600):
        lanes = orders[number % 4]
        actions = chance.uniform(-largest, largest, (len(lanes), many)).astype(np.float32)
        if number in (100, 200):
            for each in (alone[0].data, vector._data[shares[0].number]):
                each.qvel[0] = np.nan if number == 100 else 1e200
        observations, rewards, ended = steps[lanes](actions)
        for place, lane in enumerate(lanes):
            observation, reward, terminated, truncated, _ = alone[lane].step(actions[place])
            assert same(observations[place], observation) and not truncated
            assert rewards[place] == reward and ended[place] == terminated
            if terminated or chance.random() < 0.03:
                over += 1
                begin(lane)
    assert over > 3


@pytest.mark.parametrize("name", [CHEETAH, "Hopper-v5"])
def test_returns_are_those_of_environments_one_by_one(name):
    spec = spec_of(name, normalizer={"enabled": True}, environment={"max_steps": 40})
    maker, job = maker_of(spec), EvaluationJob("members", 0, 3, 5, 1, 0.5)
    size = SIZES[name][0]
    mean, shift = np.full(size, 0.1, np.float32), np.zeros(size)
    view = Normalization(mean, np.full(size, 2, np.float32), shift, np.full(size, 2.0**30))
    expected, *others = (
        Lanes(spec, kind, count).evaluate(job, reference.theta(spec), view)
        for kind, count in ((maker, 2), (vector_of(maker), 1), (vector_of(maker), 4))
    )
    for found in others:
        np.testing.assert_array_equal(found.returns, expected.returns)
        np.testing.assert_array_equal(found.lengths, expected.lengths)
        assert found.observed == expected.observed and found.failed == ()


def test_the_probe_takes_it_and_leaves_what_tells_otherwise(monkeypatch):
    class Slanted(Mujocos):
        def prepare_step(self, numbers: Any) -> Any:
            def step(actions: Any) -> Any:
                observations, rewards, terminated = straight(actions)
                return observations, np.nextafter(rewards, 9.0), terminated

            straight = super().prepare_step(numbers)
            return step

    spec = spec_of("Swimmer-v5")
    maker = maker_of(spec)
    found = probe(spec, maker, lambda take: None, lanes=2)
    assert isinstance(found.maker, VectorMaker) and not found.together and found.lanes == 2
    monkeypatch.setattr("worker.evaluation.mujocos.Mujocos", Slanted)
    assert probe(spec, maker, lambda take: None, lanes=2).maker is maker


@pytest.mark.parametrize(
    ("registered", "environment"),
    [
        ({}, {"wrappers": [{"kind": "action-repeat", "n": 2}]}),
        ({}, {"kwargs": {"xml_file": "half_cheetah.xml"}}),
        ({"kwargs": {"ctrl_cost_weight": np.float64(0.1)}}, {}),
        ({"additional_wrappers": (ClipReward.wrapper_spec(min_reward=0.5),)}, {}),
        ({"entry_point": "gymnasium.envs.mujoco.half_cheetah_v4:HalfCheetahEnv"}, {}),
        ({"entry_point": lambda **kwargs: gymnasium.make(CHEETAH, **kwargs)}, {}),
    ],
    ids=["wrapped", "model", "float64", "registered wrapped", "other class", "other maker"],
)
def test_what_may_tell_otherwise_is_stepped_singly(registered, environment, monkeypatch):
    spec = spec_of(CHEETAH, environment=environment)
    known = dataclasses.replace(gymnasium.spec(CHEETAH), **registered)
    monkeypatch.setitem(registry, CHEETAH, known)
    assert vectorised(maker_of(spec)) is None


def test_one_that_fails_fails_alone(monkeypatch):
    spec = spec_of(CHEETAH, environment={"max_steps": 5})
    made, calls = vector_of(maker_of(spec)), iter(range(1000))
    step = mujoco.mj_step

    def failing(*arguments: Any) -> None:
        if next(calls) == 7:
            raise mujoco.FatalError("no room left")
        step(*arguments)

    monkeypatch.setattr("mujoco.mj_step", failing)
    lanes = Lanes(spec, made, 4)
    found = lanes.evaluate(EvaluationJob("members", 0, 0, 5, 1, 0.5), reference.theta(spec))
    assert [words for _, words in found.failed] == ["2 steps' rewards add up to nan"]
    assert made.vector.size == 4, "its place was taken by another"
    assert isinstance(made.make(), Share)
