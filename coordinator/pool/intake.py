"""What becomes of a result: it counts, or its worker is told why not."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from coordinator.pool.auditing import Auditing
from coordinator.pool.batch import Batch
from coordinator.pool.batches import Batches
from coordinator.pool.classes import ALL
from coordinator.pool.course import Course
from coordinator.pool.evaluations import Evaluations
from coordinator.pool.events import (
    Arrived,
    Command,
    Contribution,
    Happened,
    KeepResult,
    Kept,
    SendAcknowledge,
)
from coordinator.pool.keeping import Keeping, Useless
from coordinator.pool.leases import Leases
from coordinator.pool.ranges import Blame
from coordinator.pool.roster import MOST_TASKS, Roster, Session
from coordinator.pool.work import Lease, Work
from coordinator.trust import Trust
from protocol.messages import Outcome
from protocol.spec import RunSpec

DUPLICATE: tuple[Outcome, str] = ("duplicate", "another worker was first")
HELD_BACK: tuple[Outcome, str] = (
    "duplicate",
    "results of a newcomer count once others confirm them",
)
ACCEPTED: tuple[Outcome, str] = ("accepted", "")


MOST_WITNESSES = 8
"""Established workers that have to have seen an episode fail, more than half of them but no more
than so many, before it is left out."""


class Intake:
    """Takes results into batches and evaluations of the centre, each unit once."""

    def __init__(
        self,
        spec: RunSpec,
        course: Course,
        roster: Roster,
        leases: Leases,
        batches: Batches,
        evaluations: Evaluations,
        trust: Trust,
        auditing: Auditing | None,
        commands: list[Command],
    ) -> None:
        """All parts are the pool's own, shared with it; `commands` takes what is to be done. No
        `auditing`: whatever comes from who is not banned is believed."""
        self._max_staleness = spec.pool.max_staleness
        self._members_per_direction = spec.members_per_direction
        self._course = course
        self._roster = roster
        self._leases = leases
        self._batches = batches
        self._evaluations = evaluations
        self._banned = trust.banned
        self._auditing = auditing
        self._commands = commands
        self._keeping = Keeping()

    def take(
        self, event: Arrived, lease: Lease | None, session: Session | None, steps: int
    ) -> bool:
        """Let a result of so many steps count as far as it may: whether it does. `lease`, where it
        is out, is what it is of, `session`, where it is here, whose it is."""
        auditing, worker = self._auditing, event.session.worker
        answer: tuple[Outcome, str]
        if self._banned and worker in self._banned:
            answer = "refused", f"banned: {self._banned[worker]}"
        elif auditing is not None and (check := auditing.checks.of(lease)) is not None:
            auditing.answered(check, event, lease, session)
            answer = DUPLICATE
        elif event.kind != "centre":
            answer = self._take_members(event, lease, session, steps)
        elif auditing is not None and auditing.trust.is_suspected(worker):
            answer = HELD_BACK
        else:
            answer = self._take_centre(event, lease)
            if auditing is not None and answer is ACCEPTED:
                auditing.centres.counted(event, session)
        if answer is ACCEPTED:
            self._keep(event, session)
            return True
        self._answer(Useless(event, *answer))
        return False

    def kept(self, event: Kept, now: float) -> None:
        """Acknowledge what is durable now, with the next task where one may come."""
        keeping, roster, ended = self._keeping, self._roster, self._course.ended
        sessions, owed = roster.sessions, roster.owed
        for id, name in event.results:
            left, waited = keeping.kept(id, name)
            session = sessions.get(id)
            if session is None:
                self._commands.append(SendAcknowledge(id, (name,), "accepted"))
            else:
                credit = session.credit
                session.unkept = left
                if left >= MOST_TASKS - credit:
                    roster.note_room(session, now)
                if credit > 0 and not ended:
                    session.unacknowledged.append(name)
                    owed[id] = session
                else:
                    self._commands.append(SendAcknowledge(id, (name,), "accepted"))
            for useless in waited:
                self._answer(useless)

    def _keep(self, event: Arrived, session: Session | None) -> None:
        """Ask for an accepted result to be made durable."""
        if event.kind == "members":
            course, until = self._course, self._batches.index(event.first)
            closes = course.version + 1 if course.updating else course.version
            if until < closes:
                until = closes
        else:
            until = event.version
        unkept = self._keeping.add(event)
        if session is not None:
            session.unkept = unkept
        self._commands.append(KeepResult(event, until))

    def _answer(self, useless: Useless) -> None:
        """Tell a worker that its result does not count, once what counts instead is safe."""
        if not self._keeping.holds_back(useless):
            event, outcome, reason = useless
            self._commands.append(SendAcknowledge(event.session, (event.name,), outcome, reason))

    def _take_centre(self, event: Arrived, lease: Lease | None) -> tuple[Outcome, str]:
        evaluation = self._evaluations.of(event.version)
        if evaluation is None:
            return "late", "that evaluation is over"
        end = event.first + event.count
        if not evaluation.has(end):
            return "refused", "there are no such episodes"
        valid = ~np.isnan(event.returns)
        is_open = evaluation.work.is_open(event.first, end)
        if not self._is_news(evaluation.work, event, is_open, valid):
            return DUPLICATE
        for episode, reason in event.failed:
            if is_open[episode - event.first] and self._confirmed(evaluation.work, event, episode):
                self._commands.append(
                    self._evaluations.give_up(evaluation, f"episode {episode} fails: {reason}")
                )
                return ACCEPTED
        evaluation.record(event.first, event.returns, event.lengths, event.session.worker, lease)
        if valid.any():
            self._leases.saw_centre(int(event.lengths[valid].sum()), int(valid.sum()))
        return ACCEPTED

    def _take_members(
        self, event: Arrived, lease: Lease | None, session: Session | None, steps: int
    ) -> tuple[Outcome, str]:
        count = len(event.returns)
        end = event.first + count
        index, last = self._batches.index(event.first), self._batches.index(end - 1)
        course, version, auditing = self._course, event.version, self._auditing
        newest = course.version
        if index != last or index > newest + 1 or version > newest:
            return "refused", "that range was never leased"
        closes = newest + 1 if course.updating else newest
        age = (index if index > closes else closes) - version
        batch = self._batches.of(index)
        if batch is None or age > self._max_staleness:
            return "late", f"{age} versions old"
        if auditing is not None and auditing.holds_back(event, lease, session):
            self._hold_back(batch, event, lease)
            return HELD_BACK
        if lease is not None and not event.failed and lease.claim.is_exactly(event.first, count):
            batch.work.settle(lease.claim)
            self._count(batch, event, count, steps)
            if auditing is not None:
                auditing.counted(event, session)
            return ACCEPTED
        is_open = batch.work.is_open(event.first, end)
        valid = ~np.isnan(event.returns[:, 0])
        # Observation sums are of the whole result: it counts as a whole or not at all. So does one
        # that comes late, lest a pool that goes on must know which part of it an update has used.
        whole = bool(event.observed) or index < closes
        if (whole and not is_open.all()) or not self._is_news(batch.work, event, is_open, valid):
            return DUPLICATE
        self._drop_failing(batch, event, is_open)
        taken = batch.work.accept(
            event.first, valid, frozenset({event.session.worker}), lease, whole
        )
        counted = int(np.count_nonzero(taken))
        if counted:
            if counted < np.count_nonzero(valid):
                returns = np.where(taken[:, np.newaxis], event.returns, np.nan)
                event = dataclasses.replace(event, returns=returns)
            self._count(batch, event, counted, int(event.lengths[taken].sum()))
            if auditing is not None:
                auditing.counted(event, session)
        return ACCEPTED

    def _hold_back(self, batch: Batch, event: Arrived, lease: Lease | None) -> None:
        """It does not count: what its lease still holds is for others, once that ends."""
        if event.failed:
            self._drop_failing(
                batch, event, batch.work.is_open(event.first, event.first + event.count)
            )
        if lease is not None and lease.claim.open:
            blame = Blame(frozenset({event.session.worker}))
            lease.claim.range = lease.claim.range.after(blame, awaited=False)

    def _is_news(
        self, work: Work, event: Arrived, is_open: NDArray[np.bool_], valid: NDArray[np.bool_]
    ) -> bool:
        """Whether it returns, or fails for the first time, a unit that is open."""
        if (is_open & valid).any():
            return True
        worker = event.session.worker
        return any(
            is_open[unit - event.first] and not work.knows_failure(unit, worker, event.task)
            for unit, _ in event.failed
        )

    def _count(self, batch: Batch, event: Arrived, counted: int, steps: int) -> None:
        """Keep accepted returns, of so many directions and steps, for the next update."""
        contribution = Contribution(
            event.session,
            event.version,
            event.first,
            event.returns,
            event.lengths,
            event.observed,
        )
        members, course = self._members_per_direction * counted, self._course
        closes = course.version + 1 if course.updating else course.version
        self._batches.count(batch, contribution, members, steps, batch.index < closes)
        self._leases.saw_members(steps, counted)

    def _drop_failing(self, batch: Batch, event: Arrived, is_open: NDArray[np.bool_]) -> None:
        """Give up the directions of a batch to come whose failure this result confirms."""
        if batch.index < self._course.open_index:
            return
        for direction, reason in event.failed:
            if is_open[direction - event.first] and self._confirmed(batch.work, event, direction):
                batch.drop(direction)
                self._commands.append(
                    Happened(f"direction {direction} dropped, its episode fails: {reason}")
                )

    def _confirmed(self, work: Work, event: Arrived, unit: int) -> bool:
        worker, auditing = event.session.worker, self._auditing
        # Where nobody is here, as before anybody is back, others may still come.
        if self._roster.eligible == {worker}:
            return work.fail(unit, worker, event.task, witnesses=1)
        if auditing is None or not auditing.has_established:
            return work.fail(unit, worker, event.task)
        # Nothing is easier than to fail: else two liars would leave out what they like, and keep a
        # run from ever being judged.
        if not auditing.trust.is_believed(worker):
            return False
        most = auditing.classes.believed(ALL) // 2 + 1
        return work.fail(unit, worker, event.task, max(2, min(most, MOST_WITNESSES)))
