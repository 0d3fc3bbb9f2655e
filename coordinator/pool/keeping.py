"""Accepted results that may still be lost, and what waits for them to be safe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from coordinator.pool.events import Arrived, SessionId
from protocol.messages import Outcome, ResultName


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
        self._results: dict[tuple[SessionId, ResultName], tuple[Arrived, list[Useless]]] = {}

    def add(self, arrived: Arrived) -> None:
        """A result was accepted."""
        self._results.setdefault((arrived.session, arrived.name), (arrived, []))

    def holds_back(self, useless: Useless) -> bool:
        """Whether the answer waits for a result of the same units, because that one is not safe."""
        for first, waiting in self._results.values():
            if _overlap(first, useless.arrived):
                waiting.append(useless)
                return True
        return False

    def kept(self, session: SessionId, name: ResultName) -> Sequence[Useless]:
        """A result is safe: what waited for it."""
        found = self._results.pop((session, name), None)
        return found[1] if found is not None else ()


def _overlap(one: Arrived, other: Arrived) -> bool:
    """Whether two results have a unit in common."""
    if one.kind != other.kind or (one.kind == "centre" and one.version != other.version):
        return False
    return one.first < other.first + other.count and other.first < one.first + one.count
