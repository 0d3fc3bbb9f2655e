"""Signed updates that came before their turn, within bounds. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

Kept = TypeVar("Kept")

MOST = 512
"""Updates that may wait; beyond it the newest are let go, as beyond the bound in bytes."""


@dataclass(frozen=True, slots=True)
class _Place(Generic[Kept]):
    kept: Kept
    precedence: tuple[int, int]
    size: int


class Waiting(Generic[Kept]):
    """At most one update for each version: of two the one whose epoch is later."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._places: dict[int, _Place[Kept]] = {}

    def __contains__(self, version: int) -> bool:
        return version in self._places

    def keep(self, version: int, kept: Kept, precedence: tuple[int, int], size: int) -> None:
        """Let `kept`, of `size` bytes, wait; `precedence` is that of its epoch."""
        known = self._places.get(version)
        if known is not None and known.precedence >= precedence:
            return
        self.pop(version)
        self._places[version] = _Place(kept, precedence, size)
        self._bytes += size
        while len(self._places) > MOST or self._bytes > self._most_bytes:
            self.pop(max(self._places))

    def get(self, version: int) -> Kept | None:
        """What waits at a version; it stays."""
        place = self._places.get(version)
        return None if place is None else place.kept

    def pop(self, version: int) -> Kept | None:
        """What waited at a version, and waits no more."""
        place = self._places.pop(version, None)
        if place is None:
            return None
        self._bytes -= place.size
        return place.kept

    def pass_by(self, version: int) -> None:
        """Nothing before this version is of use any more."""
        for old in [waiting for waiting in self._places if waiting < version]:
            self.pop(old)

    def clear(self) -> None:
        """Let go of all."""
        self._places.clear()
        self._bytes = 0
