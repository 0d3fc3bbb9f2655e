"""Units of work: which are free, who evaluates which, and what became of each."""

from __future__ import annotations

import heapq
from collections.abc import Set
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from coordinator.pool.events import HeldLease, SessionId
from coordinator.pool.ranges import NOBODY, Range, Ranges
from protocol.messages import TaskKind

FREE, ACCEPTED, DROPPED = 0, -1, -2
"""States of a unit; a positive one is the number of the claim that holds it."""
COPY_AFTER = 0.25
"""Seconds beyond overdue before a lease is copied: a copy costs messages and somebody's core."""
MOST_FAILURES = 3
"""Failures of one unit that confirm it, whoever saw them."""


@dataclass(slots=True, eq=False)
class Claim:
    """A range that sessions evaluate, usually one; more where an overdue lease has copies."""

    number: int
    range: Range
    leases: list[Lease] = field(default_factory=list)
    open: bool = True
    """all of its units are still to be settled, so that a whole result of it would count"""


@dataclass(slots=True, eq=False)
class Lease:
    """A range that one session evaluates until `deadline`."""

    task: int
    session: SessionId
    kind: TaskKind
    version: int
    first: int
    """first direction, or episode of the centre"""
    count: int
    work: Work
    claim: Claim
    issued: float
    expected: float
    """when the pool expects the result"""
    overdue: float
    """when it has waited long enough to give the range to another as well, or to do without"""
    deadline: float
    begun_before: bool = False
    """its session had begun it before it was issued: how long it takes was not seen"""
    copied: bool = False
    """another session was given the same range because this one is overdue"""
    out: bool = True

    @property
    def named(self) -> HeldLease:
        """What its session calls it."""
        return HeldLease(self.task, self.kind, self.version, self.first, self.count)

    @property
    def counts(self) -> bool:
        """Whether it is out and its result would be accepted."""
        return self.out and self.claim.open


class Work:
    """Units `[first, end)`, each settled at most once.

    An open unit is either free, and then in `unleased`, or held by exactly one claim. A claim that
    loses a unit to another result can't count as a whole any more, so all of it is free again.
    """

    def __init__(self, first: int, end: int) -> None:
        self.first = first
        self.end = end
        self.size = end - first
        self.unleased = Ranges(first, end)
        self.missing = end - first
        """units that are neither accepted nor dropped"""
        self._states = np.full(end - first, FREE, dtype=np.int64)
        self._claims: dict[int, Claim] = {}
        self._claimed = 0
        self._failures: dict[int, tuple[tuple[str, int], ...]] = {}
        self._soonest: list[tuple[float, int, Lease]] = []
        self._latest: list[tuple[float, int, Lease]] = []
        self._entered = 0
        """what tells entries of one time apart: two leases may have one number, one after the
        other"""

    def extend(self, count: int) -> None:
        """Append `count` free units."""
        self._states = np.concatenate((self._states, np.full(count, FREE, dtype=np.int64)))
        self.unleased.add(Range(self.end, self.end + count))
        self.end += count
        self.size += count
        self.missing += count

    def is_open(self, first: int, end: int) -> NDArray[np.bool_]:
        """Which of the units `[first, end)` are neither accepted nor dropped."""
        return self._part(first, end) >= FREE

    def claim(self, most: int, worker: str, eligible: Set[str]) -> Claim | None:
        """Hold the lowest free range for this worker, at most `most` units; None: there is none."""
        return self._hold(self.unleased.take(most, worker, eligible))

    def claim_exactly(self, first: int, end: int, worker: str) -> Claim | None:
        """Hold `[first, end)`, not empty, for this worker; None where not all of it is free for
        it."""
        return self._hold(self.unleased.take_exactly(first, end, worker))

    def _hold(self, taken: Range | None) -> Claim | None:
        if taken is None:
            return None
        self._claimed += 1
        claim = self._claims[self._claimed] = Claim(self._claimed, taken)
        self._part(taken.first, taken.end)[:] = self._claimed
        return claim

    def enter(self, lease: Lease) -> None:
        """Count a lease, the first or a copy, among those of its claim."""
        lease.claim.leases.append(lease)
        self._await(lease)
        if len(lease.claim.leases) == 1 and not lease.claim.range.awaited:
            heapq.heappush(self._latest, (-lease.overdue, self._entered, lease))

    def leave(
        self, lease: Lease, now: float, avoid: frozenset[str] = NOBODY, attempts: int = 0
    ) -> None:
        """End a lease; where it was its claim's last and the claim open, the range is free again.

        `avoid` and `attempts` are added to the history of the range.
        """
        claim = lease.claim
        lease.out = False
        claim.leases.remove(lease)
        if not claim.open:
            return
        first, end, avoided, earlier, awaited = claim.range
        awaited = awaited or lease.overdue <= now
        claim.range = Range(first, end, avoided | avoid, earlier + attempts, awaited)
        if not claim.leases:
            self._break(claim, end, end)
            return
        for other in claim.leases:
            if other.copied:
                other.copied = False
                self._await(other)

    def accept(
        self, first: int, valid: NDArray[np.bool_], avoid: frozenset[str] = NOBODY
    ) -> NDArray[np.bool_]:
        """Settle the open units among `[first, first + len(valid))` that are valid: which they are.

        The open ones that are not valid are free again, for others than `avoid` first.
        """
        end = first + len(valid)
        states = self._part(first, end)
        if self._break_claims(first, end):
            taken = valid
        else:
            self.unleased.remove(first, end)
            taken = valid & (states >= FREE)
        states[taken] = ACCEPTED
        settled = int(np.count_nonzero(taken))
        self.missing -= settled
        if settled < len(valid):
            self._free(Range(first, end, avoid))
        return taken

    def settle(self, claim: Claim) -> None:
        """Accept all units of an open claim: what `accept` does, for the usual result."""
        first, end = claim.range[:2]
        self._part(first, end)[:] = ACCEPTED
        self.missing -= end - first
        del self._claims[claim.number]
        claim.open = False

    def drop(self, unit: int) -> None:
        """Settle an open unit without a return."""
        self._break_claims(unit, unit + 1)
        self.unleased.remove(unit, unit + 1)
        self._part(unit, unit + 1)[:] = DROPPED
        self.missing -= 1

    def fail(self, unit: int, worker: str, task: int, alone: bool) -> bool:
        """The episode of this open unit failed on `worker`: is it confirmed that it always does?

        The second failure confirms, on another worker unless this one is `alone`; so does the
        third on the same one, lest a unit wait for ever for a worker that never answers. The result
        of one task is one failure, however often it comes.
        """
        seen = self._failures.get(unit, ())
        if (worker, task) in seen:
            return False
        seen = self._failures[unit] = (*seen, (worker, task))
        if len(seen) == 2:
            return alone or seen[0][0] != worker
        return len(seen) >= MOST_FAILURES

    @property
    def has_failing(self) -> bool:
        """Whether an episode of any unit failed."""
        return bool(self._failures)

    def close(self) -> None:
        """Nothing is awaited any more: let go of the leases, which hold on to this."""
        self._soonest.clear()
        self._latest.clear()

    def overdue(self, now: float, session: SessionId) -> Lease | None:
        """The most overdue lease that has no copy, unless the session has that range itself."""
        own: list[tuple[float, int, Lease]] = []
        found = None
        while found is None and self.has_overdue(now):
            entry = heapq.heappop(self._soonest)
            if any(lease.session == session for lease in entry[2].claim.leases):
                own.append(entry)
            else:
                found = entry[2]
                found.copied = True
        for entry in own:
            heapq.heappush(self._soonest, entry)
        return found

    def has_overdue(self, now: float) -> bool:
        """Whether a lease that would still count is overdue and has no copy."""
        while self._soonest and self._soonest[0][0] < now:
            if self._soonest[0][2].counts:
                return True
            heapq.heappop(self._soonest)
        return False

    def expects(self, now: float) -> bool:
        """Whether a lease that would still count is not overdue yet, the first of its range."""
        while self._latest:
            lease = self._latest[0][2]
            if lease.counts:
                return lease.overdue > now
            heapq.heappop(self._latest)
        return False

    def _await(self, lease: Lease) -> None:
        """A copy may be made of this lease once it is overdue."""
        self._entered += 1
        heapq.heappush(self._soonest, (lease.overdue + COPY_AFTER, self._entered, lease))

    def _part(self, first: int, end: int) -> NDArray[np.int64]:
        return self._states[first - self.first : end - self.first]

    def _break_claims(self, first: int, end: int) -> bool:
        """End every claim on a unit of `[first, end)`; what it held elsewhere is free.

        Returns whether one claim held exactly that range, so that nothing of it was free.
        """
        states = self._part(first, end)
        holder = self._claims.get(int(states[0]))
        if holder is not None and holder.range[:2] == (first, end):
            self._break(holder, first, end)
            return True
        for number in np.unique(states[states > FREE]).tolist():
            self._break(self._claims[number], first, end)
        return False

    def _break(self, claim: Claim, first: int, end: int) -> None:
        """End a claim, and free what it held outside of `[first, end)`."""
        del self._claims[claim.number]
        claim.open = False
        whole = claim.range
        if whole.first < first:
            self._free(whole.part(whole.first, first))
        if whole.end > end:
            self._free(whole.part(end, whole.end))

    def _free(self, part: Range) -> None:
        """Put the open units of a range, held by nobody, among the unleased."""
        states = self._part(part.first, part.end)
        is_open = states >= FREE
        states[is_open] = FREE
        edges = np.flatnonzero(np.diff(is_open, prepend=False, append=False)) + part.first
        for first, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            self.unleased.add(part.part(first, end))
