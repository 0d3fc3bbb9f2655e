"""From preset, run file and flags to a spec, asking real environments for their spaces."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import pytest

from coordinator import composing, flags
from coordinator.composing import default_name
from coordinator.pool.presets import PRESETS
from protocol import optimizers
from protocol import spec as run_spec
from protocol.errors import ShoalError
from protocol.spaces import Box, Discrete
from protocol.spec import PolicySpec, RunSpec, SpecError, StrategySpec

SPACES = """
[environment]
id = "Nowhere-v0"
observation = { kind = "box", shape = [3] }
action = { kind = "discrete", n = 2 }
"""


def compose(*arguments: Any, **named: Any) -> RunSpec:
    return composing.compose(*arguments, **named).spec


def run_file(directory: Path, text: str) -> str:
    path = directory / "run.toml"
    path.write_text(text)
    return str(path)


def test_preset_is_the_base_and_flags_and_assignments_are_laid_over_it() -> None:
    spec = compose(
        "CartPole-v1",
        {"strategy": {"population": 128, "sigma": 0.2}, "seed": 7},
        ["strategy.sigma=0.3", "name=mine"],
    )
    assert (spec.name, spec.seed, spec.stop.target) == ("mine", 7, 475.0)
    assert (spec.strategy.population, spec.strategy.sigma) == (128, 0.3)
    assert spec.policy.hidden == (32,)


def test_the_flag_names_every_optimizer() -> None:
    (option,) = get_args(flags.OptimizerKind)[1:]
    for kind in optimizers.OPTIMIZERS:
        assert re.search(rf"\b{kind}\b", option.help), kind


def test_another_optimizer_than_the_presets_has_values_of_its_own(tmp_path: Path) -> None:
    other = compose("CartPole-v1", {"optimizer": {"kind": "clipup"}}).optimizer
    assert (other.learning_rate, other.momentum) == (0.25, 0.9)
    same = compose("CartPole-v1", {"optimizer": {"kind": "normalised"}}).optimizer
    assert (same.learning_rate, same.momentum) == (0.5, 0.8)
    said = ["optimizer.kind=sgd", "optimizer.momentum=0.3", "optimizer.l2=0.01"]
    source = run_file(tmp_path, run_spec.to_toml(compose("CartPole-v1", {}, said)))
    kept = compose(source, {"optimizer": {"kind": "nesterov"}}).optimizer
    assert (kept.momentum, kept.l2) == (0.9, 0.01)


def test_another_strategy_than_the_presets_brings_its_own_noise_and_optimizer() -> None:
    spec = compose("CartPole-v1", {"strategy": {"kind": "hill-climbing"}})
    assert (spec.strategy.noise, spec.optimizer.kind) == ("gaussian", "sgd")
    assert (spec.optimizer.learning_rate, spec.optimizer.momentum) == (1.0, 0.0)
    assert spec.policy.hidden == (32,)
    same = compose("CartPole-v1", {"strategy": {"kind": "openai-es"}})
    assert same == compose("CartPole-v1", {})


def test_what_is_given_wins_over_what_a_strategy_brings(tmp_path: Path) -> None:
    given = ["strategy.kind=random-search", "strategy.noise=rademacher"]
    spec = compose("CartPole-v1", {}, [*given, "optimizer.learning_rate=0.5"])
    assert (spec.strategy.noise, spec.optimizer.kind) == ("rademacher", "sgd")
    assert spec.optimizer.learning_rate == 0.5
    said = '[strategy]\nkind = "hill-climbing"\n[optimizer]\nlearning_rate = 0.25\n'
    spec = compose(run_file(tmp_path, SPACES + said), {})
    assert (spec.strategy.noise, spec.optimizer.learning_rate) == ("gaussian", 0.25)
    with pytest.raises(SpecError, match=r'optimizer.kind is "adam": use kind "sgd"'):
        compose("CartPole-v1", {}, [*given, "optimizer.kind=adam"])


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_of_the_pool_is_spelt_out_in_the_spec(name: str) -> None:
    spec = compose("CartPole-v1", {}, pool=name)
    given = run_spec.to_plain(spec)["pool"]
    assert given == run_spec.to_plain(compose("CartPole-v1", {}))["pool"] | PRESETS[name]


def test_what_is_given_wins_over_the_preset_of_the_pool(tmp_path: Path) -> None:
    source = run_file(tmp_path, SPACES + "[pool]\nquorum = 0.5\n")
    staleness = {"pool": {"max_staleness": 1}}
    pool = compose(source, staleness, ["pool.discount=3"], pool="async").pool
    assert (pool.quorum, pool.max_staleness, pool.discount) == (0.5, 1, 3)
    assert pool.patience == PRESETS["async"]["patience"]


def test_an_unknown_preset_of_the_pool_is_answered_with_the_names() -> None:
    with pytest.raises(SpecError, match=r"--pool 'Sync': must be one of sync, quorum, async"):
        compose("CartPole-v1", {}, pool="Sync")


def test_a_preset_that_the_run_file_overrides_whole_is_a_mistake(tmp_path: Path) -> None:
    source = run_file(tmp_path, run_spec.to_toml(compose("CartPole-v1", {})))
    with pytest.raises(SpecError, match=r"--pool async would change nothing: .*run.toml says"):
        compose(source, {}, pool="async")


def test_environment_without_preset_tells_its_spaces_and_target() -> None:
    spec = compose("Acrobot-v1", {}, preset="none")
    assert spec.name == "acrobot-v1"
    assert spec.strategy == StrategySpec() and spec.policy == PolicySpec()
    assert spec.environment.observation == Box(shape=(6,))
    assert spec.environment.action == Discrete(n=3)
    assert spec.stop.target == -100.0


def test_environment_is_asked_with_its_arguments(tmp_path: Path) -> None:
    text = '[environment]\nid = "FrozenLake-v1"\nkwargs = { map_name = "8x8" }\n'
    spec = compose(run_file(tmp_path, text), {})
    assert spec.environment.observation == Discrete(n=64)
    with pytest.raises(SpecError, match="FrozenLake-v1"):
        compose(run_file(tmp_path, text.replace("8x8", "9x9")), {})


def test_environment_is_asked_in_its_wrappers(tmp_path: Path) -> None:
    stacked = "environment.wrappers=[{kind = 'frame-stack', n = 3}]"
    spec = compose("CartPole-v1", {}, [stacked])  # whose preset has the spaces of the bare one
    assert spec.environment.observation == Box(shape=(3, 4))
    assert spec.stop.target == 475.0
    assert compose(run_file(tmp_path, run_spec.to_toml(spec)), {}) == spec
    with pytest.raises(SpecError, match=r"environment\.wrappers\[0\]\.n is 0: must be at least 1"):
        compose("CartPole-v1", {}, [stacked.replace("3", "0")])


def test_target_that_was_given_is_kept(tmp_path: Path) -> None:
    target = {"stop": {"target": -80.0}}
    assert compose("Acrobot-v1", target, preset="none").stop.target == -80.0


def test_the_preset_of_another_environment_gives_all_but_its_spaces_and_target() -> None:
    spec = compose("Acrobot-v1", {}, preset="CartPole-v1")
    assert (spec.environment.id, spec.stop.target) == ("Acrobot-v1", -100.0)
    assert spec.environment.observation == Box(shape=(6,))
    assert spec.optimizer == compose("CartPole-v1", {}).optimizer
    with pytest.raises(ShoalError, match=r"no preset for 'CartPol-v1': did you mean CartPole-v1"):
        compose("Acrobot-v1", {}, preset="CartPol-v1")


def test_a_run_file_and_an_objective_take_no_preset(tmp_path: Path) -> None:
    source = run_file(tmp_path, SPACES)
    with pytest.raises(SpecError, match=r"--preset none: .*run.toml.* leave --preset out"):
        compose(source, {}, preset="none")
    with pytest.raises(SpecError, match=r"--preset none: an objective takes none: leave"):
        compose(None, {}, preset="none")


def test_layers_that_are_asked_for_win_over_a_preset_without() -> None:
    linear = compose("MountainCarContinuous-v0", {})
    assert linear.policy.kind == "linear"
    layered = compose("MountainCarContinuous-v0", {"policy": {"hidden": [8]}})
    assert (layered.policy.kind, layered.policy.hidden) == ("mlp", (8,))
    assert layered.policy.initialisation == linear.policy.initialisation == "zero"
    said = {"policy": {"kind": "linear", "hidden": [8]}}
    assert compose("MountainCarContinuous-v0", said).policy.kind == "linear"


def test_arguments_of_an_environment_make_its_presets_spaces_stale() -> None:
    moved = "environment.kwargs={exclude_current_positions_from_observation = false}"
    assert compose("Swimmer-v5", {}).environment.observation == Box(shape=(8,))
    assert compose("Swimmer-v5", {}, [moved]).environment.observation == Box(shape=(10,))


def test_spaces_in_a_run_file_need_no_environment(tmp_path: Path) -> None:
    spec = compose(run_file(tmp_path, SPACES), {"stop": {"updates": 3}})
    assert spec.environment.id == "Nowhere-v0" and spec.name == "nowhere-v0"


def test_spec_written_as_toml_composes_to_itself(tmp_path: Path) -> None:
    spec = compose(
        run_file(tmp_path, SPACES),
        {
            "environment": {
                "observation": {"kind": "box", "shape": [3]},
                "action": {"kind": "discrete", "n": 2},
                "kwargs": {"a": 1.5, "b": True, "c": 'quo"te\\d', "d": -3},
            }
        },
        ["policy.hidden=[8, 4]", "stop.seconds=1.5", "normalizer.enabled=true"],
    )
    assert compose(run_file(tmp_path, run_spec.to_toml(spec)), {}) == spec


ERRORS = {
    "unknown environment": ("NoSuchThing-v0", "", "NoSuchThing-v0"),
    "like an option": ("--help", "", "no environment '--help'"),
    "a long name": ("x" * 300_000, "", "can't be asked for"),
    "no run file": ("nowhere.toml", "", "no run file nowhere.toml"),
    "not TOML": (None, "[environment\n", "is not valid TOML"),
    "no environment": (None, "seed = 3\n", "names no environment"),
    "an environment that is no table": (None, "environment = 3\n", "names no environment"),
    "a NUL": (None, '[environment]\nid = "a\\u0000b"\n', "can't be asked for"),
    "a date as an argument": (
        None,
        '[environment]\nid = "CartPole-v1"\nkwargs = { day = 2020-01-01 }\n',
        "environment.kwargs",
    ),
    "unknown field": (None, SPACES + "[strategy]\nsigmaa = 1\n", "did you mean `sigma`"),
    "unknown policy": (None, SPACES + '[policy]\nkind = "transformer"\n', "'linear', 'mlp'"),
    "odd population": (None, SPACES + "[strategy]\npopulation = 7\n", "strategy.population is 7"),
    "unknown section": (None, SPACES + "[pol]\nquorum = 1\n", "unknown field `pol`"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_mistake_is_named_in_one_line(case: str, tmp_path: Path) -> None:
    source, text, message = ERRORS[case]
    with pytest.raises(SpecError) as caught:
        compose(source or run_file(tmp_path, text), {})
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("assignment", ["sigma", "strategy.sigma", "=3", "strategy..sigma=1"])
def test_assignment_of_another_form_is_shown_how(assignment: str) -> None:
    with pytest.raises(SpecError, match="not of the form"):
        compose("CartPole-v1", {}, [assignment])


def test_environment_that_takes_too_long_asks_for_a_run_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(composing, "DESCRIBE_TIMEOUT", 0.01)
    with pytest.raises(SpecError, match="told nothing within 0 s: give"):
        compose("Acrobot-v1", {}, preset="none")


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        ("CartPole-v1", "cartpole-v1"),
        ("ALE/Pong-v5", "ale-pong-v5"),
        ("module:My_Env-v0", "module-my-env-v0"),
        ("--", "run"),
        ("x" * 60, "x" * 40),
    ],
)
def test_default_names_are_possible_names(environment: str, name: str) -> None:
    assert default_name(environment) == name


def test_environment_without_a_time_limit_must_be_given_one() -> None:
    with pytest.raises(SpecError, match=r"CliffWalking-v1 has no time limit.*max_steps"):
        compose("CliffWalking-v1", {})
    spec = compose("CliffWalking-v1", {}, ["environment.max_steps=200"])
    assert spec.environment.max_steps == 200
