"""Lines for people: bounded, harmless, and told once."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from coordinator.console import Console
from coordinator.lines import LINES_AT_ONCE, LINES_PER_SECOND, LONGEST_LINE, Lines


class Reader:
    """Somebody who reads, and a clock in the test's hand."""

    def __init__(self) -> None:
        self.read: list[str] = []
        self.now = 100.0
        self.lines = Lines(self.read.append, lambda: self.now)


def test_lines_beyond_what_people_read_are_counted() -> None:
    reader = Reader()
    for number in range(int(LINES_AT_ONCE) + 7):
        reader.lines.say(f"line {number}")
    assert len(reader.read) == LINES_AT_ONCE
    reader.now += 1.5 / LINES_PER_SECOND
    reader.lines.say("after a while")
    assert reader.read[-2:] == ["7 lines are left out", "after a while"]


def test_what_sessions_do_hides_nothing_that_happens_to_the_run() -> None:
    reader = Reader()
    for number in range(10 * int(LINES_AT_ONCE)):
        reader.lines.say_of_session(f"stranger {number}: joined")
    reader.lines.say("worker is banned")
    assert len(reader.read) == LINES_AT_ONCE + 1
    assert reader.read[-1] == "worker is banned"


def test_words_of_strangers_cannot_control_a_terminal() -> None:
    reader = Reader()
    reader.lines.say("\x1b[2J\nroot:\u202e" + "x" * 400)
    assert reader.read == ["?[2J?root:?" + "x" * (LONGEST_LINE - 11)]


def test_why_nothing_happens_is_told_once_and_only_where_it_lasts() -> None:
    reader = Reader()
    for quiet in (
        "the update is being made",
        "",
        "nobody is here",
        "nobody is here",
        "nobody is here",
    ):
        reader.lines.look(quiet)
    assert reader.read == ["waiting: nobody is here"]
    for quiet in ("", "nobody is here", "nobody is here"):
        reader.lines.look(quiet)
    assert reader.read == ["waiting: nobody is here"] * 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a disk that is full, of Linux")
def test_a_host_goes_on_where_its_lines_can_not_be_written() -> None:
    full = Path("/dev/full").open("w")  # noqa: SIM115 - closing it raises, too
    console = Console(full)
    for number in range(20):
        console.event(f"line {number}" * 100)
    with contextlib.suppress(OSError):
        full.close()
