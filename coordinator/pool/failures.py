"""What it costs when a task does not come back: the worker its standing, never the work."""

from __future__ import annotations

from collections.abc import Iterator

from coordinator.pool.auditing import Auditing
from coordinator.pool.batches import Batches
from coordinator.pool.course import Course
from coordinator.pool.evaluations import Evaluations
from coordinator.pool.events import Arrived, Command, Happened, Refused, SessionId
from coordinator.pool.leases import Leases
from coordinator.pool.ranges import NO_BLAME, Blame
from coordinator.pool.roster import Roster, Session
from coordinator.pool.work import Lease, Stuck, Work

REST_AFTER_REFUSAL = 1.0
"""Seconds of rest for who gives back, at no fault, work that anybody should be able to do."""
FEWEST_TRIES = 3
"""Failures of a single unit before it is stuck, at least."""
MOST_TRIES = 16
"""And at most, however many workers are here: more of them would only break as well."""
DIRECTION, EPISODE = "direction", "centre episode"
STUCK_SECONDS = 60.0
"""For how long nobody is given what is stuck, unless a worker comes that did not fail it."""


class Failures:
    """Ends the leases that bring no result, and keeps back what fails everywhere."""

    def __init__(
        self,
        course: Course,
        roster: Roster,
        leases: Leases,
        batches: Batches,
        evaluations: Evaluations,
        auditing: Auditing | None,
        commands: list[Command],
    ) -> None:
        """All parts are the pool's own, shared with it; `commands` takes what is to be done."""
        self._course = course
        self._roster = roster
        self._leases = leases
        self._batches = batches
        self._evaluations = evaluations
        self._auditing = auditing
        self._commands = commands

    def refused(self, event: Refused, session: Session, lease: Lease, now: float) -> None:
        """A session gave a lease back."""
        if event.blame:
            self._roster.failed(session, event.reason, now)
            self._say(f"failed a task: {event.reason}", session.id)
            self._fail(lease, session, event.reason, now)
        else:
            if self._auditing is not None and self._auditing.is_trial(lease):
                # Of trials there is always another: without a rest it would be one after the other.
                self._roster.failed(session, event.reason, now)
            elif lease.version == self._course.version:
                self._roster.rest(session, now, REST_AFTER_REFUSAL, event.reason)
            self._leases.end(lease, session, now, Blame(frozenset({session.id.worker})))
        if lease.kind == "centre":
            self._give_up_if_nobody_can(lease.version)

    def tried_in_vain(self, event: Arrived, session: Session, now: float) -> None:
        """A newcomer failed all of what it was tried with, which others have returned."""
        reason = event.failed[0][1]
        self._roster.failed(session, reason, now)
        self._say(f"failed a task: {reason}", session.id)

    def run_out(self, now: float) -> None:
        """Take back the leases whose deadline has passed."""
        for lease in self._leases.run_out(now):
            session = self._roster.sessions[lease.session]
            session.limit = max(1, min(session.limit, session.credit) // 2)
            since = max(lease.issued, session.last_result)
            session.pace.ran_out(lease.left * self._leases.steps[lease.kind], now - since)
            session.overran = lease.task
            self._roster.reweigh(session)
            reason = f"lease of task {lease.task} ran out after {now - lease.issued:.1f} s"
            self._say(reason, session.id)
            self._roster.lost(session, reason, now)
            self._fail(lease, session, reason, now, attempts=1)
            self._roster.note_room(session, now)

    def vanished(self, session: Session, reason: str, now: float) -> None:
        """A session is gone without a word of its own: so are its tasks."""
        if session.leases:
            self._roster.lost(session, f"it left: {reason}", now)
        for lease in list(session.leases.values()):
            self._fail(lease, session, f"its worker left: {reason}", now)

    def hand_back(self, session: Session, now: float) -> None:
        """A session leaves as one should: what it holds is free, and nobody is to blame; but who
        only comes and goes begins with less the next time."""
        if session.leases and (session.vouched_for or not session.proven):
            self._roster.lost(session, "it left without a result", now)
        for lease in list(session.leases.values()):
            self._leases.end(lease, session, now, NO_BLAME)

    def retry(self, now: float) -> None:
        """What was stuck for long enough is tried once more."""
        for _, work in self._works():
            if work.stuck:
                work.retry(lambda stuck: stuck.until <= now)

    def retry_with(self, worker: str) -> None:
        """A worker came: it is tried with what all the others failed."""
        for _, work in self._works():
            if work.stuck:
                work.retry(
                    lambda stuck: (
                        worker not in stuck.range.avoid and len(stuck.range.avoid) < MOST_TRIES
                    )
                )

    def give_up_old_centres(self) -> None:
        """No evaluation of an earlier version waits for what is stuck."""
        for evaluation in list(self._evaluations.under_way):
            if evaluation.version < self._course.version and evaluation.work.stuck:
                episode, stuck = next(iter(evaluation.work.stuck.items()))
                self._commands.append(
                    self._evaluations.give_up(evaluation, _line(EPISODE, episode, stuck))
                )

    def stuck(self) -> str:
        """What is stuck in the batch or evaluation that the run waits for; empty: nothing."""
        for kind, work in self._works():
            if work.stuck:
                unit, stuck = next(iter(work.stuck.items()))
                more = f" (and {len(work.stuck) - 1} more)" if len(work.stuck) > 1 else ""
                return f"{_line(kind, unit, stuck)}{more}; {_REMEDY}"
        return ""

    def _works(self) -> Iterator[tuple[str, Work]]:
        """What the run waits for, the most urgent first, and what its units are called."""
        yield DIRECTION, self._batches.open.work
        for evaluation in self._evaluations.under_way:
            yield EPISODE, evaluation.work
        yield DIRECTION, self._batches.next.work

    def _fail(
        self, lease: Lease, session: Session, reason: str, now: float, attempts: int = 0
    ) -> None:
        """End a lease that its worker failed; a unit that fails everywhere is kept back."""
        worker = frozenset({session.id.worker})
        self._leases.end(lease, session, now, Blame(worker, attempts, failures=1))
        tries = max(FEWEST_TRIES, min(len(self._roster.eligible), MOST_TRIES))
        stuck = lease.work.set_aside(lease.claim, tries, now + STUCK_SECONDS, reason)
        if stuck is not None:
            kind = DIRECTION if lease.kind == "members" else EPISODE
            line = _line(kind, stuck.range.first, stuck)
            self._say(f"{line}: {_REMEDY}")
            self.give_up_old_centres()

    def _give_up_if_nobody_can(self, version: int) -> None:
        evaluation = self._evaluations.of(version)
        if evaluation is None or version == self._course.version:
            return
        eligible = self._roster.eligible
        if any(eligible <= part.avoid for part in evaluation.work.unleased):
            self._commands.append(self._evaluations.give_up(evaluation, "nobody has it any more"))

    def _say(self, what: str, session: SessionId | None = None) -> None:
        self._commands.append(Happened(what, session))


_REMEDY = (
    f"it is tried again in {STUCK_SECONDS:.0f} s, or when another worker comes; "
    "mend what fails, or stop the run"
)


def _line(kind: str, unit: int, stuck: Stuck) -> str:
    failures, workers = stuck.range.failures, len(stuck.range.avoid)
    return (
        f"{kind} {unit} failed {failures} times on {workers} "
        f"worker{'s' * (workers != 1)}, the last time because {stuck.reason}"
    )
