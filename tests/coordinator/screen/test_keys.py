"""What keys do, and that nothing else does anything."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.screen.keys import Mode, keys_in, press

ASKING, HELPING = Mode(asks=True), Mode(helps=True)


@pytest.mark.parametrize(
    ("mode", "key", "paused", "then", "order"),
    [
        (Mode(), "p", False, Mode(), "pause"),
        (Mode(), "p", True, Mode(), "resume"),
        (Mode(), "+", False, Mode(), "more"),
        (Mode(), "-", False, Mode(), "fewer"),
        (Mode(), "?", False, HELPING, ""),
        (HELPING, "?", False, Mode(), ""),
        (HELPING, "x", False, Mode(), ""),
        (HELPING, "p", False, HELPING, "pause"),
        (Mode(), "q", False, ASKING, ""),
        (ASKING, "q", False, Mode(), "stop"),
        (ASKING, "p", False, Mode(), "leave"),
        (ASKING, "n", False, Mode(), ""),
        (ASKING, "esc", False, Mode(), ""),
    ],
)
def test_keys(mode: Mode, key: str, paused: bool, then: Mode, order: str) -> None:
    assert press(mode, key, leads=True, paused=paused) == (then, order)


@given(st.text(min_size=1, max_size=1))
def test_no_single_key_ends_a_run_that_is_led(key: str) -> None:
    assert press(Mode(), key, leads=True, paused=False)[1] not in ("stop", "leave")


def test_who_follows_can_only_quit() -> None:
    assert press(Mode(), "q", leads=False, paused=False) == (Mode(), "stop")
    for key in "p+-":
        assert press(Mode(), key, leads=False, paused=False) == (Mode(), "")


@pytest.mark.parametrize(
    ("sent", "keys"),
    [
        (b"q", ["q"]),
        (b"pq", ["p", "q"]),
        (b"\x1b", ["esc"]),
        (b"\x1b[A\x1b[1;5C\x1bOPq", ["q"]),
        (b"\x1b[200~q\x1b[201~", ["q"]),
        (b"\xff\x00\x7fq", ["\ufffd", "q"]),
        ("é".encode(), ["é"]),
    ],
)
def test_what_a_terminal_sends(sent: bytes, keys: list[str]) -> None:
    assert keys_in(sent) == keys


@given(st.binary(max_size=100))
def test_any_bytes_are_keys_or_nothing(sent: bytes) -> None:
    assert all(isinstance(key, str) and key for key in keys_in(sent))
