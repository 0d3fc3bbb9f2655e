"""Results of workers that are not believed, which count for nothing but to compare with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from coordinator.trust import Answer

NEAR = 64
"""Directions that share a place in the index."""


@dataclass(eq=False, slots=True)
class HeldBack:
    """A result of a newcomer, which counts for nothing but to compare with."""

    answer: Answer
    task: int
    """what it is a result of, or of a part"""
    forgotten: bool = False
    """its worker was sentenced since"""


class Holding:
    """What is held back, found by the directions that it is of."""

    def __init__(self) -> None:
        self._held: dict[int, dict[int, list[HeldBack]]] = {}
        """by batch, then by place in it"""
        self._confirmed: dict[int, dict[int, set[str]]] = {}
        """by batch, then by task: who got the same"""

    def __bool__(self) -> bool:
        return bool(self._held)

    def __contains__(self, index: int) -> bool:
        """Whether anything of a batch is held back."""
        return index in self._held

    def hold(self, index: int, answer: Answer, task: int) -> None:
        """Hold an answer of a batch back, which is of that task."""
        held = HeldBack(answer, task)
        places = self._held.setdefault(index, {})
        for place in range(answer.first // NEAR, (answer.end - 1) // NEAR + 1):
            places.setdefault(place, []).append(held)

    def near(self, index: int, first: int, end: int) -> Iterator[HeldBack]:
        """What is held back of units `[first, end)`, each once."""
        places = self._held.get(index)
        if not places:
            return
        seen: set[int] = set()
        for place in range(first // NEAR, (end - 1) // NEAR + 1):
            for held in places.get(place, ()):
                answer = held.answer
                if answer.first < end and first < answer.end and id(held) not in seen:
                    seen.add(id(held))
                    yield held

    def confirmed_by(self, index: int, task: int) -> set[str]:
        """Who got the same in a task of a batch, or in a part of it; the caller adds to it."""
        return self._confirmed.setdefault(index, {}).setdefault(task, set())

    def forget(self, worker: str) -> None:
        """Compare with nothing more that a worker returned."""
        for places in self._held.values():
            for near in places.values():
                for held in near:
                    held.forgotten |= held.answer.worker == worker
                near[:] = [held for held in near if not held.forgotten]

    def drop_before(self, index: int) -> None:
        """Batches before that one take no results any more."""
        for old in [old for old in self._held if old < index]:
            del self._held[old]
            self._confirmed.pop(old, None)
