"""Accepted results that may still be lost, and what waits for them to be safe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from coordinator.pool.events import Arrived, SessionId
from protocol.messages import Outcome, ResultName

NEAR = 64
"""Units that share a place in the index: large results take few places, small ones few share
one."""

Name = tuple[SessionId, ResultName]


class Useless(NamedTuple):
    """A result that does not count, and what its worker is to be told."""

    arrived: Arrived
    outcome: Outcome
    reason: str


class Keeping:
    """The accepted results that are not durable yet.

    A worker drops its result once it hears that another one was first. Where that other one may
    still be lost, this one must outlive it: its answer waits until the other is kept.
    """

    def __init__(self) -> None:
        self._unplaced: dict[Name, Arrived] = {}
        """those that came since somebody last asked who was first"""
        self._placed: dict[Name, Arrived] = {}
        self._near: dict[tuple[int, int], dict[Name, Arrived]] = {}
        """what is placed, by the units that it is of"""
        self._waiting: dict[Name, dict[Name, Useless]] = {}
        """by the result that they wait for"""
        self._of: dict[SessionId, int] = {}

    def add(self, arrived: Arrived) -> int:
        """A result was accepted: how many of its session's are not durable."""
        id = arrived.session
        name = (id, arrived.task if arrived.part is None else arrived.name)
        count = self._of.get(id, 0)
        if name in self._unplaced or (self._placed and name in self._placed):
            return count
        self._unplaced[name] = arrived
        self._of[id] = count = count + 1
        return count

    def holds_back(self, useless: Useless) -> bool:
        """Whether the answer waits for a result of the same units, because that one is not safe.

        However often a result comes meanwhile, it is answered once.
        """
        self._place()
        arrived = useless.arrived
        for place in _places(arrived):
            for name, first in self._near.get(place, {}).items():
                if first.first < arrived.first + arrived.count and arrived.first < (
                    first.first + first.count
                ):
                    waiting = self._waiting.setdefault(name, {})
                    waiting[arrived.session, arrived.name] = useless
                    return True
        return False

    def kept(self, session: SessionId, result: ResultName) -> tuple[int, Sequence[Useless]]:
        """A result is safe: how many of its session's are not, and what waited for it."""
        name = (session, result)
        left = self._of.get(session, 0)
        if self._unplaced.pop(name, None) is None:
            arrived = self._placed.pop(name, None)
            if arrived is None:
                return left, ()
            self._displace(name, arrived)
        left -= 1
        if left:
            self._of[session] = left
        else:
            del self._of[session]
        waiting = self._waiting.pop(name, None) if self._waiting else None
        return left, tuple(waiting.values()) if waiting else ()

    def _place(self) -> None:
        """Most results are safe before another of the same units comes: they have no place."""
        for name, arrived in self._unplaced.items():
            for place in _places(arrived):
                self._near.setdefault(place, {})[name] = arrived
        self._placed.update(self._unplaced)
        self._unplaced.clear()

    def _displace(self, name: Name, arrived: Arrived) -> None:
        for place in _places(arrived):
            near = self._near[place]
            del near[name]
            if not near:
                del self._near[place]


def _places(arrived: Arrived) -> list[tuple[int, int]]:
    """Where a result is found by those that have a unit in common with it."""
    whole = -1 if arrived.kind == "members" else arrived.version
    first = arrived.first // NEAR
    last = (arrived.first + len(arrived.returns) - 1) // NEAR
    if first == last:
        return [(whole, first)]
    return [(whole, place) for place in range(first, last + 1)]
