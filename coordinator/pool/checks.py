"""What workers are to evaluate for no update, to see whether others told the truth: who waits for
it, and who is at it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from coordinator.pool.work import Lease, Work
from coordinator.trust import Answer, Dispute
from protocol.messages import TaskKind

MOST_WAITING = 4096
"""Checks that wait for somebody to do them, at most."""
LOOKS = 16
"""Checks that are looked at for one session: bounds what an event costs."""


MOST_ANSWERS = 8
"""Of those that a trial is compared with."""


@dataclass(eq=False, slots=True)
class Tried:
    """Answers for one range, the first of a result that counts, and who was asked for another."""

    answers: list[Answer]
    asked: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.asked.update(answer.worker for answer in self.answers)

    def add(self, answer: Answer) -> None:
        """Compare the next ones with this as well, if it says anything."""
        if len(self.answers) < MOST_ANSWERS and not np.isnan(answer.returns).all():
            self.answers.append(answer)

    def has_returns(self, first: int, end: int) -> bool:
        """Whether somebody returned any of the units `[first, end)`."""
        rows = (a.returns[max(0, first - a.first) : max(0, end - a.first)] for a in self.answers)
        return not all(np.isnan(each).all() for each in rows)


@dataclass(eq=False, slots=True)
class Check:
    """Units that a worker is to evaluate for no update: an audit of an answer, a trial of who
    evaluates it, or a dispute."""

    version: int
    first: int
    count: int
    kind: TaskKind
    work: Work
    numeric: bytes
    """the class that is asked for; empty: any, for what it is worth"""
    asked: set[str]
    """workers that are not to be asked: they answer already, or did"""
    answer: Answer | None = None
    dispute: Dispute | None = None
    trial: Tried | None = None
    """it is there to see whether who evaluates it tells the truth"""


class Checks:
    """Those that nobody does yet, and those that are leased."""

    def __init__(self) -> None:
        self.waiting: deque[Check] = deque()
        self._out: dict[int, Check] = {}
        """by task"""

    @property
    def full(self) -> bool:
        """Whether no more audits may wait."""
        return len(self.waiting) >= MOST_WAITING

    def take(self, suits: Callable[[Check], bool]) -> Check | None:
        """One of the first that suits; it waits no more for anybody. Where none does, they wait
        behind all others: the next look is at those."""
        for place, check in enumerate(islice(self.waiting, LOOKS)):
            if suits(check):
                del self.waiting[place]
                return check
        if len(self.waiting) > LOOKS:
            self.waiting.rotate(-LOOKS)
        return None

    def leased(self, check: Check, lease: Lease) -> None:
        """A session does a check now."""
        check.asked.add(lease.session.worker)
        self._out[lease.task] = check

    def of(self, lease: Lease | None) -> Check | None:
        """The check that a lease is of."""
        return None if lease is None or not self._out else self._out.get(lease.task)

    def is_pending(self, check: Check) -> bool:
        """Whether it waits, or somebody is at it."""
        return check.work.missing > 0 and (check in self.waiting or check in self._out.values())

    def drop(self, which: Callable[[Check], bool]) -> None:
        """Those that wait and are of that kind are of no use any more."""
        self.waiting = deque(check for check in self.waiting if not which(check))

    def look(self, leases: dict[int, Lease]) -> None:
        """What was handed back, as its lease is none of these any more, waits again."""
        for task, check in list(self._out.items()):
            if task not in leases:
                del self._out[task]
                if check.work.unleased.total and check.trial is None:
                    self.waiting.append(check)
