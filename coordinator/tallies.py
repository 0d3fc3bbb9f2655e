"""What is counted of a run while this host leads it, for who watches: outcomes, work, refusals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from coordinator.pool.events import Contribution

MOST_CONTRIBUTORS = 10_000
"""Workers whose work is told apart; what others do is not counted."""
MOST_REASONS = 32
"""Reasons that are told apart; the others are one."""
MOST_UNABLE = 1000
"""Workers that are counted for one reason: anybody can make keys."""
OTHER = "another reason"


@dataclass(slots=True)
class Work:
    """What updates have used of a worker."""

    name: str = ""
    """its last label, which it may keep to itself"""
    device: str = ""
    members: int = 0
    steps: int = 0
    """of the environment"""


class Tallies:
    """Counts since this host leads.

    Attributes:
        outcomes: results by what became of them.
        work: by worker.
    """

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.work: dict[str, Work] = {}
        self._unable: dict[str, set[str]] = {}

    def used(
        self,
        contributions: Iterable[Contribution],
        members_per_direction: int,
        labels: Mapping[str, tuple[str, str]],
    ) -> None:
        """An update used these; `labels` are name and device of the workers that are known."""
        for part in contributions:
            worker = part.session.worker
            work = self.work.get(worker)
            if work is None:
                if len(self.work) >= MOST_CONTRIBUTORS:
                    continue
                work = self.work[worker] = Work()
            work.members += int(part.valid.sum()) * members_per_direction
            work.steps += part.steps
            if worker in labels:
                work.name, work.device = labels[worker]

    def cannot(self, worker: str, reason: str) -> None:
        """A worker can't take part, for this reason; who says so again counts once."""
        if reason not in self._unable and len(self._unable) >= MOST_REASONS:
            reason = OTHER
        workers = self._unable.setdefault(reason, set())
        if len(workers) < MOST_UNABLE:
            workers.add(worker)

    @property
    def unable(self) -> tuple[tuple[str, int], ...]:
        """Why workers can't take part, and how many, the most frequent reason first."""
        counts = [(reason, len(workers)) for reason, workers in self._unable.items()]
        return tuple(sorted(counts, key=lambda each: (-each[1], each[0])))
