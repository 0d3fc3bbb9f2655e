"""What all sections of a run spec have in common, and the plain values that they are written as."""

from __future__ import annotations

import functools
from typing import Any, ClassVar

import msgspec


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all sections: immutable, keyword only, a misspelt field is an error."""

    later: ClassVar[tuple[str, ...]] = ()
    """Fields that came after the first runs: where they have their default they are not written, so
    that the bytes, and with them the digest, of an earlier spec stay what they were."""


@functools.cache
def fields(section: type[Section]) -> tuple[msgspec.structs.FieldInfo, ...]:
    """Its fields, for whose types msgspec takes milliseconds."""
    return msgspec.structs.fields(section)


def plain(value: Any) -> Any:
    """Nested tables, lists and scalars: fields in their declared order, other keys sorted.

    What equals each other becomes the same: -0.0 is written as 0.0.
    """
    if isinstance(value, Section):
        config = value.__struct_config__
        table = {} if config.tag_field is None else {config.tag_field: config.tag}
        for field in fields(type(value)):
            item = getattr(value, field.name)
            if field.name not in value.later or item != _default(field):
                table[field.name] = plain(item)
        return table
    if isinstance(value, dict):
        return {key: plain(value[key]) for key in sorted(value)}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    return value + 0.0 if isinstance(value, float) else value


def _default(field: msgspec.structs.FieldInfo) -> Any:
    made = field.default_factory
    return field.default if made is msgspec.NODEFAULT else made()
