"""The leases that are out: how large the next one is, how long it may take, when it runs out."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator

from coordinator.pool.events import Arrived, HeldLease
from coordinator.pool.ranges import NO_BLAME, Blame, Range, Ranges
from coordinator.pool.roster import Session
from coordinator.pool.sizing import (
    DEADLINE,
    OVERDUE,
    OVERDUE_MEDIANS,
    Pacing,
    Window,
    as_full,
    lease_seconds,
    least_seconds,
    task_size,
)
from coordinator.pool.work import Claim, Lease, Work
from protocol.messages import TaskKind
from protocol.spec import RunSpec

FIRST_LENGTH = 100.0
"""Steps of an episode assumed before any was seen."""
TASKS_PER_EPOCH = 1 << 32
"""No two epochs give one number to two tasks."""


def first_task(epoch: int) -> int:
    """The first number that this epoch gives to a task, beyond all those of earlier epochs."""
    return (epoch - 1) * TASKS_PER_EPOCH + 1


class Leases:
    """Issues, ends and times leases; what it predicts rests on episodes and tasks seen so far."""

    def __init__(self, spec: RunSpec, first_task: int) -> None:
        self.out: dict[int, Lease] = {}
        self.next_task = first_task
        self._episodes = spec.environment.episodes * spec.members_per_direction
        """of a direction"""
        self.amend(spec)
        self._deadlines: list[tuple[float, int]] = []
        """a heap of those of all leases that were out when it was made: as a rule a result is here
        long before its deadline, and to put each one in costs more than to make the heap anew"""
        self._next_deadline = math.inf
        """the earliest that was decided since"""
        self._durations = Window()
        self._ratios = Window(fewest=10)
        """durations as parts of what was predicted"""
        self._untold = 0
        """results until the next whose duration is looked at: as many as it takes for a window to
        tell of all who are at work, and not of who is the fastest"""
        self._overdue, self._deadline = OVERDUE.unknown, DEADLINE.unknown
        """times the predicted duration"""
        self._length: float | None = None
        self._centre_length: float | None = None
        self.steps: dict[TaskKind, float] = {
            "members": self._episodes * FIRST_LENGTH,
            "centre": FIRST_LENGTH,
        }
        """environment steps that a direction (all its members), or an episode of the centre,
        takes"""

    def amend(self, spec: RunSpec) -> None:
        """These settings hold now, for leases to come."""
        self._floor = spec.pool.lease_floor
        self._patience = spec.pool.patience or 1.0
        self._task_seconds = spec.pool.task_seconds
        self._minimum_seconds = min(spec.pool.minimum_task_seconds, spec.pool.task_seconds)

    def size(self, session: Session, share: float, work: Work, pacing: Pacing) -> int:
        """Units of the next task of a session from this work; 0: it has its share."""
        leases, unit, most = session.leases, pacing.unit, self._task_seconds
        held = 0
        for lease in leases.values():
            if lease.work is work:
                held += lease.count
        minimum, fill = 0.0, 0
        # A speed that is only declared must not make a large task of all that is left.
        if session.pace.measured:
            fill = pacing.fill
            minimum = least_seconds(share * work.size * unit)
            if minimum < self._minimum_seconds:
                minimum = self._minimum_seconds
            if minimum > most:
                minimum = most
        left = work.unleased.total
        return task_size(
            left, work.missing, held, share, 1.0 / unit, most, minimum, not leases, fill
        )

    def pacing(self, session: Session, kind: TaskKind, now: float) -> Pacing:
        """How soon the session would be done with more work of this kind."""
        free = now
        for lease in session.leases.values():
            expected = lease.expected
            if expected > free:
                free = expected
        fill = self._fill(kind, session) if session.lanes else 0
        return Pacing(free - now, self.steps[kind] / session.pace.speed, fill)

    def _fill(self, kind: TaskKind, session: Session) -> int:
        """Units that fill the lanes which a session declares, once."""
        return session.lanes if kind == "centre" else -(-session.lanes // self._episodes)

    def filled(self, lease: Lease, session: Session) -> float:
        """Times its own steps that full lanes of this session take in the time of the lease."""
        return as_full(lease.count, self._fill(lease.kind, session)) / lease.count

    @property
    def median_seconds(self) -> float:
        """That tasks take; 0 while none is measured."""
        return self._durations.median or 0.0

    def is_free(self, task: int) -> bool:
        """Whether a lease of the past may have this number again: it is not out, nor to come."""
        return 0 < task < self.next_task and task not in self.out

    def issue(
        self,
        session: Session,
        kind: TaskKind,
        version: int,
        work: Work,
        claim: Claim,
        now: float,
        held: HeldLease | None = None,
        pacing: Pacing | None = None,
        at_the_latest: float = math.inf,
    ) -> Lease:
        """Lease a claimed range to a session; where it has `held` it before, and its number is
        free, that lease once more: what the claim does not hold of it came already. It is overdue
        `at_the_latest` after so many seconds; `pacing`: where that is known."""
        units, due = claim.range, None
        first, left = units.first, units.end - units.first
        count = left
        if held is None:
            task = self.next_task
            self.next_task = task + 1
        else:
            task = held.task
            if (first, count) != (held.first, held.count):
                due = Ranges(first, units.end)
                first, count = held.first, held.count
        begins_in = (self.pacing(session, kind, now) if pacing is None else pacing).free_in
        expected, overdue, deadline, predicted = self._times(
            session, kind, work, units, left, begins_in, at_the_latest
        )
        # All at once: to set a field later costs a third of what making the whole lease does.
        lease = Lease(
            task,
            session.id,
            kind,
            version,
            first,
            count,
            work,
            claim,
            now,
            now + expected,
            now + overdue,
            now + self._patience * overdue,
            now + deadline,
            now,
            predicted,
            held is not None,
            due,
        )
        session.fed = now
        self.out[task] = session.leases[task] = lease
        if lease.deadline < self._next_deadline:
            self._next_deadline = lease.deadline
        work.enter(lease)
        return lease

    def progressed(self, lease: Lease, session: Session, now: float) -> None:
        """A part of the lease came: the rest is timed anew from now on.

        It is overdue no later than it would have been, for others wait: else whoever sends a
        direction now and then would never be late, and hold up everybody for as long as it likes.
        """
        expected, overdue, deadline, lease.predicted = self._times(
            session, lease.kind, lease.work, lease.claim.range, lease.left, 0.0, math.inf
        )
        lease.timed = now
        lease.expected = now + expected
        lease.overdue = min(lease.overdue, now + overdue)
        lease.awaited_until = min(lease.awaited_until, now + self._patience * overdue)
        lease.deadline = now + deadline
        if lease.deadline < self._next_deadline:
            self._next_deadline = lease.deadline
        lease.work.await_again(lease)

    def _times(
        self,
        session: Session,
        kind: TaskKind,
        work: Work,
        units: Range,
        left: float,
        begins_in: float,
        at_the_latest: float,
    ) -> tuple[float, float, float, bool]:
        """In how many seconds a lease of these units, so many of them left, begun in so many
        seconds, should be here, is overdue, runs out; whether all that rests on what was
        measured."""
        median, pace = self._durations.median, session.pace
        if session.lanes:
            left = as_full(left, self._fill(kind, session))
        expected = begins_in + left * self.steps[kind] / pace.speed
        predicted = pace.measured and self._length is not None
        deadline = lease_seconds(
            expected if predicted else None,
            self._deadline,
            self._floor,
            median,
            units.attempts,
            work.failed_before(units),
        )
        overdue = self._overdue * expected
        if overdue > deadline:
            overdue = deadline
        if overdue > at_the_latest:
            overdue = at_the_latest
        if median is not None and overdue > OVERDUE_MEDIANS * median:
            overdue = OVERDUE_MEDIANS * median
        return (expected if expected < deadline else deadline), overdue, deadline, predicted

    def end(
        self, lease: Lease, session: Session | None, now: float, blame: Blame = NO_BLAME
    ) -> None:
        """What of the lease is still open may be leased again, unless a copy of it is out."""
        del self.out[lease.task]
        if session is not None:
            del session.leases[lease.task]
        lease.work.leave(lease, now, blame)

    def of(self, event: Arrived) -> Lease | None:
        """The lease that this is the result of, if it is still out; two sessions of one worker may
        finish each other's."""
        lease = self.out.get(event.task)
        if lease is None or lease.session.worker != event.session.worker:
            return None
        if lease.kind != event.kind or lease.version != event.version:
            return None
        if event.part is None:
            whole = event.first == lease.first and len(event.returns) == lease.count
            return lease if whole else None
        return lease if event.leased == (lease.first, lease.count) else None

    def run_out(self, now: float) -> Iterator[Lease]:
        """The leases whose deadline has passed; the caller ends each as it comes."""
        if self._next_deadline <= now:
            self._collect_deadlines()
        while self._deadlines and self._deadlines[0][0] <= now:
            lease = self.out.get(heapq.heappop(self._deadlines)[1])
            # Its number may be that of an older one, or a part of it came meanwhile.
            if lease is not None and lease.deadline <= now:
                # It takes at least as long: where many run out, the predictions are wrong.
                self._compare(lease, now)
                yield lease

    def put_off(self, seconds: float, until: float) -> None:
        """All deadlines are so much later, none of them before `until`; how long these tasks took
        will say nothing about who has them."""
        for lease in self.out.values():
            lease.deadline = max(lease.deadline + seconds, until)
            lease.begun_before = True
        self._collect_deadlines()

    def _collect_deadlines(self) -> None:
        """Those of the leases that are out, and no others."""
        self._deadlines = [(lease.deadline, lease.task) for lease in self.out.values()]
        heapq.heapify(self._deadlines)
        self._next_deadline = math.inf

    def saw_members(self, steps: int, directions: int) -> None:
        """Learn the length of episodes from the steps of so many directions."""
        mean = steps / (directions * self._episodes)
        self._length = mean if self._length is None else 0.7 * self._length + 0.3 * mean
        self.steps["members"] = self._episodes * self._length
        if self._centre_length is None:
            self.steps["centre"] = self._length

    def saw_centre(self, steps: int, episodes: int) -> None:
        """Learn the length of the centre's episodes."""
        self.steps["centre"] = self._centre_length = steps / episodes

    def took(self, lease: Lease, seconds: float, now: float) -> None:
        """The result of a lease came, which took its session so long."""
        self._untold -= 1
        if self._untold <= 0:
            self._untold = len(self.out) // Window.SIZE
            self._durations.add(seconds)
            self._compare(lease, now)

    def _compare(self, lease: Lease, now: float) -> None:
        """Learn by how much predictions are wrong."""
        predicted = lease.expected - lease.timed
        if lease.predicted and predicted > 0.0:
            ratios = self._ratios
            if ratios.add((now - lease.timed) / predicted):
                median, deviation = ratios.median, ratios.deviation
                self._overdue = OVERDUE.of(median, deviation)
                self._deadline = DEADLINE.of(median, deviation)
