"""Valid messages of every type, made from their declarations."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec

from protocol.messages import MAX_TASK_DIRECTIONS, TYPES, Message, decode, encode

inspect = msgspec.inspect


def every_message() -> tuple[bytes, ...]:
    """Three of each type: with the least that it may have, and twice with more."""
    made = [encode(_message(kind, Random(number))) for kind in TYPES for number in range(3)]
    for payload in made:
        decode(payload)
    return tuple(made)


def _message(kind: type[Message], random: Random) -> Message:
    made: Message = _struct(kind, random)
    return made


def _struct(kind: type[msgspec.Struct], random: Random) -> Any:
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    return kind(*(_value(field.type, random) for field in info.fields))


def _value(kind: Any, random: Random) -> Any:
    """A value within the bounds of a field."""
    match kind:
        case inspect.NoneType():
            return None
        case inspect.BoolType():
            return random.random() < 0.5
        case inspect.IntType():
            low = kind.ge if kind.ge is not None else kind.gt + 1
            high = kind.le if kind.le is not None else kind.lt - 1
            return random.choice((low, min(high, low + 3), high))
        case inspect.FloatType():
            return random.choice((0.0, 0.25, 3.0))
        case inspect.StrType():
            return random.choice(("", "text"))
        case inspect.BytesType():
            least = kind.min_length or 0
            return random.randbytes(least or min(16, kind.max_length))
        case inspect.LiteralType():
            return random.choice(sorted(kind.values))
        case inspect.UnionType():
            return _value(random.choice(kind.types), random)
        case inspect.VarTupleType() if kind.min_length == 2:  # a part's name
            return (_value(kind.item_type, random), random.randrange(MAX_TASK_DIRECTIONS))
        case inspect.VarTupleType():
            return tuple(_value(kind.item_type, random) for _ in range(random.randrange(3)))
        case inspect.TupleType():
            return tuple(_value(item, random) for item in kind.item_types)
        case inspect.DictType():
            return {_value(kind.key_type, random): _value(kind.value_type, random)}
        case inspect.StructType():
            return _struct(kind.cls, random)
    raise AssertionError(f"no value for {kind}")
