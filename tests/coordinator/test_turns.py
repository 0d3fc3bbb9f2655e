"""Who waits for a welcome, in which order, and how much of it is kept."""

from __future__ import annotations

import pytest

from coordinator import turns
from coordinator.pool.events import SessionId
from coordinator.turns import Turns, Word

IDS = [SessionId(f"worker{number}", "s") for number in range(100)]


def all_of(waiting: Turns) -> list[tuple[SessionId, Word]]:
    taken = []
    while waiting:
        taken.append(waiting.take())
        waiting.greeted(taken[-1][0])
    return taken


def test_sessions_are_answered_in_the_order_in_which_they_came() -> None:
    waiting = Turns()
    for id in IDS:
        waiting.put(id, Word("req", b"hello"))
    assert len(waiting) == len(IDS)
    assert all_of(waiting) == [(id, Word("req", b"hello")) for id in IDS]


def test_who_asks_again_keeps_its_turn_and_only_the_newest_hello_counts() -> None:
    waiting = Turns()
    for number in range(3):
        for id in IDS[:3]:
            waiting.put(id, Word("req", b"%d" % number))
    assert all_of(waiting) == [(id, Word("req", b"2")) for id in IDS[:3]]


def test_a_false_hello_displaces_none_that_waits_and_is_heard_before_it() -> None:
    waiting = Turns()
    waiting.put(IDS[0], Word("req", b"genuine"))
    for _ in range(3):
        waiting.put(IDS[0], Word("req", b"false"))
    waiting.put(IDS[0], Word("status", b"bye"))
    waiting.put(IDS[1], Word("req", b"another's"))
    taken = [waiting.take()[1].payload for _ in range(4)]
    assert taken == [b"false", b"genuine", b"bye", b"another's"]
    assert not waiting


def test_a_goodbye_comes_after_the_hello_before_it_and_counts_for_nothing_once_another_came() -> (
    None
):
    waiting = Turns()
    hello, bye = Word("req", b"hello"), Word("status", b"bye")
    for word in (hello, bye, bye):
        waiting.put(IDS[0], word)
    assert all_of(waiting) == [(IDS[0], hello), (IDS[0], bye)]
    for word in (bye, hello):
        waiting.put(IDS[0], word)
    assert all_of(waiting) == [(IDS[0], hello)]


def test_nothing_is_kept_beyond_the_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "MOST_WAITING", 10)
    monkeypatch.setattr(turns, "MOST_BYTES", 100)
    waiting = Turns()
    for id in IDS:
        waiting.put(id, Word("req", b"12345"))
    assert [id for id, _ in all_of(waiting)] == IDS[:10]
    for id in IDS[:10]:
        waiting.put(id, Word("req", bytes(20)))
    assert [id for id, _ in all_of(waiting)] == IDS[:5]


def test_who_says_it_again_and_again_needs_no_more_room_than_for_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turns, "MOST_WAITING", 1)
    monkeypatch.setattr(turns, "MOST_BYTES", 20)
    waiting = Turns()
    for number in range(100):
        waiting.put(IDS[0], Word("req", b"%08d" % number))
    assert all_of(waiting) == [(IDS[0], Word("req", b"00000099"))]
    waiting.put(IDS[1], Word("req", bytes(10)))
    assert len(waiting) == 1
