"""The leases that are out: how large the next one is, how long it may take, when it runs out."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from coordinator.pool.events import Arrived
from coordinator.pool.ranges import NOBODY
from coordinator.pool.roster import Session
from coordinator.pool.sizing import OVERDUE, PATIENCE, Durations, lease_seconds, task_size
from coordinator.pool.work import Claim, Lease, Work
from protocol.messages import TaskKind
from protocol.spec import RunSpec

FIRST_LENGTH = 100.0
"""Steps of an episode assumed before any was seen."""


class Leases:
    """Issues, ends and times leases; what it predicts rests on episodes and tasks seen so far."""

    def __init__(self, spec: RunSpec, first_task: int) -> None:
        self.out: dict[int, Lease] = {}
        self.next_task = first_task
        self._pool = spec.pool
        self._episodes = spec.environment.episodes
        self._minimum_seconds = min(spec.pool.minimum_task_seconds, spec.pool.task_seconds)
        self._deadlines: list[tuple[float, int]] = []
        self._durations = Durations()
        self._length: float | None = None
        self._centre_length: float | None = None

    def size(self, session: Session, share: float, kind: TaskKind, work: Work) -> int:
        """Units of the next task of a session from this work; 0: it has its share."""
        held = 0
        for lease in session.leases.values():
            if lease.work is work:
                held += lease.count
        return task_size(
            whole=work.size,
            unleased=work.unleased.total,
            unfinished=work.missing,
            held=held,
            share=share,
            units_per_second=session.pace.speed / self.steps(kind),
            task_seconds=self._pool.task_seconds,
            # A speed that is only declared must not make a large task of all that is left.
            minimum_seconds=self._minimum_seconds if session.pace.measured else 0.0,
            idle=not session.leases,
        )

    def _number(self) -> int:
        self.next_task += 1
        return self.next_task - 1

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
        task: int | None = None,
    ) -> Lease:
        """Lease a claimed range to a session; under the number `task`, which must be free, where it
        has worked on it already."""
        median = self._durations.median
        begin = now
        for held in session.leases.values():
            begin = max(begin, held.expected)
        expected = begin - now + claim.range.size * self.steps(kind) / session.pace.speed
        known = session.pace.measured and self._length is not None
        seconds = lease_seconds(
            expected if known else None, self._pool.lease_floor, median, claim.range.attempts
        )
        overdue = min(OVERDUE * expected, seconds)
        if median is not None:
            overdue = min(overdue, PATIENCE * median)
        lease = Lease(
            task=self._number() if task is None else task,
            session=session.id,
            kind=kind,
            version=version,
            first=claim.range.first,
            count=claim.range.size,
            work=work,
            claim=claim,
            issued=now,
            expected=now + min(expected, seconds),
            overdue=now + overdue,
            deadline=now + seconds,
            begun_before=task is not None,
        )
        self.out[lease.task] = lease
        session.leases[lease.task] = lease
        work.enter(lease)
        heapq.heappush(self._deadlines, (lease.deadline, lease.task))
        return lease

    def end(
        self,
        lease: Lease,
        session: Session | None,
        now: float,
        avoid: frozenset[str] = NOBODY,
        attempts: int = 0,
    ) -> None:
        """What of the lease is still open may be leased again, unless a copy of it is out."""
        del self.out[lease.task]
        if session is not None:
            del session.leases[lease.task]
        lease.work.leave(lease, now, avoid, attempts)

    def of(self, event: Arrived) -> Lease | None:
        """The lease that this is the result of, if it is still out; two sessions of one worker may
        finish each other's."""
        lease = self.out.get(event.task)
        if lease is None or lease.session.worker != event.session.worker:
            return None
        asked = (lease.kind, lease.version, (lease.first, lease.count))
        return lease if asked == (event.kind, event.version, event.leased) else None

    def run_out(self, now: float) -> Iterator[Lease]:
        """The leases whose deadline has passed; the caller ends each as it comes."""
        while self._deadlines and self._deadlines[0][0] <= now:
            lease = self.out.get(heapq.heappop(self._deadlines)[1])
            if (
                lease is not None and lease.deadline <= now
            ):  # its number may be that of an older one
                yield lease

    def put_off(self, seconds: float, until: float) -> None:
        """All deadlines are so much later, none of them before `until`; how long these tasks took
        will say nothing about who has them."""
        for lease in self.out.values():
            lease.deadline = max(lease.deadline + seconds, until)
            lease.begun_before = True
        self._deadlines = [(lease.deadline, lease.task) for lease in self.out.values()]
        heapq.heapify(self._deadlines)

    def steps(self, kind: TaskKind) -> float:
        """Environment steps that a direction (both mirrors) or an episode of the centre takes."""
        if kind == "centre":
            return self._centre_length or self._length or FIRST_LENGTH
        return 2 * self._episodes * (self._length or FIRST_LENGTH)

    def saw_members(self, steps: int, members: int) -> None:
        """Learn the length of episodes from the steps of so many members."""
        mean = steps / (members * self._episodes)
        self._length = mean if self._length is None else 0.7 * self._length + 0.3 * mean

    def saw_centre(self, steps: int, episodes: int) -> None:
        """Learn the length of the centre's episodes."""
        self._centre_length = steps / episodes

    def took(self, seconds: float) -> None:
        """A task took so long from its lease, or from its session's last result."""
        self._durations.add(seconds)
