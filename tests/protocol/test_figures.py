"""How numbers, spans and strangers' words are shown to people."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.figures import printable, span


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-3.0, "0 s"),
        (0.2, "0 s"),
        (59.4, "59 s"),
        (59.7, "1 min"),
        (125.0, "2 min 5 s"),
        (599.0, "9 min 59 s"),
        (599.7, "10 min"),
        (754.0, "12 min"),
        (3_600.0, "1 h"),
        (7_500.0, "2 h 5 min"),
        (86_400.0, "1 d"),
        (273_600.0, "3 d 4 h"),
    ],
)
def test_a_span_has_the_two_units_that_suit(seconds: float, words: str) -> None:
    assert span(seconds) == words


@given(st.text())
def test_words_of_strangers_are_one_printable_line_of_the_same_length(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert len(shown) == len(text)
    assert all(ours in (theirs, "?") for ours, theirs in zip(shown, text, strict=True))
