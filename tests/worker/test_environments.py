import gymnasium
import pytest
from gymnasium.envs.classic_control import CartPoleEnv

from protocol.spec import EnvironmentSpec
from tests.worker.reference import TOYS, run_spec
from worker.evaluation import environments, spaces
from worker.evaluation.jobs import EnvironmentUnavailable


def maker_of(environment_id: str, **environment: object) -> environments.Maker:
    return environments.maker(run_spec(environment_id, environment=environment).environment, [TOYS])


def test_a_registered_environment_comes_bare():
    maker = maker_of("CartPole-v1")
    assert type(maker.make()) is CartPoleEnv
    assert maker.limit == 500


@pytest.mark.parametrize(("steps", "limit"), [(0, 500), (40, 40), (900, 500)])
def test_the_lower_limit_of_spec_and_registration_holds(steps, limit):
    assert maker_of("CartPole-v1", max_steps=steps).limit == limit


def test_wrappers_of_the_registration_stay_and_the_time_limit_below_them():
    instance = maker_of("ToyRescaled-v0").make()
    assert isinstance(instance, gymnasium.wrappers.RescaleAction)
    assert isinstance(instance.env, gymnasium.wrappers.TimeLimit)
    wrappers = []
    while isinstance(instance, gymnasium.Wrapper):
        wrappers.append(type(instance))
        instance = instance.env
    assert gymnasium.wrappers.OrderEnforcing not in wrappers


def test_arguments_reach_the_environment():
    assert maker_of("ToyWalk-v0", kwargs={"trouble": "raise", "every": 5}).make().every == 5


@pytest.mark.parametrize(
    ("environment_id", "words"),
    [
        ("CartPole-v7", ["CartPole-v7", "did you mean", "CartPole-v1"]),
        ("CartPol-v1", ["did you mean CartPole-v1 or", "? Else install the package"]),
        ("cartpole-v1", ["CartPole-v1"]),
        ("Xyzzy", ["Xyzzy", "install the package"]),
        ("this:That-v0", ["'this'", "--allow-module this", "'That-v0'"]),
        ("os:path:That-v0", ["'os:path'"]),
        ("GymV21Environment-v0", ["any module"]),
        ("GymV26Environment-v0", ["any module"]),
    ],
)
def test_ids_that_are_not_registered_are_refused(environment_id, words):
    with pytest.raises(EnvironmentUnavailable) as caught:
        environments.registered(environment_id)
    assert all(word in str(caught.value) for word in words)


def test_a_module_that_is_allowed_but_missing_is_named():
    with pytest.raises(EnvironmentUnavailable, match=r"no_such_module.*install it or take it off"):
        environments.registered("CartPole-v1", ["no_such_module"])


@pytest.mark.parametrize(
    ("environment_id", "environment", "words"),
    [
        ("ToyAbsent-v0", {}, ["ToyAbsent-v0", "pip install toys"]),
        ("CartPole-v1", {"kwargs": {"wheels": 4}}, ["wheels", "arguments that it takes"]),
        ("CartPole-v1", {"kwargs": {"render_mode": "human"}}, ["windows", "shoal play"]),
        ("ToyOdd-v0", {}, ["ToyOdd-v0", "Text", "wrap the environment"]),
        ("ToyUnbounded-v0", {}, ["finite bounds"]),
        (
            "CartPole-v1",
            {"observation": {"kind": "box", "shape": [6]}},
            ["observation", "(4,)", "(6,)", "the version that the host has"],
        ),
        ("CartPole-v1", {"action": {"kind": "discrete", "n": 3}}, ["action", "n=2", "n=3"]),
        (
            "Pendulum-v1",
            {"action": {"kind": "box", "shape": [1], "low": [-1.0], "high": [1.0]}},
            ["action", "(-2.0,)", "(-1.0,)"],
        ),
        ("FrozenLake-v1", {"observation": {"kind": "discrete", "n": 16, "start": 1}}, ["start=1"]),
    ],
)
def test_environments_that_cannot_serve_say_why_in_one_line(environment_id, environment, words):
    with pytest.raises(EnvironmentUnavailable) as caught:
        maker_of(environment_id, **environment).make()
    message = str(caught.value)
    assert all(word in message for word in words), message
    assert "\n" not in message


def test_spaces_are_described_in_the_words_of_the_spec():
    for environment_id in (
        "CartPole-v1",
        "Pendulum-v1",
        "FrozenLake-v1",
        "ToyMiser-v0",
        "ToyGarden-v0",
    ):
        spec: EnvironmentSpec = run_spec(environment_id).environment
        instance = environments.make(environments.registered(environment_id, [TOYS]), {})
        assert spaces.observations(instance) == spec.observation
        assert spaces.actions(instance) == spec.action
