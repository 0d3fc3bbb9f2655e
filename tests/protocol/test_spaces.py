import math
import re
import textwrap
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol import spaces, spec
from protocol.packing import pack
from protocol.section import plain
from protocol.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple
from tests.protocol.test_spec import BASE, parse

SHAPES = st.lists(st.integers(1, 3), max_size=2).map(tuple)
ARRAYS = st.lists(st.integers(1, 3), min_size=1, max_size=2).map(tuple)
NAMES = st.text("abcdefgh", min_size=1, max_size=3)


@st.composite
def boxes(draw: st.DrawFn) -> Box:
    shape = draw(SHAPES)
    low = draw(st.floats(-5.0, 5.0))
    size = math.prod(shape)
    return Box(shape=shape, low=(low,) * size, high=(low + draw(st.floats(0.5, 5.0)),) * size)


@st.composite
def several_choices(draw: st.DrawFn) -> MultiDiscrete:
    shape = draw(ARRAYS)
    size = math.prod(shape)
    choices = draw(st.lists(st.integers(1, 4), min_size=size, max_size=size))
    start = draw(st.lists(st.integers(-3, 3), min_size=size, max_size=size))
    return MultiDiscrete(choices=tuple(choices), shape=shape, start=tuple(start * any(start)))


LEAVES = (
    boxes()
    | st.builds(Discrete, n=st.integers(1, 5), start=st.integers(-3, 3))
    | st.builds(MultiBinary, shape=ARRAYS)
    | several_choices()
)


def composite(parts: st.SearchStrategy[Space]) -> st.SearchStrategy[Space]:
    lists = st.lists(parts, min_size=1, max_size=3).map(tuple)
    named = st.dictionaries(NAMES, parts, min_size=1, max_size=3)
    return st.builds(Tuple, spaces=lists) | named.map(
        lambda table: Dict(names=tuple(table), spaces=tuple(table.values()))
    )


ANY: st.SearchStrategy[Space] = st.recursive(LEAVES, composite, max_leaves=6)
"""Any space, nested ones too, with bounds where policies need them."""


def with_spaces(**changed: Any) -> spec.RunSpec:
    return spec.parse({**BASE, "environment": {**BASE["environment"], **changed}})


@settings(max_examples=50, deadline=None)
@given(observation=ANY, action=ANY)
def test_any_spaces_come_back_from_bytes_and_from_toml(observation: Space, action: Space) -> None:
    made = with_spaces(observation=plain(observation), action=plain(action))
    assert made.environment.observation == observation and made.environment.action == action
    assert spec.from_bytes(spec.to_bytes(made)) == made
    assert spec.parse(tomllib.loads(spec.to_toml(made))) == made
    assert spaces.fits(observation, observation)
    assert sum(part.size for part in spaces.leaves(observation)) == observation.size


def test_fields_that_came_later_are_written_only_where_they_differ() -> None:
    assert plain(Box(shape=(2,))) == {"kind": "box", "shape": [2], "low": [], "high": []}
    assert plain(Box(shape=(2,), dtype="uint8"))["dtype"] == "uint8"
    made = spec.to_plain(parse())
    assert "wrappers" not in made["environment"] and "choice" not in made["policy"]
    assert spec.to_plain(parse(policy={"choice": "sample"}))["policy"]["choice"] == "sample"


@pytest.mark.parametrize(
    ("space", "words"),
    [
        ({"kind": "boxx"}, ["spaces[1].kind is 'boxx'", "'multi-discrete'"]),
        ({"kind": "box", "shape": [0]}, ["spaces[1].shape[0] is 0", "at least 1"]),
        ({"kind": "box", "shap": [1]}, ["spaces[1].shap", "did you mean `shape`"]),
        ({"kind": "box", "shape": [1], "dtype": "int8"}, ["spaces[1].dtype is 'int8'", "'uint8'"]),
        ({"kind": "box", "shape": [1], "low": [math.nan]}, ["NaN"]),
        ({"kind": "tuple", "spaces": []}, ["spaces[1].spaces is []", "at least 1"]),
        ({"kind": "multi-binary", "shape": [1 << 20, 1 << 20]}, ["1.1e+12 numbers", "16,777,216"]),
        (
            {"kind": "multi-discrete", "choices": [2, 3], "shape": [3]},
            ["2 choices and 0 starts", "[3]"],
        ),
        (
            {"kind": "multi-discrete", "choices": [2, 3], "shape": [2], "start": [1]},
            ["2 choices and 1 starts"],
        ),
        (
            {"kind": "dict", "names": ["a", "a"], "spaces": [{"kind": "discrete", "n": 2}] * 2},
            ["2 spaces and 1 different names"],
        ),
        (
            {"kind": "dict", "names": ["a"], "spaces": [{"kind": "discrete", "n": 2}] * 2},
            ["2 spaces and 1 different names"],
        ),
        (
            {"kind": "dict", "names": ["a\n"], "spaces": [{"kind": "discrete", "n": 2}]},
            ["can't be printed"],
        ),
    ],
)
def test_a_wrong_space_is_one_line_that_says_what_is_wrong(space: Any, words: list[str]) -> None:
    around = {"kind": "tuple", "spaces": [{"kind": "discrete", "n": 2}, space]}
    with pytest.raises(spec.SpecError) as caught:
        with_spaces(observation=around)
    line = str(caught.value)
    assert "\n" not in line and len(line) < 400
    assert "environment.observation" in line
    assert all(word in line for word in words), line


def nested(deep: int) -> Any:
    space: Any = {"kind": "discrete", "n": 2}
    for _ in range(deep):
        space = {"kind": "tuple", "spaces": [space]}
    return space


def test_spaces_are_so_deep_and_so_many_at_most() -> None:
    assert with_spaces(observation=nested(spaces.DEEPEST)).environment.observation.size == 2
    with pytest.raises(spec.SpecError, match=r"environment\.observation has .* more than 6 deep"):
        with_spaces(observation=nested(spaces.DEEPEST + 1))
    plain_spec = spec.to_plain(parse())
    for deep in (300, 490):  # whatever the wire lets through
        plain_spec["environment"]["action"] = nested(deep)
        with pytest.raises(spec.SpecError):
            spec.from_bytes(pack(plain_spec))
    wide = {"kind": "tuple", "spaces": [{"kind": "discrete", "n": 1}] * 32}
    many = {"kind": "tuple", "spaces": [wide] * 32}
    assert with_spaces(observation=many).environment.observation.size == spaces.MOST_PARTS
    with pytest.raises(spec.SpecError, match="more than 1,024 parts"):
        with_spaces(observation={"kind": "tuple", "spaces": [many, wide]})


def test_real_numbers_within_other_actions_have_bounds_too() -> None:
    box = {"kind": "box", "shape": [2], "low": [0.0, 0.0], "high": [1.0, 1.0]}
    around = {"kind": "tuple", "spaces": [{"kind": "discrete", "n": 2}, box]}
    assert with_spaces(action=around).layers[-1] == (32, 4)
    for wrong in ({"low": []}, {"high": [1.0, math.inf]}, {"dtype": "uint8"}):
        around["spaces"] = [{**box, **wrong}]
        with pytest.raises(spec.SpecError, match=r"action"):
            with_spaces(action=around)


def test_only_choices_can_be_drawn() -> None:
    box = {"kind": "box", "shape": [1], "low": [0.0], "high": [1.0]}
    raw = {**BASE, "policy": {"choice": "sample"}}
    raw["environment"] = {**BASE["environment"], "action": box}
    with pytest.raises(spec.SpecError, match=r'policy\.choice is "sample".*use "argmax"'):
        spec.parse(raw)
    mixed = {"kind": "tuple", "spaces": [box, {"kind": "multi-binary", "shape": [1]}]}
    raw["environment"] = {**BASE["environment"], "action": mixed}
    assert spec.parse(raw).policy.choice == "sample"


def test_observations_fit_by_shape_and_a_spec_may_read_bytes_as_numbers() -> None:
    numbers, image = Box(shape=(2,)), Box(shape=(2,), dtype="uint8")
    bounded = Box(shape=(2,), low=(0.0, 0.0), high=(1.0, 1.0))
    for expected, found, fit in (
        (bounded, numbers, True),
        (numbers, image, True),
        (image, numbers, False),
        (numbers, Box(shape=(3,)), False),
        (numbers, Discrete(n=2), False),
    ):
        other = Discrete(n=3)
        assert spaces.fits(expected, found) == fit
        for one, two in (
            (Tuple(spaces=(other, expected)), Tuple(spaces=(other, found))),
            (
                Dict(names=("a", "b"), spaces=(other, expected)),
                Dict(names=("a", "b"), spaces=(other, found)),
            ),
        ):
            assert spaces.fits(one, two) == fit
    assert not spaces.fits(Tuple(spaces=(numbers,)), Tuple(spaces=(numbers, numbers)))
    assert not spaces.fits(
        Dict(names=("a",), spaces=(numbers,)), Dict(names=("b",), spaces=(numbers,))
    )


def test_a_space_is_no_bigger_than_it_says() -> None:
    space = msgspec.convert({"kind": "multi-discrete", "choices": [3, 4], "shape": [2]}, Space)
    assert space.size == 7
    assert MultiBinary(shape=(2, 3)).size == 6
    assert Tuple(spaces=(space, Discrete(n=2))).size == 9


def test_the_examples_in_the_document_are_valid() -> None:
    document = (Path(__file__).parents[2] / "docs" / "run-spec.md").read_text(encoding="utf-8")
    texts = re.findall(r"(?:^    .*\n)+", document, re.MULTILINE)
    robot, racing = (tomllib.loads(textwrap.dedent(text)) for text in texts[:2])
    made = with_spaces(**robot["environment"])
    assert (made.environment.observation.size, made.environment.action.size) == (66, 4)
    made = with_spaces(**racing["environment"])
    assert [wrapper.n for wrapper in made.environment.wrappers] == [4, 3]
