"""How a process begins a compiled run: which environment it plays, and what it finds out."""

import pytest

from protocol.spec import SpecError, parse, to_plain
from tests.worker import reference, toy_environments  # noqa: F401 - registers the toys
from tests.worker.compiled.toys import drift_spec
from tests.worker.reference import TOYS, run_spec
from worker.compiled.makers import CompiledMaker
from worker.evaluation import environments, makers, starting
from worker.evaluation.jobs import EnvironmentUnavailable


def changed(spec, **environment):
    raw = to_plain(spec)
    raw["environment"].update(environment)
    return parse(raw)


def test_a_process_is_as_fast_as_another_and_of_the_same_class():
    spec = drift_spec()
    maker = makers.maker(spec)
    first, lanes = starting.start(spec, maker, lambda take: None, lanes=20)
    again, _ = starting.start(spec, maker, lambda take: None, lanes=32)
    assert (first.numeric_class, first.lanes) == (again.numeric_class, lanes.most)
    assert len(first.numeric_class) == 16 and first.speed > 0 and first.together
    assert "compiled by JAX" in lanes.policy.remark
    other, _ = starting.start(spec, maker, lambda take: None, trial=1, lanes=32)
    assert other.numeric_class != first.numeric_class


@pytest.mark.parametrize("backend", ["jax", "gymnasium"])
def test_another_backends_environment_is_played_only_where_the_spec_says(backend):
    """ToyWalk-v0 is registered with Gymnasium alone, Drift-v0 with JAX alone."""
    name = "ToyWalk-v0" if backend == "jax" else "Drift-v0"
    spec = run_spec(name, environment={"backend": backend})
    with pytest.raises(EnvironmentUnavailable, match=f"no environment '{name}'"):
        makers.maker(spec, [TOYS])
    equivalent = changed(spec, equivalent_backends=True)
    expected = environments.Maker if backend == "jax" else CompiledMaker
    assert isinstance(makers.maker(equivalent, [TOYS]), expected)
    unknown = changed(spec, equivalent_backends=True, id="Xyzzy-v0")
    with pytest.raises(EnvironmentUnavailable, match="Xyzzy-v0"):
        makers.maker(unknown, [TOYS])


def test_a_prefix_is_left_out_for_gymnasium():
    spec = run_spec("jax:ToyWalk-v0", environment={"backend": "jax", "equivalent_backends": True})
    assert makers.maker(spec, [TOYS]).environment.id == "ToyWalk-v0"


def test_other_spaces_are_refused_in_one_line():
    spec = drift_spec(environment={"action": reference.discrete(2)})
    with pytest.raises(EnvironmentUnavailable, match=r"action space of jax:Drift-v0 is .*n=3.*n=2"):
        makers.maker(spec)


def test_nobody_draws_it():
    with pytest.raises(EnvironmentUnavailable, match="nothing draws it"):
        makers.maker(drift_spec()).make("human")


@pytest.mark.parametrize(
    ("environment", "policy", "words"),
    [
        ({"id": "mjx:ant"}, {}, "gymnax:NAME, brax:NAME, playground:NAME, jax:NAME"),
        ({"wrappers": [{"kind": "reward-clip", "low": -1.0, "high": 1.0}]}, {}, "compiled as"),
        ({}, {"kind": "module", "module": "a.b:C", "parameters": [["w", [2]]]}, "a PyTorch module"),
        ({"backend": "gymnasium"}, {}, "or use the id 'Drift-v0'"),
    ],
)
def test_specs_that_jax_can_not_play_are_refused(environment, policy, words):
    with pytest.raises(SpecError, match=words):
        drift_spec(environment=environment, policy=policy)


def test_a_machine_without_jax_says_so(monkeypatch):
    from worker.compiled import environment

    monkeypatch.setattr(environment.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(EnvironmentUnavailable, match=r"pip install 'shoal\[jax\]'"):
        makers.maker(drift_spec())


def test_an_environment_of_jax_is_described():
    from worker.describe import describe

    found = describe("jax:Drift-v0", {})
    assert found["max_episode_steps"] == 40
    assert found["observation"] == to_plain(drift_spec())["environment"]["observation"]
