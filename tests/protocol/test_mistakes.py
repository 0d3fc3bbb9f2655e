from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
import pytest

from protocol.mistakes import explain


class Round(msgspec.Struct, forbid_unknown_fields=True, tag="round", tag_field="form"):
    radius: Annotated[float, msgspec.Meta(gt=0.0, lt=10.0)]


class Square(msgspec.Struct, forbid_unknown_fields=True, tag="square", tag_field="form"):
    side: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
    colour: Literal["red", "blue"] = "red"


class Plan(msgspec.Struct, forbid_unknown_fields=True):
    name: Annotated[str, msgspec.Meta(pattern=r"^[a-z]+\Z", description="lower-case letters")]
    table: Round | Square
    legs: Annotated[tuple[Annotated[int, msgspec.Meta(ge=1)], ...], msgspec.Meta(max_length=2)] = ()
    label: Annotated[str, msgspec.Meta(min_length=1, max_length=3)] = "abc"
    pairs: Annotated[int, msgspec.Meta(multiple_of=2)] = 2
    height: float | None = None
    extra: dict[str, int | str] = {}
    oiled: bool = False


GOOD: dict[str, Any] = {"name": "oak", "table": {"form": "square", "side": 3}}


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"name": "Oak"}, "name is 'Oak': must be lower-case letters"),
        ({"name": 3}, "name is 3: must be text"),
        ({"nmae": "oak"}, "unknown field `nmae`: did you mean `name`?"),
        ({"zzz": 1}, "unknown field `zzz`: known here: extra, height, label, legs, name, oiled, "
         "pairs, table"),
        ({"table": None}, "table is None: must be a table"),
        ({"table": {"form": "oval"}}, "table.form is 'oval': must be one of 'round', 'square'"),
        ({"table": {"side": 3}}, "`table.form` is missing: add it"),
        ({"table": {"form": "round"}}, "`table.radius` is missing: add it"),
        ({"table": {"form": "round", "side": 3}}, "unknown field `table.side`: known here: radius"),
        ({"table": {"form": "round", "radius": 0}}, "table.radius is 0: must be more than 0"),
        ({"table": {"form": "round", "radius": 12}}, "table.radius is 12: must be less than 10"),
        ({"table": {"form": "square", "side": 0}}, "table.side is 0: must be at least 1"),
        ({"table": {"form": "square", "side": 2_000_000}},
         "table.side is 2000000: must be at most 1,000,000"),
        ({"table": {"form": "square", "side": 1, "colour": "pink"}},
         "table.colour is 'pink': must be one of 'red', 'blue'"),
        ({"legs": [1, 0]}, "legs[1] is 0: must be at least 1"),
        ({"legs": [1, True]}, "legs[1] is true: must be a whole number"),
        ({"legs": [1, 2, 3]}, "legs is [1, 2, 3]: must be at most 2 entries long"),
        ({"legs": 3}, "legs is 3: must be a list"),
        ({"label": ""}, "label is '': must be at least 1 characters long"),
        ({"label": "abcd"}, "label is 'abcd': must be at most 3 characters long"),
        ({"pairs": 3}, "pairs is 3: must be a multiple of 2"),
        ({"height": "tall"}, "height is 'tall': must be a number"),
        ({"extra": {"a": 1.5}}, "extra is {'a': 1.5}: must be one of a whole number, text"),
        ({"extra": {1: 2}}, "a name in extra is {1: 2}: must be text"),
        ({"oiled": 1}, "oiled is 1: must be true or false"),
        ({"label": "x" * 500}, f"label is '{'x' * 56}...: must be at most 3 characters long"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_value_and_its_rule(changes: dict[str, Any], line: str) -> None:
    raw = {**GOOD, **changes}
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(raw, Plan)
    assert explain(str(caught.value), raw, Plan) == line


def test_words_that_nobody_foresaw_are_still_shown() -> None:
    line = explain("Something odd - at `$.name`", GOOD, Plan)
    assert line == "name is 'oak': must be Something odd"


@pytest.mark.parametrize("name", ["\nname", "na\nme\n", "\x1b[2Jname", "a - at `$\n`"])
def test_a_name_of_a_strangers_field_stays_one_printable_line(name: str) -> None:
    raw = {"table": {"form": "round", "radius": 1.0}, "name": "desk", name: 1}
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(raw, Plan)
    line = explain(str(caught.value), raw, Plan)
    assert line.isprintable()
    assert "unknown field" in line
