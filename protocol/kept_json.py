"""JSON that lies on disk: of the form that it should have, or refused, whatever happened to it."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from protocol.figures import printable

T = TypeVar("T")
LONGEST_MISTAKE = 200
"""Characters of what is wrong, which may repeat what lies there."""


class DamagedJson(ValueError):  # noqa: N818
    """Not JSON, or of another form than it should have; in a line that is short."""


def read_json(data: bytes | str, form: type[T]) -> T:
    """The value of a text in JSON, every part of it of its declared type.

    Raises `DamagedJson`, and nothing else.
    """
    try:
        return msgspec.json.decode(data, type=form)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        said = str(error)[:LONGEST_MISTAKE]
        raise DamagedJson(printable(said)) from None
