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
    """At most two hellos and one goodbye of each session, in the order in which sessions came.

    A session that says hello again keeps its turn, and its older words count for nothing: who waits
    long, and asks again and again, costs no more than who asked once. Whether it was the session
    that said it is not known before its turn, so the first hello that waits is kept for the case
    that the last one is false: nobody loses its turn to who speaks in its name.
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
        kept = 1 if words and words[0].kind == "req" else 0
        replaced = [old for old in list(words)[kept:] if word.kind in ("req", old.kind)]
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
        """The next word, a session's last hello first. Raises `StopIteration` where none waits."""
        id = next(iter(self._waiting))
        words = self._waiting[id]
        hellos = [word for word in words if word.kind == "req"]
        word = hellos[-1] if hellos else words[0]
        self._remove(id, word)
        return id, word

    def greeted(self, id: SessionId) -> None:
        """The hello that was taken is genuine: one that came before it counts for nothing."""
        for word in [word for word in self._waiting.get(id, ()) if word.kind == "req"]:
            self._remove(id, word)

    def _remove(self, id: SessionId, word: Word) -> None:
        words = self._waiting[id]
        words.remove(word)
        self._bytes -= len(word.payload)
        if not words:
            del self._waiting[id]
