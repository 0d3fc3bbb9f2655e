"""Units of work: which are free, who evaluates which, and what became of each."""

from __future__ import annotations

from collections.abc import Callable, Set
from itertools import islice
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from coordinator.pool.events import HeldLease, SessionId
from coordinator.pool.ranges import NO_BLAME, NOBODY, Blame, Range, Ranges
from protocol.messages import TaskKind

FREE, ACCEPTED, DROPPED = 0, -1, -2
"""States of a unit; a positive one is the number of the claim that holds it."""
FEW = 16
"""Units whose states are set one by one."""
LOOKS = 1000
"""Claims that one look for what is late goes through: bounds what it costs."""
MOST_FAILURES = 3
"""Failures of one unit that confirm it, whoever saw them."""
_NOTHING = Ranges(0, 0)


class Claim(msgspec.Struct, eq=False):
    """Units that sessions evaluate, usually one; more where an overdue lease has copies."""

    number: int
    range: Range
    """the smallest range around the units that it holds"""
    left: int
    """units that it holds"""
    leases: list[Lease] = msgspec.field(default_factory=list)
    overdue: float = 0.0
    """when the first of these is overdue"""

    @property
    def open(self) -> bool:
        """Whether a result of it would still count."""
        return self.left > 0

    def trusted(self, now: float) -> int:
        """Leases of it that may bring it and are not overdue."""
        return sum([each.overdue > now and not each.useless for each in self.leases])

    def awaited(self, now: float) -> bool:
        """Whether a batch still waits for it."""
        return any(each.awaited and each.awaited_until > now for each in self.leases)

    def expected_within(self, now: float) -> float:
        """Seconds within which one of its leases brings it, as far as can be told: who is late is
        expected no sooner than after being as late again."""
        return min([abs(each.expected - now) for each in self.leases if not each.useless])

    def is_exactly(self, first: int, count: int) -> bool:
        """Whether it holds these units, all of them, and no others."""
        held = self.range
        return self.left == count and held.first == first and held.end == first + count


class Lease(msgspec.Struct, eq=False):
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
    expected: float = 0.0
    """when the pool expects the result"""
    overdue: float = 0.0
    """when it has waited long enough to give the range to another as well, or to do without"""
    awaited_until: float = 0.0
    """how long a batch whose quorum is here waits for it"""
    deadline: float = 0.0
    timed: float = 0.0
    """when these were decided: at its issue, or with a part of it that came"""
    predicted: bool = False
    """they rest on what was measured"""
    begun_before: bool = False
    """its session had begun it before it was issued: how long it takes was not seen"""
    due: Ranges | None = None
    """what is to come of it where some came already; None: all of it"""
    spent: float = 0.0
    """seconds that the parts which came took"""
    awaited: bool = False
    """the batch waits for it: it is the first of its range"""
    useless: bool = False
    """another result took a unit of it, and its own counts as a whole or not at all"""
    out: bool = True

    @property
    def named(self) -> HeldLease:
        """What its session calls it."""
        return HeldLease(self.task, self.kind, self.version, self.first, self.count)

    @property
    def counts(self) -> bool:
        """Whether it is out and its result would be accepted."""
        return self.out and self.claim.open and not self.useless

    @property
    def left(self) -> int:
        """Units of it that did not come back yet."""
        return self.count if self.due is None else self.due.total

    def came(self, first: int, end: int) -> int:
        """Units `[first, end)` came back: how many of them for the first time."""
        count, due = self.count, self.due
        if first == self.first and end == first + count:
            self.due = _NOTHING
            return count if due is None else due.total
        before = self.left
        if self.due is None:
            self.due = Ranges(self.first, self.first + self.count)
        self.due.remove(first, end)
        return before - self.left

    def owes(self, first: int, end: int) -> bool:
        """Whether any of `[first, end)` is still to come."""
        if self.due is None:
            return self.first < end and first < self.first + self.count
        return bool(self.due.within(first, end))


class Stuck(NamedTuple):
    """A unit that all who could evaluate it failed: it waits for somebody else."""

    range: Range
    until: float
    """when it is tried once more all the same"""
    reason: str
    """why it failed last"""


class Work:
    """Units `[first, end)`, each settled at most once.

    An open unit is held by exactly one claim, or free: then it is in `unleased`, or `stuck`. What a
    result settles leaves the claims that held it; they keep the rest while one of their leases may
    still bring it.
    """

    def __init__(self, first: int, end: int) -> None:
        self.first = first
        self.end = end
        self.size = end - first
        self.unleased = Ranges(first, end)
        self.stuck: dict[int, Stuck] = {}
        self.missing = end - first
        """units that are neither accepted nor dropped"""
        self._states = np.full(end - first, FREE, dtype=np.int64)
        self._each = self._states.data
        """the same, to set a few without all that an array does for one"""
        self._claims: dict[int, Claim] = {}
        self._claimed = 0
        self._failures: dict[int, tuple[tuple[str, int], ...]] = {}
        """of episodes: by unit, the worker and the task of each"""
        self._latest: Lease | None = None
        """waited for the longest, as far as was looked; None: nothing is waited for any more"""

    def extend(self, count: int) -> None:
        """Append `count` free units."""
        self._states = np.concatenate((self._states, np.full(count, FREE, dtype=np.int64)))
        self._each = self._states.data
        self.unleased.add(Range(self.end, self.end + count))
        self.end += count
        self.size += count
        self.missing += count

    def is_open(self, first: int, end: int) -> NDArray[np.bool_]:
        """Which of the units `[first, end)` are neither accepted nor dropped."""
        return self._part(first, end) >= FREE

    # Claims and leases.

    def holds(self, claim: Claim, unit: int) -> bool:
        """Whether the claim holds this unit."""
        return int(self._states[unit - self.first]) == claim.number

    def claim(self, most: int, worker: str, eligible: Set[str]) -> Claim | None:
        """Hold the lowest free range for this worker, at most `most` units; None: there is none."""
        taken = self.unleased.take(most, worker, eligible)
        return None if taken is None else self._hold(taken)

    def claim_again(self, first: int, end: int, worker: str) -> Claim | None:
        """Hold what is open of `[first, end)`, not empty, for the worker that was given it before;
        None where that is not one free range that it may have."""
        if first < self.first or end > self.end:
            return None
        is_open = self.is_open(first, end)
        spans = _spans(is_open, first)
        taken = self.unleased.take_again(*spans[0], worker) if len(spans) == 1 else None
        return None if taken is None else self._hold(taken)

    def _hold(self, taken: Range) -> Claim:
        self._claimed += 1
        number = self._claimed
        claim = self._claims[number] = Claim(number, taken, taken.end - taken.first, [])
        self._set(taken, number)
        return claim

    def enter(self, lease: Lease) -> None:
        """Count a lease, the first or a copy, among those of its claim."""
        claim = lease.claim
        leases = claim.leases
        leases.append(lease)
        if len(leases) > 1:
            return
        claim.overdue = lease.overdue
        if not claim.range.awaited:
            lease.awaited = True
            latest = self._latest
            if latest is None or lease.awaited_until > latest.awaited_until:
                self._latest = lease

    def await_again(self, lease: Lease) -> None:
        """When this lease is overdue was decided anew."""
        claim = lease.claim
        claim.overdue = claim.leases[0].overdue
        latest = self._latest
        if lease.awaited and (latest is None or lease.awaited_until > latest.awaited_until):
            self._latest = lease

    def leave(self, lease: Lease, now: float, blame: Blame = NO_BLAME) -> None:
        """End a lease; what its claim still holds is free again where no other may bring it.

        `blame` is added to the history of that.
        """
        claim = lease.claim
        lease.out = False
        claim.leases.remove(lease)
        if not claim.left:
            return
        if claim.leases:
            claim.overdue = claim.leases[0].overdue
        claim.range = claim.range.after(blame, lease.awaited_until <= now)
        self._break_if_useless(claim)

    # Results.

    def accept(
        self,
        first: int,
        valid: NDArray[np.bool_],
        avoid: frozenset[str] = NOBODY,
        lease: Lease | None = None,
        whole: bool = False,
    ) -> NDArray[np.bool_]:
        """Settle the open units among `[first, first + len(valid))` that are valid: which they are.

        The open ones that are not valid are free again, for others than `avoid` first. The result
        is that of `lease`, if it is out; where results count as a `whole` or not at all, others
        that were to bring a unit which is settled now are useless.
        """
        end = first + len(valid)
        states = self._part(first, end)
        is_open = states >= FREE
        taken = valid & is_open
        held = set(states[is_open].tolist())
        if FREE in held:
            held.remove(FREE)
            self._withdraw(first, end)
        states[taken] = ACCEPTED
        self.missing -= int(np.count_nonzero(taken))
        failed = is_open & ~valid
        if failed.any():
            states[failed] = FREE
            for span in _spans(failed, first):
                self.unleased.add(Range(*span, avoid))
        spans = _spans(taken, first) if whole else []
        for number in sorted(held):
            claim = self._claims[number]
            self._shrink(claim)
            if whole and claim.open:
                for other in claim.leases:
                    if other is not lease and any(other.owes(*span) for span in spans):
                        other.useless = True
                self._break_if_useless(claim)
        return taken

    def reopen(self, first: int, taken: NDArray[np.bool_], avoid: frozenset[str]) -> int:
        """What was accepted of the units `[first, first + len(taken))` that were `taken` is free
        again, for others than `avoid` first: how many that are."""
        states = self._part(first, first + len(taken))
        again = taken & (states == ACCEPTED)
        states[again] = FREE
        for span in _spans(again, first):
            self.unleased.add(Range(*span, avoid))
        count = int(np.count_nonzero(again))
        self.missing += count
        return count

    def settle(self, claim: Claim) -> None:
        """Accept all units of an open claim: what `accept` does, for the usual result."""
        count = claim.left
        if count == 1:
            self._each[claim.range.first - self.first] = ACCEPTED
        else:
            self._set(claim.range, ACCEPTED)
        self.missing -= count
        claim.left = 0
        del self._claims[claim.number]

    def drop(self, unit: int) -> None:
        """Settle an open unit without a return."""
        number = int(self._states[unit - self.first])
        if number == FREE:
            self._withdraw(unit, unit + 1)
        self._states[unit - self.first] = DROPPED
        self.missing -= 1
        if number > FREE:
            self._shrink(self._claims[number])

    # Failures.

    def fail(self, unit: int, worker: str, task: int, witnesses: int = 2) -> bool:
        """The episode of this open unit failed on `worker`: is it confirmed that it always does?

        So many `witnesses` confirm it, with two failures at least: 1 where this worker is alone.
        Where two suffice so does the third failure on the same one, lest a unit wait for ever for a
        worker that never answers. The result of one task is one failure, however often it comes.
        """
        if self.knows_failure(unit, worker, task):
            return False
        seen = self._failures[unit] = (*self._failures.get(unit, ()), (worker, task))
        if len(seen) < 2:
            return False
        if len({name for name, _ in seen}) >= witnesses:
            return True
        return witnesses <= 2 and len(seen) >= MOST_FAILURES

    def knows_failure(self, unit: int, worker: str, task: int) -> bool:
        """Whether this task's failure of the unit was seen before."""
        return (worker, task) in self._failures.get(unit, ())

    @property
    def has_failing(self) -> bool:
        """Whether an episode of any unit failed."""
        return bool(self._failures)

    def failed_before(self, units: Range) -> bool:
        """Whether a lease of these ended in a failure, or an episode of any of them failed."""
        if units.failures:
            return True
        if not self._failures:
            return False
        return any(units.first <= unit < units.end for unit in self._failures)

    def set_aside(self, claim: Claim, tries: int, until: float, reason: str) -> Stuck | None:
        """Lease the unit of this claim, whose last lease failed, to nobody until that time, where
        it is a single one that so many leases failed."""
        unit = claim.range.first
        if claim.open or claim.range.size > 1 or claim.range.failures < tries:
            return None
        found = self.unleased.within(unit, unit + 1)
        if not found:
            return None
        self.unleased.remove(unit, unit + 1)
        stuck = self.stuck[unit] = Stuck(found[0], until, reason)
        return stuck

    def retry(self, which: Callable[[Stuck], bool]) -> None:
        """Those of the stuck units are free again."""
        for unit, stuck in list(self.stuck.items()):
            if which(stuck):
                del self.stuck[unit]
                self.unleased.add(stuck.range)

    # Time.

    def close(self) -> None:
        """Nothing is awaited any more: let go of the lease, which holds on to this."""
        self._latest = None

    def insurable(self, until: float) -> list[Claim]:
        """The open claims, overdue by then, that others may be given as well; those first that were
        made first."""
        oldest = islice(self._claims.values(), LOOKS)
        return [claim for claim in oldest if claim.overdue <= until and not claim.range.suspect]

    def split(self, claim: Claim, count: int, now: float) -> Claim:
        """A new claim of the last `count` units, fewer than all, that this one holds.

        The leases of this one stay with it; what they bring of the other counts all the same.
        """
        first = claim.range.first
        rows = np.flatnonzero(self._part(*claim.range.span) == claim.number)
        cut = first + int(rows[-count])
        self._claimed += 1
        part = claim.range.part(cut, first + int(rows[-1]) + 1)
        taken = Claim(self._claimed, part.after(NO_BLAME, not claim.awaited(now)), count)
        self._claims[taken.number] = taken
        self._states[first - self.first + rows[-count:]] = taken.number
        claim.left -= count
        claim.range = claim.range.part(first, first + int(rows[-count - 1]) + 1)
        return taken

    def expects(self, now: float) -> bool:
        """Whether a lease that would still count is waited for, the first of its range.

        Time never goes back from one question to the next.
        """
        latest = self._latest
        if latest is None:
            return False
        if not latest.counts or latest.awaited_until <= now:
            # Who is waited for the longest comes last, as a rule: such a look is rare.
            left = [
                lease
                for claim in self._claims.values()
                for lease in claim.leases
                if lease.awaited and lease.awaited_until > now and not lease.useless
            ]
            self._latest = max(left, key=lambda lease: lease.awaited_until, default=None)
        return self._latest is not None

    # Units.

    def _part(self, first: int, end: int) -> NDArray[np.int64]:
        return self._states[first - self.first : end - self.first]

    def _set(self, units: Range, state: int) -> None:
        begin = units.first - self.first
        count = units.end - units.first
        if count == 1:
            self._each[begin] = state
        elif count > FEW:
            self._states[begin : begin + count] = state
        else:
            each = self._each
            for unit in range(begin, begin + count):
                each[unit] = state

    def _withdraw(self, first: int, end: int) -> None:
        """What of `[first, end)` was free is not to be leased."""
        self.unleased.remove(first, end)
        for unit in [unit for unit in self.stuck if first <= unit < end]:
            del self.stuck[unit]

    def _shrink(self, claim: Claim) -> None:
        """Some of its units are not the claim's any more."""
        first, end = claim.range.span
        rows = np.flatnonzero(self._part(first, end) == claim.number)
        if not len(rows):
            self._close(claim)
            return
        claim.left = len(rows)
        claim.range = claim.range.part(first + int(rows[0]), first + int(rows[-1]) + 1)

    def _close(self, claim: Claim) -> None:
        claim.left = 0
        del self._claims[claim.number]

    def _break_if_useless(self, claim: Claim) -> None:
        """End an open claim where no lease may bring what it holds: that is free."""
        if not all(lease.useless for lease in claim.leases):
            return
        first, end = claim.range.span
        states = self._part(first, end)
        mine = states == claim.number
        states[mine] = FREE
        for span in _spans(mine, first):
            self.unleased.add(claim.range.part(*span))
        self._close(claim)


def _spans(rows: NDArray[np.bool_], first: int) -> list[tuple[int, int]]:
    """The runs of true rows as (first, end), row 0 being `first`."""
    padded = np.zeros(len(rows) + 2, dtype=np.int8)
    padded[1:-1] = rows
    edges = (np.flatnonzero(padded[1:] != padded[:-1]) + first).tolist()
    return list(zip(edges[::2], edges[1::2], strict=True))
