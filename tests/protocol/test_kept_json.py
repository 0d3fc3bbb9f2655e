"""JSON on disk is read as it was written, and anything else is refused in one line."""

from __future__ import annotations

import pytest

from protocol.kept_json import LONGEST_MISTAKE, DamagedJson, read_json


def test_what_was_written_is_read() -> None:
    assert read_json('{"a": [1, 2]}', dict[str, list[int]]) == {"a": [1, 2]}
    assert read_json(b'["x", "y"]', tuple[str, str]) == ("x", "y")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[1, 2",
        '{"a": ["1"]}',
        "[" * 100_000,
        '{"a": ' * 2_000,
        b'{"\xff": []}',
        '{"a": [' + "9" * 5_000 + "]}",
        '{"a": ["' + "x\\n" * 5_000 + '"]}',
        "NaN",
    ],
    ids=lambda text: text[:12],
)
def test_anything_else_is_refused(text: str | bytes) -> None:
    with pytest.raises(DamagedJson) as refused:
        read_json(text, dict[str, list[int]])
    assert 0 < len(str(refused.value)) <= LONGEST_MISTAKE
    assert str(refused.value).isprintable()
