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
    confirmed: bool = False
    """somebody else got the same"""
    forgotten: bool = False
    """its worker was sentenced since"""


class Holding:
    """What is held back, found by the directions that it is of."""

    def __init__(self) -> None:
        self._held: dict[int, dict[int, list[HeldBack]]] = {}
        """by batch, then by place in it"""

    def __bool__(self) -> bool:
        return bool(self._held)

    def __contains__(self, index: int) -> bool:
        """Whether anything of a batch is held back."""
        return index in self._held

    def hold(self, index: int, answer: Answer) -> None:
        """Hold an answer of a batch back."""
        held = HeldBack(answer)
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
