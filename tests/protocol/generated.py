"""Values of any declared message, made from the declaration: valid ones, and ones just outside."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import msgspec
from hypothesis import strategies as st

from protocol.messages import MAX_TASK_DIRECTIONS, TYPES, Message

inspect = msgspec.inspect
_PLAIN = {
    inspect.IntType: int,
    inspect.NoneType: type(None),
    inspect.StructType: list,
    inspect.VarTupleType: list,
}
"""What lies on the wire for the types that occur in unions."""


def messages() -> st.SearchStrategy[Message]:
    """Any message, every field anywhere within its bounds."""
    return st.one_of([struct(kind) for kind in TYPES])


def struct(
    kind: type[msgspec.Struct], /, **given: st.SearchStrategy[Any]
) -> st.SearchStrategy[Any]:
    """Any value of a declared struct, its fields among those `given` where they are there."""
    made = {f.encode_name: values(f.type) for f in fields_of(kind) if f.encode_name not in given}
    return st.builds(kind, **made, **given)


def fields_of(kind: type[msgspec.Struct]) -> tuple[Any, ...]:
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    return info.fields


def values(kind: Any) -> st.SearchStrategy[Any]:
    """Any value of a field's type; floats are finite, as the wire wants them."""
    match kind:
        case inspect.BoolType():
            return st.booleans()
        case inspect.NoneType():
            return st.none()
        case inspect.UnionType():
            return st.one_of(list(map(values, kind.types)))
        case inspect.IntType():
            step = kind.multiple_of or 1
            low, high = _integer_bounds(kind)
            return st.integers(-(-low // step), high // step).map(lambda n: n * step)
        case inspect.FloatType():
            return st.floats(
                kind.ge if kind.ge is not None else kind.gt,
                kind.le if kind.le is not None else kind.lt,
                exclude_min=kind.gt is not None,
                exclude_max=kind.lt is not None,
                allow_nan=False,
                allow_infinity=False,
            )
        case inspect.StrType():
            return st.text(max_size=min(kind.max_length or 30, 30))
        case inspect.BytesType():
            least = kind.min_length or 0
            most = min(kind.max_length or least + 30, least + 30)
            if kind.max_length == 16 and least == 0:
                return st.sampled_from([b"", bytes(range(16))])  # a digest, or none
            return st.binary(min_size=least, max_size=most)
        case inspect.LiteralType():
            return st.sampled_from(sorted(kind.values))
        case inspect.VarTupleType() if kind.min_length == 2:  # a part's name
            return st.tuples(values(kind.item_type), st.integers(0, MAX_TASK_DIRECTIONS))
        case inspect.VarTupleType():
            most = min(kind.max_length or 3, 3)
            return st.lists(values(kind.item_type), max_size=most).map(tuple)
        case inspect.TupleType():
            return st.tuples(*map(values, kind.item_types))
        case inspect.DictType():
            return st.dictionaries(values(kind.key_type), values(kind.value_type), max_size=3)
        case inspect.StructType():
            return struct(kind.cls)
    raise AssertionError(f"no values for {kind}")


def _integer_bounds(kind: Any) -> tuple[int, int]:
    low = kind.ge if kind.ge is not None else kind.gt + 1
    high = kind.le if kind.le is not None else kind.lt - 1
    return low, high


def outside(kind: Any) -> Iterator[Any]:
    """Plain values that a field must refuse: just outside each bound, and of other types."""
    match kind:
        case inspect.BoolType():
            yield from (0, 1, "true", None)
        case inspect.IntType():
            low, high = _integer_bounds(kind)
            yield from (low - 1, high + 1, 0.5, "1", None, True, [1])
        case inspect.FloatType():
            yield from ("1.0", None, [], math.nan, math.inf, -math.inf)
            if kind.ge is not None:
                yield math.nextafter(kind.ge, -math.inf)
            if kind.le is not None:
                yield math.nextafter(kind.le, math.inf)
        case inspect.StrType():
            yield from (1, None, b"bytes", ["text"], "x" * (kind.max_length + 1))
        case inspect.BytesType():
            yield from (1, None, "text", bytes(kind.max_length + 1))
            if kind.min_length:
                yield bytes(kind.min_length - 1)
        case inspect.LiteralType():
            yield from ("something else", "", 1, None, [])
        case inspect.UnionType():
            for member in kind.types:
                others = tuple(_PLAIN[type(other)] for other in kind.types if other is not member)
                yield from (bad for bad in outside(member) if not isinstance(bad, others))
        case inspect.NoneType():
            yield from (0, False, "", [])
        case inspect.VarTupleType():
            item, least = plain(kind.item_type), kind.min_length or 0
            yield from ("text", None, 7, {"a": item}, [item] * (kind.max_length + 1))
            if least:
                yield [item] * (least - 1)
                yield [*[item] * (least - 1), MAX_TASK_DIRECTIONS + 1]
            rest = [item] * max(0, least - 1)
            yield from ([bad, *rest] for bad in outside(kind.item_type))
        case inspect.TupleType():
            items = [plain(item) for item in kind.item_types]
            yield from (items[:-1], [*items, 1], None)
            for place, item in enumerate(kind.item_types):
                yield from ([*items[:place], bad, *items[place + 1 :]] for bad in outside(item))
        case inspect.DictType():
            key, value = plain(kind.key_type), plain(kind.value_type)
            yield from (None, [key, value], {key: "text"}, {1: value})
            yield {f"{key}{number}": value for number in range(kind.max_length + 1)}
        case inspect.StructType():
            whole = plain(kind)
            yield from (None, 1, {"first": 1})
            yield whole[:-1]
            for place, field in enumerate(kind.fields):
                yield from (
                    [*whole[:place], bad, *whole[place + 1 :]] for bad in outside(field.type)
                )
        case _:
            raise AssertionError(f"nothing is known to be outside of {kind}")


def plain(kind: Any) -> Any:
    """One valid plain value, as it lies on the wire."""
    match kind:
        case inspect.BoolType():
            return False
        case inspect.IntType():
            return _integer_bounds(kind)[0]
        case inspect.FloatType():
            return 1.0
        case inspect.StrType():
            return "text"
        case inspect.BytesType():
            return bytes(kind.min_length or 0)
        case inspect.LiteralType():
            return sorted(kind.values)[0]
        case inspect.VarTupleType():
            return [plain(kind.item_type)] * (kind.min_length or 0)
        case inspect.UnionType():
            return plain(kind.types[0])
        case inspect.TupleType():
            return [plain(item) for item in kind.item_types]
        case inspect.DictType():
            return {}
        case inspect.StructType():
            return [plain(field.type) for field in kind.fields]
    raise AssertionError(f"no value for {kind}")
