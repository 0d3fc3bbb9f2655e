"""Results that the coordinator has not answered for yet: kept, and sent again. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random

from protocol.messages import Result, ResultName

RESEND_AFTER = 10.0
"""Seconds without an answer after which a result is sent again."""
MOST_BYTES = 64 << 20
"""Beyond this the oldest results are let go: their leases ran out long ago."""
OVERHEAD = 200
"""Bytes of a result, and of each failure that it tells, besides their contents."""


@dataclass(slots=True)
class _Entry:
    result: Result
    size: int
    due: float
    sent: int = 0


class Outbox:
    """Keeps results until the coordinator answers for them: a broker's PUBACK means nothing.

    Attributes:
        let_go: results that found no room any more, and that nobody answered for.
    """

    def __init__(self, random: Random) -> None:
        self._random = random
        self._entries: dict[ResultName, _Entry] = {}
        self._bytes = 0
        self.let_go = 0

    @property
    def results(self) -> list[Result]:
        """All of them."""
        return [entry.result for entry in self._entries.values()]

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, result: Result, now: float) -> None:
        """Keep a result, due at once."""
        self.acknowledge((result.name,))
        size = OVERHEAD + len(result.returns) + len(result.lengths) + len(result.observed)
        size += sum(OVERHEAD + len(reason) for _, reason in result.failed)
        self._entries[result.name] = _Entry(result, size, now)
        self._bytes += size
        while self._bytes > MOST_BYTES and len(self._entries) > 1:
            self.let_go += self.acknowledge((next(iter(self._entries)),))

    def acknowledge(self, results: Iterable[ResultName]) -> int:
        """The coordinator answers for these; how many of them were here."""
        found = 0
        for name in results:
            entry = self._entries.pop(name, None)
            if entry is not None:
                self._bytes -= entry.size
                found += 1
        return found

    def named(self, results: Iterable[ResultName]) -> list[Result]:
        """Those of these that are here."""
        return [self._entries[name].result for name in results if name in self._entries]

    @property
    def unsent(self) -> list[Result]:
        """What was not sent since it was made, or since a session began anew."""
        return [entry.result for entry in self._entries.values() if not entry.sent]

    def due(self, now: float) -> list[Result]:
        """What is to be sent now."""
        return [entry.result for entry in self._entries.values() if now >= entry.due]

    def sent(self, name: ResultName, now: float) -> None:
        """It was handed to the broker: it is due again unless an answer comes."""
        entry = self._entries.get(name)
        if entry is not None:
            entry.sent += 1
            entry.due = now + RESEND_AFTER * (1.0 + 0.25 * self._random.random())

    def make_due(self, now: float) -> None:
        """Send everything again: the coordinator may have lost it with its last session."""
        for entry in self._entries.values():
            entry.due = now
            entry.sent = 0

    @property
    def most_sent(self) -> int:
        """How often the most stubborn one was sent since the session began."""
        return max((entry.sent for entry in self._entries.values()), default=0)
