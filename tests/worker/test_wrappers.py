from typing import Any

import gymnasium
import numpy as np
import pytest

from protocol import wrappers as wrapping
from protocol.errors import ShoalError
from protocol.spec import RunSpec, parse
from tests.worker import reference
from tests.worker.reference import TOYS
from worker.describe import describe
from worker.evaluation import environments
from worker.evaluation.jobs import EnvironmentUnavailable, EvaluationJob
from worker.evaluation.lanes import Lanes

STACK = {"kind": "frame-stack", "n": 3}
REPEAT = {"kind": "action-repeat", "n": 4}
CLIP = {"kind": "reward-clip", "low": -0.5, "high": 0.5}
RESCALE = {"kind": "rescale-observation", "low": -2.0, "high": 0.0}


def wrapped(environment_id: str, wrappers: list[dict[str, Any]], **environment: Any) -> RunSpec:
    """A run's spec in which the spaces are read, as a host's is."""
    kwargs = environment.get("kwargs", {})
    said = describe(environment_id, kwargs, [TOYS], wrapping.parse(wrappers))
    spaces = {"observation": said["observation"], "action": said["action"]}
    section = {"id": environment_id, "wrappers": wrappers, **spaces, **environment}
    return parse({"name": "test", "seed": 7, "environment": section, "policy": {"hidden": [4]}})


def lanes_of(spec: RunSpec) -> Lanes:
    return Lanes(spec, environments.maker(spec.environment, [TOYS]), 3)


@pytest.mark.parametrize(
    ("environment_id", "wrappers", "shape"),
    [
        ("CartPole-v1", [REPEAT], [4]),
        ("CartPole-v1", [STACK, REPEAT, CLIP], [3, 4]),
        ("ToyMiser-v0", [STACK], [3, 2, 3]),
        ("ToyGarden-v0", [REPEAT], None),  # ends half way through an action
        ("ToyMiser-v0", [CLIP, RESCALE], [2, 3]),
        ("ToyRescaled-v0", [REPEAT], [2, 3]),
        ("Pendulum-v1", [RESCALE, STACK, REPEAT], [3, 3]),
        ("FrozenLake-v1", [STACK], [3]),
        ("ToyGarden-v0", [STACK], None),
        ("Blackjack-v1", [STACK, CLIP], None),
    ],
)
def test_wrapped_episodes_are_those_played_one_by_one(environment_id, wrappers, shape):
    spec = wrapped(environment_id, wrappers)
    assert spec.environment.observation.size > 2
    assert shape is None or list(spec.environment.observation.shape) == shape
    job, theta = EvaluationJob("members", 0, 5, 4, 1, 0.3), reference.theta(spec)
    found = lanes_of(spec).evaluate(job, theta)
    returns, lengths = reference.returns(spec, job, theta)
    assert found.failed == ()
    np.testing.assert_array_equal(found.returns, returns)
    np.testing.assert_array_equal(found.lengths, lengths)


def test_rewards_are_clipped_and_steps_are_the_policys():
    job = EvaluationJob("members", 0, 5, 4, 1, 0.3)
    plain, clipped, repeated = (
        lanes_of(spec).evaluate(job, reference.theta(spec))
        for spec in (wrapped("CartPole-v1", w) for w in ([], [CLIP], [REPEAT]))
    )
    np.testing.assert_array_equal(clipped.returns, 0.5 * plain.returns)
    np.testing.assert_array_equal(repeated.lengths, np.ceil(repeated.returns / 4))


@pytest.mark.parametrize(("limit", "steps"), [(0, 50), (7, 7)])
def test_the_environments_own_limit_counts_its_own_steps_below_a_repeat(limit, steps):
    spec = wrapped("Pendulum-v1", [REPEAT], max_steps=limit)
    job = EvaluationJob("members", 0, 0, 2, 1, 0.3)
    assert (lanes_of(spec).evaluate(job, reference.theta(spec)).lengths == steps).all()


def test_only_what_must_lie_around_an_environment_does():
    spec = wrapped("CartPole-v1", [STACK])
    instance = environments.maker(spec.environment).make()
    assert isinstance(instance, gymnasium.wrappers.FrameStackObservation)
    assert type(instance.env) is gymnasium.envs.classic_control.CartPoleEnv


@pytest.mark.parametrize(
    ("environment_id", "wrapper", "words"),
    [
        ("CartPole-v1", RESCALE, ["CartPole-v1", "'rescale-observation'", "infinity", "wrappers"]),
        ("FrozenLake-v1", RESCALE, ["'rescale-observation'", "Box", "environment.wrappers"]),
        ("CartPole-v1", {"kind": "atari"}, ["'atari'"]),
    ],
)
def test_a_wrapper_that_does_not_suit_is_one_line(environment_id, wrapper, words):
    with pytest.raises(EnvironmentUnavailable) as caught:
        wrapped(environment_id, [wrapper])
    assert all(word in str(caught.value) for word in words), caught.value
    assert "\n" not in str(caught.value)


def test_a_spec_whose_spaces_are_not_those_outside_the_wrappers_is_one_line():
    spec = wrapped("CartPole-v1", [STACK], observation=reference.box(4))
    both = r"\(3, 4\).* here but .*\(4,\).* mend the spec"
    with pytest.raises(EnvironmentUnavailable, match=both):
        environments.maker(spec.environment).make()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[", ["wrappers '['", "JSON list"]),
        ('[{"kind": "tile-coding"}]', ["environment.wrappers[0].kind is 'tile-coding'", "atari"]),
        ('[{"kind": "frame-stack", "n": 0}]', ["environment.wrappers[0].n is 0", "at least 1"]),
        ('{"kind": "frame-stack"}', ["environment.wrappers is", "a list"]),
    ],
)
def test_wrappers_that_there_are_not_are_one_line(text, words):
    with pytest.raises(ShoalError) as caught:
        wrapping.parse(text)
    assert all(word in str(caught.value) for word in words), caught.value


def test_atari_games_are_small_grey_images_of_every_fourth_frame():
    pytest.importorskip("cv2")
    gymnasium.register_envs(pytest.importorskip("ale_py"))
    atari = {"kind": "atari", "noop_max": 5, "screen_size": 20}
    options = {"kwargs": {"frameskip": 1}, "max_steps": 8}
    spec = wrapped("ALE/Pong-v5", [atari, {"kind": "frame-stack", "n": 2}], **options)
    assert spec.environment.observation.shape == (2, 20, 20)
    assert spec.environment.observation.dtype == "uint8"
    job, theta = EvaluationJob("members", 0, 5, 2, 1, 0.3), reference.theta(spec)
    np.testing.assert_array_equal(
        lanes_of(spec).evaluate(job, theta).returns, reference.returns(spec, job, theta)[0]
    )
    with pytest.raises(EnvironmentUnavailable, match="frame-skip"):
        wrapped("ALE/Pong-v5", [atari])
