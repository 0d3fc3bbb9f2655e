from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol import optimizers, replay, strategies
from protocol import spec as run_spec
from protocol.errors import ShoalError
from protocol.normalizer import ObservationSums, to_bytes
from protocol.packing import pack
from protocol.schedules import Schedule
from protocol.spaces import Box, Discrete
from protocol.spec import OptimizerSpec, RunSpec, SpecError
from tests.protocol import generated

BASE: dict[str, Any] = {
    "name": "cartpole",
    "environment": {
        "id": "CartPole-v1",
        "observation": {"kind": "box", "shape": [4]},
        "action": {"kind": "discrete", "n": 2},
    },
}
CONTINUOUS = {"kind": "box", "shape": [2], "low": [-1.0, -2.0], "high": [1.0, 2.0]}


def parse(**sections: Any) -> RunSpec:
    return run_spec.parse(run_spec.merge(BASE, sections))


# Any spec at all.

NAMES = st.from_regex(r"\A[a-z0-9][a-z0-9-]{0,39}\Z")
IDS = st.from_regex(r"\A[A-Za-z0-9_./:-]{1,128}\Z")
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
ARGUMENTS = st.dictionaries(
    st.from_regex(r"\A[A-Za-z_][A-Za-z0-9_]{0,20}\Z").filter(str.isidentifier),
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    max_size=4,
)
BOUNDED = st.lists(
    st.tuples(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6)), min_size=1, max_size=4
).map(
    lambda pairs: Box(
        shape=(len(pairs),),
        low=tuple(low for low, _ in pairs),
        high=tuple(low + width for low, width in pairs),
    )
)
SHAPES = st.lists(st.integers(1, 12), max_size=3).map(tuple)
OBSERVATIONS = st.builds(Box, shape=SHAPES) | generated.struct(Discrete).filter(lambda d: d.n < 99)
ACTIONS = BOUNDED | st.builds(Discrete, n=st.integers(1, 20), start=st.integers(-5, 5))
SECTIONS = ("strategy", "optimizer", "normalizer", "pool", "centre", "stop")

CHOSEN = {
    "strategy": {
        field.name: st.none()
        for field in msgspec.structs.fields(run_spec.StrategySpec)
        if field.default is None
    }
    | {
        "kind": st.just("openai-es"),
        "shaping": st.sampled_from([None, *strategies.SHAPINGS]),
        "arguments": st.just({}),
        "sigma": st.floats(1e-6, 1e6),
        "schedule": generated.struct(
            Schedule, updates=st.integers(1, 9), floor=st.floats(1e-3, 1.0)
        ),
    },
    "optimizer": {
        "kind": st.sampled_from([kind for kind in optimizers.OPTIMIZERS if kind != "novograd"]),
        "arguments": st.just({}),
        "schedule": generated.struct(Schedule, updates=st.integers(1, 9)),
    },
}
"""Fields of sections whose values depend on each other, or on what is registered."""


@cache
def section(name: str) -> st.SearchStrategy[Any]:
    kind = next(f for f in generated.fields_of(RunSpec) if f.encode_name == name).type.cls
    return generated.struct(kind, **CHOSEN.get(name, {}))


POLICIES = st.builds(
    run_spec.PolicySpec,
    kind=st.sampled_from(["linear", "mlp"]),
    hidden=st.lists(st.integers(1, 40), min_size=1, max_size=3).map(tuple),
    activation=st.sampled_from(["tanh", "relu"]),
    squash=st.sampled_from(["clip", "tanh"]),
    initialisation=st.sampled_from(["zero", "scaled"]),
    initial_scale=st.floats(1e-3, 100.0),
)


@st.composite
def specs(draw: st.DrawFn) -> RunSpec:
    """Any valid run spec."""
    parts = {name: draw(section(name)) for name in SECTIONS}
    centre, stop = parts["centre"], parts["stop"]
    if centre.screening > centre.episodes:
        parts["centre"] = centre = msgspec.structs.replace(centre, screening=centre.episodes)
    if centre.evaluate_every == 0:
        parts["stop"] = msgspec.structs.replace(stop, target=None)
    if centre.episodes < 2:
        parts["stop"] = msgspec.structs.replace(parts["stop"], confidence=0.0)
    strategy, pool = parts["strategy"], parts["pool"]
    if strategy.mirrored:
        even = strategy.population // 2 * 2
        parts["strategy"] = msgspec.structs.replace(strategy, population=even)
    else:
        few = min(strategy.population, run_spec.MAX_DIRECTIONS)
        parts["strategy"] = msgspec.structs.replace(strategy, population=few)
        parts["pool"] = msgspec.structs.replace(pool, max_staleness=0)
    return RunSpec(
        name=draw(NAMES),
        seed=draw(st.integers(0, 2**63 - 1)),
        environment=run_spec.EnvironmentSpec(
            id=draw(IDS),
            kwargs=draw(ARGUMENTS),
            observation=draw(OBSERVATIONS),
            action=draw(ACTIONS),
            max_steps=draw(st.integers(0, 10_000_000)),
            episodes=draw(st.integers(1, 1024)),
            seeding=draw(st.sampled_from(["pair", "member", "version", "fixed"])),
            cap=draw(st.sampled_from([0.0, 1.5, 1000.0])),
            cap_minimum=draw(st.sampled_from([100, 1, 10_000_000])),
            fixed_versions=draw(st.integers(0, 9)),
            alive_bonus=draw(st.sampled_from([0.0, -0.5, 1.0])),
            lowest_return=draw(st.sampled_from([None, -0.5, 0.0])),
            highest_return=draw(st.sampled_from([None, 0.0, 1e150])),
            alive_bonus_schedule=draw(generated.struct(Schedule, updates=st.integers(1, 9))),
        ),
        policy=draw(POLICIES),
        **parts,
    )


@settings(max_examples=50, deadline=None)
@given(specs())
def test_a_spec_comes_back_from_bytes_and_from_toml(spec: RunSpec) -> None:
    data = run_spec.to_bytes(spec)
    assert run_spec.from_bytes(data) == spec
    again = run_spec.parse(tomllib.loads(run_spec.to_toml(spec)))
    assert again == spec
    assert run_spec.to_bytes(again) == data
    assert again.digest == spec.digest


def test_an_objective_stands_alone_and_comes_back_from_bytes_and_from_toml() -> None:
    named = {"function": "a.b:f", "parameters": 3, "goal": "minimise", "start": [1.5]}
    spec = run_spec.parse({"name": "x", "objective": named, "environment": {"seeding": "version"}})
    assert (spec.size, spec.layers, spec.environment.seeding) == (3, (), "version")
    assert spec.environment.id == "a.b:f"
    assert run_spec.from_bytes(run_spec.to_bytes(spec)) == spec
    assert run_spec.parse(tomllib.loads(run_spec.to_toml(spec))) == spec
    for wrong in (
        {"policy": {"kind": "mlp"}},
        {"environment": {"id": "CartPole-v1"}},
        {"environment": {"action": {"kind": "discrete", "n": 2}}},
        {"environment": {"max_steps": 5}},
        {"normalizer": {"enabled": True}},
        {"policy": {"initialisation": "scaled"}},
        {"objective": {**named, "start": [1.0, 2.0]}},
        {"objective": {**named, "start": [1e300]}},
    ):
        with pytest.raises(SpecError, match="objective"):
            run_spec.parse({"name": "x", "objective": named, **wrong})


def test_a_spec_without_anything_given_is_valid_and_its_bytes_are_these() -> None:
    """The digest names a run's spec for ever: a change of it is a change of the protocol."""
    spec = parse()
    assert spec.digest.hex() == "1d2ac2a3787596bcc1211528a6cc6de2"
    assert (spec.size, spec.directions, spec.layers) == (226, 32, ((4, 32), (32, 2)))


def test_equal_specs_have_equal_bytes_however_they_were_written() -> None:
    one = parse(environment={"kwargs": {"b": 1, "a": 0.0}}, optimizer={"momentum": 0, "beta1": 0.9})
    two = parse(
        optimizer={"beta1": 0.9, "momentum": -0.0}, environment={"kwargs": {"a": -0.0, "b": 1}}
    )
    assert one == two
    assert run_spec.to_bytes(one) == run_spec.to_bytes(two)
    assert run_spec.to_toml(one) == run_spec.to_toml(two)


# What a host writes wrongly.

IMAGES = {"kind": "box", "shape": [11, 11, 3], "dtype": "uint8"}
CNN = {"kind": "cnn", "hidden": [16]}
MODULE = {"kind": "module", "module": "nets:Net", "parameters": [["w", [2, 4]]]}

CLIMBING = {"kind": "sgd", "momentum": 0.0, "learning_rate": 1.0}

MISTAKES: list[tuple[dict[str, Any], list[str]]] = [
    ({"seed": -1}, ["seed is -1", "at least 0"]),
    ({"seed": 2**63}, ["seed is 9223372036854775808", "at most 9,223,372,036,854,775,807"]),
    ({"name": "Cart Pole"}, ["name is 'Cart Pole'", "lower-case letters"]),
    ({"name": "cartpole\n"}, ["name is", "lower-case letters"]),
    ({"name": "x" * 41}, ["at most 40"]),
    ({"strategy": {"sigma": 0.0}}, ["strategy.sigma is 0.0", "more than 0"]),
    ({"strategy": {"sigma": math.nan}}, ["strategy.sigma is nan"]),
    ({"strategy": {"sigma": math.inf}}, ["strategy.sigma is inf", "at most 1,000,000"]),
    ({"strategy": {"population": 7}}, ["strategy.population is 7", "even", "give 8"]),
    (
        {"strategy": {"population": 60_001, "mirrored": False}},
        ["strategy.population is 60,001", "at most 60,000"],
    ),
    (
        {"strategy": {"mirrored": False}, "pool": {"max_staleness": 1}},
        ["pool.max_staleness is 1", "strategy.mirrored = false", "to 0"],
    ),
    (
        {"strategy": {"kind": "hill-climbing"}, "optimizer": {"kind": "adam"}},
        ['optimizer.kind is "adam"', '"sgd"', "learning_rate 1.0"],
    ),
    (
        {"strategy": {"kind": "random-search"}, "optimizer": CLIMBING | {"clip_norm": 1.0}},
        ["optimizer.clip_norm is 1.0", '"sgd" with momentum 0'],
    ),
    (
        {
            "strategy": {"kind": "hill-climbing"},
            "optimizer": CLIMBING,
            "centre": {"evaluate_every": 2},
        },
        ["centre.evaluate_every is 2", "each version is judged", "to 1"],
    ),
    (
        {
            "strategy": {"kind": "hill-climbing", "keep": "always", "sigma_worse": 0.9},
            "optimizer": CLIMBING,
        },
        ["sigma_worse = 0.9", 'keep = "always"', "leave both out"],
    ),
    (
        {
            "strategy": {
                "kind": "random-search",
                "sigma_worse": 0.9,
                "schedule": {"kind": "linear", "updates": 5},
            },
            "optimizer": CLIMBING,
        },
        ["strategy.schedule.kind", "adapts sigma itself"],
    ),
    (
        {"strategy": {"kind": "hill-climbing", "elites": 2.5}, "optimizer": CLIMBING},
        ["elites = 2.5", "a share, or a whole number"],
    ),
    (
        {"strategy": {"kind": "hill-climbing", "sigma_least": 2.0, "sigma_most": 1.0}},
        ["sigma_least = 2.0", "sigma_least <= sigma_most"],
    ),
    ({"strategy": {"sigm": 0.1}}, ["unknown field `strategy.sigm`", "did you mean `sigma`?"]),
    ({"strategy": {"kind": "cma-es"}}, ["strategy.kind is 'cma-es': must be one of", "openai-es"]),
    ({"optimiser": {}}, ["unknown field `optimiser`", "did you mean `optimizer`?"]),
    (
        {"optimizer": {"kind": "adm"}},
        ["optimizer.kind is 'adm': must be one of adabelief, adam, adamw"],
    ),
    ({"optimizer": {"kind": "Adam"}}, ["optimizer.kind is 'Adam'", "lower-case letters"]),
    ({"optimizer": {"kind": 7}}, ["optimizer.kind is 7: must be text"]),
    ({"optimizer": {"kind": "novograd", "l2": 0.1}}, ["l2 = 0.1", "use weight_decay"]),
    ({"optimizer": {"arguments": {"speed": 1}}}, ["takes no argument 'speed'", "momentum"]),
    ({"optimizer": {"arguments": {"momentum": 2}}}, ["momentum = 2", "0 <= momentum < 1"]),
    ({"optimizer": {"arguments": {"momentum": float("inf")}}}, ["optimizer.arguments.momentum"]),
    (
        {"optimizer": {"schedule": {"kind": "cosin"}}},
        ["optimizer.schedule.kind is 'cosin'", "'constant', 'exponential', 'linear', 'cosine'"],
    ),
    (
        {"optimizer": {"schedule": {"kind": "linear"}}},
        ["optimizer.schedule.updates is 0", '"linear"', "number of updates"],
    ),
    (
        {"strategy": {"schedule": {"kind": "cosine", "floor": 0.5}}},
        ["strategy.schedule.updates is 0"],
    ),
    (
        {"strategy": {"schedule": {"kind": "exponential"}}},
        ["strategy.schedule.floor is 0.0", "perturbations of no size", "such as 0.1"],
    ),
    ({"optimizer": {"schedule": {"until": 3}}}, ["unknown field `optimizer.schedule.until`"]),
    ({"optimizer": {"lookahead_alpha": 0.0}}, ["optimizer.lookahead_alpha is 0.0", "more than 0"]),
    ({"optimizer": {"momentum": 1.0}}, ["optimizer.momentum is 1.0", "less than 1"]),
    ({"pool": {"quorum": 0}}, ["pool.quorum is 0", "more than 0"]),
    ({"pool": {"stale_share": 1.5}}, ["pool.stale_share is 1.5", "at most 1"]),
    ({"policy": {"hidden": [32, 0]}}, ["policy.hidden[1] is 0", "at least 1"]),
    ({"policy": {"hidden": []}}, ["policy.hidden is empty", 'policy.kind = "linear"']),
    (
        {"policy": {"hidden": [4096, 4096], "initialisation": "orthogonal"}},
        ["layers.1.weight of shape (4096, 4096)", 'use "scaled"'],
    ),
    ({"policy": {"action_noise": "fixed"}}, ['policy.action_noise is "fixed"', "are choices"]),
    ({"policy": {"kind": "tabular"}}, ['policy.kind is "tabular"', "not all discrete"]),
    ({"policy": {"kind": "module"}}, ["policy.module ''", "package.module:Class"]),
    ({"policy": {"module": "nets:Net"}}, ['policy.kind is "mlp"', "others name none"]),
    ({"policy": MODULE | {"module": "nets"}}, ["policy.module is 'nets'", "my_package.policies"]),
    ({"policy": MODULE | {"module": "os:a.b"}}, ["policy.module is 'os:a.b'"]),
    ({"policy": MODULE | {"parameters": []}}, ["policy.parameters is empty", "`shoal host`"]),
    (
        {"policy": MODULE | {"parameters": [["w", [2]], ["w", [3]]]}},
        ["policy.parameters has a name twice", "rename"],
    ),
    (
        {"policy": MODULE | {"parameters": [["observation.mean", [2]]]}},
        ["'observation.'", "rename"],
    ),
    (
        {"policy": MODULE | {"arguments": {"widths": [3, math.inf]}}},
        ["policy.arguments.widths is inf", "finite"],
    ),
    ({"policy": MODULE | {"arguments": {"a b": 3}}}, ["policy.arguments has the name 'a b'"]),
    ({"policy": {"hidden": [1 << 16, 1 << 16]}}, ["4.3e+09 parameters", "smaller layers"]),
    ({"centre": {"episodes": 5}}, ["centre.screening is 10", "centre.episodes (5)"]),
    ({"policy": {"kind": "parameters"}}, ["policy.kind", "without an objective"]),
    (
        {
            "environment": {"observation": {"kind": "box", "shape": [8, 8], "dtype": "uint8"}},
            "normalizer": {"enabled": True},
        },
        ["normalizer.enabled is true", "images", '"float32"'],
    ),
    (
        {"objective": {"function": "problems:f", "parameters": 2}},
        ["objective.function is 'problems:f'", "takes the place", "CartPole-v1"],
    ),
    ({"objective": {"function": "problems.f", "parameters": 2}}, ["objective.function", "module"]),
    ({"objective": {"function": "problems:f", "parameters": 0}}, ["objective.parameters is 0"]),
    ({"objective": 3}, ["objective is 3"]),
    (
        {"stop": {"target": 1.0}, "centre": {"evaluate_every": 0}},
        ["stop.target is 1.0", "centre.evaluate_every is 0", "1 or more"],
    ),
    (
        {"stop": {"confidence": 0.9}, "centre": {"episodes": 1, "screening": 1}},
        ["stop.confidence is 0.9", "centre.episodes is 1", "2 or more"],
    ),
    ({"stop": {"target": math.nan}}, ["stop.target is nan"]),
    ({"stop": {"updates": "many"}}, ["stop.updates is 'many'", "whole number"]),
    ({"environment": {"id": "Cart Pole"}}, ["environment.id is 'Cart Pole'", "letters, digits"]),
    ({"environment": {"id": "CartPole-v1\n"}}, ["environment.id is"]),
    ({"environment": {"id": ""}}, ["environment.id is ''"]),
    ({"environment": {"backend": "atari"}}, ["environment.backend is 'atari'", "'gymnasium'"]),
    ({"environment": {"action": {"kind": "text"}}}, ["environment.action.kind is 'text'"]),
    (
        {"environment": {"observation": {"kind": "box", "shape": [4], "low": [math.nan] * 4}}},
        ["environment.observation", "NaN"],
    ),
    ({"environment": {"kwargs": {"a b": 1}}}, ["the name 'a b'", "a Python name"]),
    ({"environment": {"kwargs": {"x" * 65: 1}}}, ["a Python name of at most 64"]),
    ({"environment": {"kwargs": {"a": 2**63}}}, ["environment.kwargs.a is", "64 bits"]),
    ({"environment": {"kwargs": {"a": math.inf}}}, ["environment.kwargs.a is inf", "finite"]),
    ({"environment": {"kwargs": {"a": "\udc80"}}}, ["environment.kwargs.a is", "Unicode"]),
    ({"environment": {"kwargs": {"a": "x" * 257}}}, ["257 bytes long", "at most 256"]),
    ({"environment": {"kwargs": {"a": [1]}}}, ["environment.kwargs is {'a': [1]}"]),
    ({"environment": {"kwargs": {f"a{n}": n for n in range(65)}}}, ["at most 64 entries"]),
    ({"protocol": 2}, ["protocol 2", "speaks 1", "install the version"]),
    ({"protocol": "x"}, ["protocol 'x'"]),
]


@pytest.mark.parametrize(
    ("observation", "normalised", "words"),
    [
        ({"kind": "discrete", "n": 9}, True, ["normalizer.enabled is true", "set it to false"]),
        (
            {"kind": "multi-discrete", "choices": [2] * 2000, "shape": [2000]},
            False,
            ["more than 268,435,456", 'use "mlp"'],
        ),
    ],
)
def test_a_table_that_can_not_be_is_refused(
    observation: dict[str, Any], normalised: bool, words: list[str]
) -> None:
    environment = {"id": "A-v0", "observation": observation, "action": {"kind": "discrete", "n": 2}}
    raw = {
        "name": "a",
        "environment": environment,
        "policy": {"kind": "tabular"},
        "normalizer": {"enabled": normalised},
    }
    with pytest.raises(SpecError) as caught:
        run_spec.parse(raw)
    assert all(word in str(caught.value) for word in words)


@pytest.mark.parametrize(("sections", "words"), MISTAKES, ids=lambda value: str(value)[:50])
def test_a_wrong_spec_is_one_line_that_says_what_is_wrong(
    sections: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(SpecError) as caught:
        parse(**sections)
    line = str(caught.value)
    assert "\n" not in line
    assert len(line) < 400
    for word in words:
        assert word in line
    line.encode()  # it can be printed
    assert isinstance(caught.value, ShoalError)


@pytest.mark.parametrize("missing", ["name", "environment"])
def test_what_is_missing_is_named(missing: str) -> None:
    raw = {key: value for key, value in BASE.items() if key != missing}
    with pytest.raises(SpecError, match=f"`{missing}` is missing: add it"):
        run_spec.parse(raw)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"low": [-1.0]}, "2 elements but 1 low and 2 high bounds"),
        ({"low": []}, "0 low and 2 high"),
        ({"low": [-math.inf, 0.0]}, "element 0"),
        ({"high": [1.0, math.nan]}, "NaN"),
        ({"high": [1.0, -2.0]}, "element 1"),
        ({"high": [1.0, -3.0]}, "element 1"),
    ],
)
def test_continuous_actions_have_finite_bounds(changes: dict[str, Any], words: str) -> None:
    raw = run_spec.merge(BASE, {})
    raw["environment"] = {**BASE["environment"], "action": CONTINUOUS}
    assert run_spec.parse(raw).layers[-1] == (32, 2)
    raw["environment"] = {**BASE["environment"], "action": {**CONTINUOUS, **changes}}
    with pytest.raises(SpecError, match=words):
        run_spec.parse(raw)


def test_the_lowest_return_is_not_above_the_highest() -> None:
    parse(environment={"lowest_return": 1.0, "highest_return": 1.0})
    with pytest.raises(SpecError, match=r"lowest_return is 2, above .*highest_return, 1"):
        parse(environment={"lowest_return": 2.0, "highest_return": 1.0})


# Files, flags.


def test_a_run_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(run_spec.to_toml(parse(seed=7)))
    assert run_spec.parse(run_spec.load(path)).seed == 7


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "no run file"),
        (b"name = ", "not valid TOML"),
        (b"name = 1\nname = 2\n", "not valid TOML"),
        (b"\xff\xfe", "can't read"),
    ],
)
def test_a_run_file_that_can_not_be_read_is_named(
    tmp_path: Path, content: bytes | None, words: str
) -> None:
    path = tmp_path / "run.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SpecError, match=words) as caught:
        run_spec.load(path)
    assert "run.toml" in str(caught.value)


def test_a_directory_is_no_run_file(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="can't read the run file"):
        run_spec.load(tmp_path)


@pytest.mark.parametrize(
    ("assignments", "expected"),
    [
        (["strategy.sigma=0.05"], {"strategy": {"sigma": 0.05}}),
        (["strategy.sigma = 0.05 "], {"strategy": {"sigma": 0.05}}),
        (["policy.hidden=[64, 64]"], {"policy": {"hidden": [64, 64]}}),
        (["policy.kind=linear"], {"policy": {"kind": "linear"}}),
        (["policy.kind='linear'"], {"policy": {"kind": "linear"}}),
        (["normalizer.enabled=true"], {"normalizer": {"enabled": True}}),
        (["environment.id=CartPole-v1"], {"environment": {"id": "CartPole-v1"}}),
        (["environment.kwargs.continuous=true"], {"environment": {"kwargs": {"continuous": True}}}),
        (["environment.kwargs.myArg=a=b"], {"environment": {"kwargs": {"myArg": "a=b"}}}),
        (["seed=1", "seed=2"], {"seed": 2}),
        (["pool.quorum=1", "pool.max_staleness=2"], {"pool": {"quorum": 1, "max_staleness": 2}}),
        (["name=a\nb = 2"], {"name": "a\nb = 2"}),
        (["seed=1\nname = 2"], {"seed": "1\nname = 2"}),
        (["name="], {"name": ""}),
        ([], {}),
    ],
)
def test_settings_are_nested_toml_values_or_text(
    assignments: list[str], expected: dict[str, Any]
) -> None:
    assert run_spec.settings(assignments) == expected


@pytest.mark.parametrize("wrong", ["", "sigma", "=1", "a..b=1", "a b=1", "strategy.=1", "-x=1"])
def test_a_setting_of_another_form_is_shown_with_an_example(wrong: str) -> None:
    with pytest.raises(SpecError) as caught:
        run_spec.settings([wrong])
    assert repr(wrong) in str(caught.value)
    assert "--set strategy.sigma=0.05" in str(caught.value)


def test_merging_lays_tables_over_tables_and_changes_neither() -> None:
    base = {"a": {"b": 1, "c": {"d": 2}}, "e": 3}
    changes = {"a": {"c": {"f": 4}}, "e": {"g": 5}}
    merged = run_spec.merge(base, changes)
    assert merged == {"a": {"b": 1, "c": {"d": 2, "f": 4}}, "e": {"g": 5}}
    assert base == {"a": {"b": 1, "c": {"d": 2}}, "e": 3}


# From the wire.


@pytest.mark.parametrize(
    "data",
    [b"", b"\xc1", pack([1]), pack("text"), pack({}), pack({b"name": "x"}), pack({"name": {}})],
)
def test_bytes_that_are_no_spec_are_a_spec_error(data: bytes) -> None:
    with pytest.raises(SpecError):
        run_spec.from_bytes(data)


def test_a_spec_that_this_version_does_not_know_asks_for_an_upgrade() -> None:
    raw = run_spec.to_plain(parse())
    raw["strategy"]["novelty"] = 1
    with pytest.raises(SpecError, match=r"unknown field `strategy\.novelty`.*upgrade"):
        run_spec.from_bytes(pack(raw))


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_mutated_spec_is_a_spec_or_a_spec_error(data: st.DataObject) -> None:
    valid = bytearray(run_spec.to_bytes(parse(environment={"kwargs": {"a": "b"}})))
    for _ in range(data.draw(st.integers(1, 3))):
        valid[data.draw(st.integers(0, len(valid) - 1))] = data.draw(st.integers(0, 255))
    try:
        spec = run_spec.from_bytes(bytes(valid))
    except SpecError as error:
        assert "\n" not in str(error).replace("\\n", "")
    else:
        assert run_spec.from_bytes(run_spec.to_bytes(spec)) == spec


@pytest.mark.parametrize(("size", "fits"), [(4687, True), (4688, False), (84 * 84, False)])
def test_a_normaliser_is_refused_where_its_sums_fit_no_message(size: int, fits: bool) -> None:
    changes: dict[str, Any] = {
        "environment": {"observation": {"kind": "box", "shape": [size]}},
        "policy": {"hidden": [1]},
    }
    assert parse(**changes).environment.observation.size == size
    changes["normalizer"] = {"enabled": True}
    if fits:
        spec = parse(**changes)
        # 16 bytes each, signed and unsigned.
        sums = ObservationSums(1, (-(2**127),) * size, (2**128 - 1,) * size)
        assert len(to_bytes(sums)) < run_spec.MAX_STATISTICS
        assert spec.normalizer.enabled
    else:
        with pytest.raises(SpecError, match=rf"{size:,} observations.*at most 4,687 can be"):
            parse(**changes)


# What follows from a spec.


@pytest.mark.parametrize(
    ("sections", "layers", "size"),
    [
        ({"policy": {"kind": "linear"}}, ((4, 2),), 10),
        ({"policy": {"hidden": [3, 5]}}, ((4, 3), (3, 5), (5, 2)), 15 + 20 + 12),
        (
            {
                "environment": {"observation": {"kind": "box", "shape": [2, 3]}},
                "policy": {"hidden": [1]},
            },
            ((6, 1), (1, 2)),
            7 + 4,
        ),
    ],
)
def test_layers_and_size(sections: dict[str, Any], layers: tuple[Any, ...], size: int) -> None:
    spec = parse(**sections)
    assert (spec.layers, spec.size) == (layers, size)


@pytest.mark.parametrize(
    ("observations", "actions", "hidden", "size"), [(4, 2, [5, 5], 367), (6, 3, [5, 5, 5], 603)]
)
def test_a_recurrent_policy_has_the_size_of_its_layers_and_readout(
    observations: int, actions: int, hidden: list[int], size: int
) -> None:
    spec = parse(
        environment={
            "observation": {"kind": "box", "shape": [observations]},
            "action": {"kind": "discrete", "n": actions},
        },
        policy={"kind": "gru", "hidden": hidden},
    )
    assert spec.size == size
    assert spec.tensors[-2].shape == (actions, 5 * len(hidden))
    with pytest.raises(SpecError, match=r"policy\.hidden is empty"):
        parse(policy={"kind": "gru", "hidden": []})


@pytest.mark.parametrize("shape", [[84, 84, 4], [4, 84, 84]])
def test_the_parameters_of_convolutions_are_these(shape: list[int]) -> None:
    spec = parse(
        environment={
            "observation": {"kind": "box", "shape": shape, "dtype": "uint8"},
            "action": {"kind": "discrete", "n": 6},
        },
        policy={"kind": "cnn", "hidden": [256]},
    )
    # As in the network of Mnih et al. 2013.
    assert spec.size == 4112 + 8224 + 9 * 9 * 32 * 256 + 256 + 256 * 6 + 6
    assert spec.tensors[2].shape == (32, 16, 4, 4)


def test_spaces_have_a_size() -> None:
    assert Box(shape=()).size == 1
    assert Box(shape=(2, 3)).size == 6
    assert Discrete(n=5, start=3).size == 5


@pytest.mark.parametrize(
    ("hidden", "staleness", "kept"),
    [([32], 0, 9), ([32], 2, 11), ([4096, 4096], 0, 4), ([9000, 9000], 3, 5)],
)
def test_versions_kept_fit_the_memory(hidden: list[int], staleness: int, kept: int) -> None:
    spec = parse(policy={"hidden": hidden}, pool={"max_staleness": staleness})
    assert spec.versions_kept == kept
    assert spec.basis_size == spec.size


def test_versions_with_a_sigma_for_each_parameter_take_twice_the_memory() -> None:
    wide = parse(
        policy={"hidden": [4096, 1024]},
        strategy={"kind": "snes", "noise": "gaussian"},
        optimizer={"kind": "sgd", "learning_rate": 1.0, "momentum": 0.0},
    )
    assert wide.basis_size == 2 * wide.size
    assert 4 * wide.size < 1 << 25 < 8 * wide.size  # 8 versions would fit without sigmas
    assert wide.versions_kept == 1 + (1 << 28) // (8 * wide.size) == 8


@pytest.mark.parametrize("kind", sorted(optimizers.OPTIMIZERS))
def test_an_optimizer_has_values_of_its_own_and_the_bytes_say_them_all(kind: str) -> None:
    spec = parse(optimizer={"kind": kind, "momentum": 0.25})
    own = optimizers.own_values(optimizers.get(kind))
    for name in ("learning_rate", "beta2", "epsilon", "weight_decay"):
        assert getattr(spec.optimizer, name) == own.get(name, getattr(OptimizerSpec(), name))
    assert spec.optimizer.momentum == 0.25
    assert set(own) - {"l2", "maximum_speed"} <= set(run_spec.to_plain(spec)["optimizer"])
    assert run_spec.from_bytes(run_spec.to_bytes(spec)) == spec


def test_what_came_later_has_the_default_of_the_section_whatever_the_optimizer() -> None:
    """It isn't written where it has that: another default would be read back."""
    for kind, made in optimizers.OPTIMIZERS.items():
        for name in set(optimizers.own_values(made)) & set(OptimizerSpec.later):
            assert optimizers.own_values(made)[name] == getattr(OptimizerSpec(), name), kind


def test_an_optimizer_of_another_package_takes_part_where_it_is_registered() -> None:
    raw = {"kind": "elsewhere", "learning_rate": 0.2, "arguments": {"bend": 1}}
    with pytest.raises(SpecError, match="'elsewhere': must be one of"):
        parse(optimizer=raw)

    @optimizers.optimizer
    @dataclass(frozen=True)
    class Elsewhere(optimizers.SGD):
        kind: ClassVar[str] = "elsewhere"
        bend: float = 0.5

    try:
        spec = parse(optimizer=raw)
        assert run_spec.from_bytes(run_spec.to_bytes(spec)) == spec
        assert run_spec.parse(tomllib.loads(run_spec.to_toml(spec))) == spec
        made = replay.arithmetic(spec).optimizer
        assert made == Elsewhere(momentum=0.9, bend=1.0)
    finally:
        del optimizers.OPTIMIZERS._kinds["elsewhere"]
    with pytest.raises(
        SpecError, match=r"can't take part in the run: optimizer.kind is 'elsewhere'"
    ):
        run_spec.from_bytes(run_spec.to_bytes(spec))
