import pytest

from protocol.spaces import Box, Discrete
from worker.compiled import environment
from worker.compiled.environment import Functional, functional, register
from worker.evaluation.jobs import EnvironmentUnavailable


def coast(speed: float = 1.0) -> Functional:
    import jax.numpy as jnp

    def reset(key):
        del key
        return jnp.float32(0), jnp.zeros(1, jnp.float32)

    def step(state, action, key):
        del action, key
        state = state + speed
        return state, state[None], jnp.float32(speed), state > 3

    return Functional(Box(shape=(1,)), Discrete(n=2), 10, reset, step)


def test_an_environment_of_ones_own_is_found_with_and_without_the_prefix():
    register("Coast-v0", coast)
    for name in ("Coast-v0", "jax:Coast-v0"):
        assert functional(name, {"speed": 2.0}).limit == 10


@pytest.mark.parametrize("name", ["CartPole-v1", "brax:ant"])
def test_names_that_others_rely_on_are_not_given_away(name):
    with pytest.raises(ValueError, match="a name of your own"):
        register(name, coast)


@pytest.mark.parametrize(
    ("name", "kwargs", "words"),
    [
        ("CartPol-v1", {}, ["'CartPol-v1'", "did you mean CartPole-v1", "--allow-module"]),
        ("jax:Xyzzy", {}, ["'Xyzzy'", "environment.register"]),
        ("mjx:ant", {}, ["'mjx'", "gymnax:NAME, brax:NAME, playground:NAME or jax:NAME"]),
        ("Coast-v0", {"wheels": 4}, ["Coast-v0", "wheels", "arguments that it takes"]),
    ],
)
def test_what_can_not_be_had_is_said_in_one_line(name, kwargs, words):
    register("Coast-v0", coast)
    with pytest.raises(EnvironmentUnavailable) as caught:
        functional(name, kwargs)
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_module_that_is_allowed_but_missing_is_named():
    with pytest.raises(EnvironmentUnavailable, match=r"no_such_module.*install it or take it off"):
        functional("CartPole-v1", {}, ["no_such_module"])


def test_a_machine_without_jax_says_what_to_install(monkeypatch):
    monkeypatch.setattr(environment.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(EnvironmentUnavailable, match=r"shoal\[jax\]"):
        functional("CartPole-v1", {})


def test_a_package_that_is_not_there_is_named(monkeypatch):
    known = environment.importlib.util.find_spec
    monkeypatch.setattr(
        environment.importlib.util,
        "find_spec",
        lambda name: None if name == "brax" else known(name),
    )
    with pytest.raises(EnvironmentUnavailable, match="brax:ant needs brax"):
        functional("brax:ant", {})
