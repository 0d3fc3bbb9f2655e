"""What the declarations of messages and settings say, in words for the documents."""

from __future__ import annotations

from typing import Any

import msgspec

from protocol.messages import TYPES, Cohort, Held, Judged, Message, Observed, Part


def field_table() -> list[tuple[int | None, str, str, list[tuple[str, str]]]]:
    """(number, name, meaning, fields) of every message, for `docs/protocol.md`.

    What only occurs inside of a message follows, without a number.
    """
    rows = []
    kinds: tuple[type[Message], ...] = (*TYPES, Part, Cohort, Observed, Judged, Held)
    for kind in kinds:
        info = msgspec.inspect.type_info(kind)
        assert isinstance(info, msgspec.inspect.StructType)
        fields = [(field.name, describe(field.type)) for field in info.fields]
        meaning = (kind.__doc__ or "").strip().splitlines()[0]
        number: Any = info.tag  # always an integer here
        rows.append((number, kind.__name__, meaning, fields))
    return rows


def describe(kind: Any) -> str:
    """A field's type and bounds in a few words."""
    inspect = msgspec.inspect
    if isinstance(kind, inspect.Metadata):
        return describe(kind.type)
    if isinstance(kind, inspect.UnionType):
        parts = [describe(part) for part in kind.types if not isinstance(part, inspect.NoneType)]
        return " or ".join(parts)
    if isinstance(kind, inspect.LiteralType):
        return " or ".join(f"`{value}`" for value in kind.values)
    if isinstance(kind, inspect.VarTupleType) and kind.min_length == kind.max_length:
        return f"{kind.max_length} of ({describe(kind.item_type)})"
    if isinstance(kind, inspect.VarTupleType):
        return f"up to {kind.max_length:,} of ({describe(kind.item_type)})"
    if isinstance(kind, inspect.TupleType):
        return ", ".join(describe(item) for item in kind.item_types)
    if isinstance(kind, inspect.StructType):
        return kind.cls.__name__
    if isinstance(kind, inspect.DictType):
        pair = f"{describe(kind.key_type)} to {describe(kind.value_type)}"
        return f"map of up to {kind.max_length} of ({pair})"
    name = type(kind).__name__.removesuffix("Type").lower()
    bounds = [
        f"{word} {getattr(kind, field):,}"
        for field, word in (("ge", "from"), ("gt", "over"), ("le", "to"), ("lt", "below"))
        if getattr(kind, field, None) is not None
    ]
    least, most = getattr(kind, "min_length", None), getattr(kind, "max_length", None)
    if most is not None:
        bounds.append(f"{most:,} long" if least == most else f"up to {most:,} long")
    return " ".join([name, *bounds])
