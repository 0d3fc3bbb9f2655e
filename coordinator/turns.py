"""Hellos and goodbyes that wait for their turn: each costs signatures, and thousands may come at
once. Pure."""

from __future__ import annotations

from collections import deque
from typing import Literal, NamedTuple

from coordinator.pool.events import SessionId

MOST_WAITING = 10_000
"""Sessions whose words may wait; of any beyond that nothing is kept, and they say it again."""
MOST_BYTES = 16 << 20
"""Likewise for all words together."""

Kind = Literal["req", "status"]
"""The topic that a signed word came on: a hello, or a goodbye."""


class Word(NamedTuple):
    """What a session says under its signature."""

    kind: Kind
    payload: bytes


class Turns:
    """At most one hello and one goodbye of each session, in the order in which sessions came.

    A session that says hello again keeps its turn, and its older words count for nothing: who waits
    long, and asks again and again, costs no more than who asked once.
    """

    def __init__(self) -> None:
        self._waiting: dict[SessionId, deque[Word]] = {}
        self._bytes = 0

    def __len__(self) -> int:
        """Sessions that wait."""
        return len(self._waiting)

    def put(self, id: SessionId, word: Word) -> None:
        """Let a word wait, unless too much waits already."""
        words = self._waiting.get(id, deque())
        replaced = [old for old in words if word.kind in ("req", old.kind)]
        freed = sum(len(old.payload) for old in replaced)
        if not words and len(self._waiting) >= MOST_WAITING:
            return
        if self._bytes - freed + len(word.payload) > MOST_BYTES:
            return
        for old in replaced:
            words.remove(old)
        words.append(word)
        self._waiting[id] = words
        self._bytes += len(word.payload) - freed

    def take(self) -> tuple[SessionId, Word]:
        """The next word. Raises `StopIteration` where none waits."""
        id = next(iter(self._waiting))
        words = self._waiting[id]
        word = words.popleft()
        self._bytes -= len(word.payload)
        if not words:
            del self._waiting[id]
        return id, word
