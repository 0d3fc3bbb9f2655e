"""The pool's state machine: events and the time in, commands out, nothing else touched."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from coordinator.pool.batch import Batch
from coordinator.pool.batches import Batches
from coordinator.pool.centre import Evaluation
from coordinator.pool.course import Course
from coordinator.pool.dispatch import Dispatch
from coordinator.pool.evaluations import Evaluations
from coordinator.pool.events import (
    Arrived,
    CloseBatch,
    Command,
    Contribution,
    Deaf,
    EndRun,
    Event,
    Happened,
    Heard,
    Hearing,
    HeldLease,
    Joined,
    KeepResult,
    Kept,
    Left,
    Refused,
    Relaxed,
    SendAcknowledge,
    SessionId,
    StopAsked,
    Strained,
    Tick,
    Updated,
)
from coordinator.pool.keeping import Keeping, Useless
from coordinator.pool.leases import Leases
from coordinator.pool.ranges import NOBODY
from coordinator.pool.roster import LONGEST_REST, MOST_TASKS, Roster, Session
from coordinator.pool.work import Lease, Work
from protocol.messages import Outcome
from protocol.spec import RunSpec

SILENT_AFTER = 35.0
"""Seconds without a word after which a session counts as gone; idle workers speak every 10 s."""
SILENCE_CHECKED_EVERY = 5.0
ACKNOWLEDGE_AFTER = 2.0
"""Seconds that an acknowledgement waits for a task to ride on; who takes none is told at once."""
REST_AFTER_REFUSAL = 1.0
"""Seconds of rest for who gives back, at no fault, work that anybody should be able to do."""
GATHER_SECONDS = 0.2
"""After the first hello to a pool that goes on, before it leases what is free: it may be what the
others still hold, who hear of the new epoch in the same moment."""
HEARD_WITHIN = 15.0
"""Seconds in which all speak again after nobody was heard for a while: what they said meanwhile is
lost, and they say it again within 12.5 s."""
RETURN_WITHIN = 10.0
"""Seconds that the workers of a run which goes on have to come back, where its time is up."""


FOR_ALL = (Tick, Updated)
"""Events after which those who hold a task, too, are asked whether they have room for another, and
overdue leases are copied; others who hold one come back with its result."""


class Pool:
    """Who evaluates what, what counts, and when the next update is made.

    A deterministic function of the events and their times: no clock, socket, file or randomness.
    `handle` is the only way in. The open batch is batch `version`; while its update is being made
    (between `CloseBatch` and `Updated`) it is batch `version + 1`, evaluated one version early
    where the spec allows staleness.
    """

    def __init__(
        self,
        spec: RunSpec,
        version: int,
        now: float,
        episodes: int = 0,
        first_task: int = 1,
        unjudged: Sequence[int] | None = None,
        elapsed: float = 0.0,
        used: Sequence[tuple[int, int]] | None = None,
    ) -> None:
        """Go on from any version of a run. Then the results that were kept come as `Arrived`, in
        their order, before any session joins.

        `episodes` were used by the updates so far, `elapsed` seconds did the run take. `first_task`
        is beyond all task numbers of earlier epochs. `unjudged` are the versions, ascending and
        none beyond `version`, whose centre evaluation is still owed; None: that of `version`, where
        one is due, and no other. `used` are (first, count) of the directions that the last
        `max_staleness` updates used or dropped, so that others of their batches may still count
        (`coordinator.pool.past.used`); None: none may.
        """
        self.spec = spec
        self.started = now - elapsed
        self.episodes = episodes
        self._course = Course(version, gathers_until=math.inf if first_task > 1 else None)
        self._quorum = math.ceil(spec.pool.quorum * spec.directions - 1e-9)
        self._roster = Roster()
        self._leases = Leases(spec, first_task)
        self.sessions = self._roster.sessions
        self.leases = self._leases.out
        self._batches = Batches(spec, version, used)
        self._evaluations = Evaluations(spec)
        self._commands: list[Command] = []
        self._dispatch = Dispatch(
            spec,
            self._course,
            self._roster,
            self._leases,
            self._batches,
            self._evaluations,
            self._commands,
        )
        self._checked_silence = now
        self._acknowledged_at = now
        self._keeping = Keeping()
        self._patient_until = now + RETURN_WITHIN if elapsed else now
        if unjudged is None:
            self._begin_version(now)
        else:
            for owed in unjudged:
                self._evaluations.begin(owed)
            self._check_stop(now)

    def handle(self, event: Event, now: float) -> list[Command]:
        """What is to be done because of `event` at time `now` (seconds, never decreasing)."""
        if self.ended:
            if isinstance(event, Kept):
                self._kept(event)
        else:
            self._note(event, now)
            self._conclude_evaluations()
            self._maybe_close(now)
            if isinstance(event, FOR_ALL):
                self._dispatch.feed_waiting(self._roster.idle, now)
                self._dispatch.feed_waiting(self._roster.roomy, now)
            elif self._dispatch.has_offers():
                self._dispatch.feed_waiting(self._roster.idle, now)
        commands = self._commands[:]
        self._commands.clear()
        return commands

    def _note(self, event: Event, now: float) -> None:
        match event:
            case Arrived():
                self._arrived(event, now)
            case Kept():
                self._kept(event)
            case Tick():
                self._tick(now)
            case Heard():
                self._heard(event, now)
            case Joined():
                self._joined(event, now)
            case Left():
                self._left(event.session, event.reason, now)
            case Refused():
                self._refused(event, now)
            case Updated():
                self._updated(event, now)
            case Deaf():
                self._course.deaf = True
            case Hearing():
                self._hear_again(event.since, now)
            case Strained():
                self._course.strained = event.reason
            case Relaxed():
                self._course.strained = ""
            case StopAsked():
                self._end(self.version, reached=False, reason=event.reason)

    # What a person asks: who is here, how far is it, why is nothing happening?

    @property
    def version(self) -> int:
        """Of the parameters that members are evaluated at."""
        return self._course.version

    @property
    def updating(self) -> bool:
        """Whether the update of the open batch is being made."""
        return self._course.updating

    @property
    def ended(self) -> bool:
        """Whether the run is over."""
        return self._course.ended

    @property
    def open_index(self) -> int:
        """Index of the batch that the next update will close."""
        return self._course.open_index

    @property
    def workers(self) -> int:
        """Sessions of workers that are here."""
        return self._roster.workers

    @property
    def progress(self) -> tuple[int, int]:
        """(accepted, all) directions of the open batch."""
        batch = self._batches.next if self.updating else self._batches.open
        return batch.settled - len(batch.dropped), batch.work.size

    def quiet_because(self) -> str:
        """Why no worker is being fed right now; empty while work is out."""
        if self.ended:
            return "the run has ended"
        if not self.workers:
            return "no worker is here: give the join line to somebody"
        if self._course.strained:
            return f"nothing new is leased: {self._course.strained}"
        if self.leases:
            return ""
        if self.updating:
            return "the update is being made"
        if not self._roster.eligible:
            return "all workers are paused"
        if self._course.gathers_until is not None:
            return "the workers say what they still work on"
        return "all workers rest after failures; the log says which"

    # Sessions.

    def _joined(self, event: Joined, now: float) -> None:
        if self._course.gathers_until == math.inf:
            self._course.gathers_until = now + GATHER_SECONDS
        session = self.sessions.get(event.session)
        if session is None:
            session = self._roster.enter(
                event.session, event.credit, event.speed, now, event.stands_by
            )
            self._commands.append(Happened("joined", event.session))
        else:
            # It may have missed tasks meanwhile; what it still finishes counts all the same.
            named = set(event.held)
            for lease in list(session.leases.values()):
                if lease.named not in named:
                    self._end_lease(lease, now)
            session.heard = now
            self._roster.set_credit(session, event.credit)
            self._commands.append(Happened("joined again", event.session))
        if again := sum(self._take_up(session, held, now) for held in event.held):
            leases = "lease" if again == 1 else "leases"
            self._commands.append(Happened(f"{again} {leases} taken up again", event.session))
        self._dispatch.feed(session, now)

    def _left(self, id: SessionId, reason: str, now: float) -> None:
        session = self._roster.leave(id)
        if session is None:
            return
        for lease in list(session.leases.values()):
            self._end_lease(lease, now)
        self._commands.append(Happened(f"left: {reason}", id))

    def _heard(self, event: Heard, now: float) -> None:
        session = self.sessions.get(event.session)
        if session is None:
            return
        session.heard = now
        if event.credit is not None:
            self._roster.set_credit(session, event.credit)
            self._dispatch.feed(session, now)

    def _refused(self, event: Refused, now: float) -> None:
        lease = self.leases.get(event.task)
        session = self.sessions.get(event.session)
        if lease is None or lease.session != event.session or session is None:
            return
        session.heard = now
        if event.blame:
            session.failures += 1
            self._roster.rest(session, now + min(LONGEST_REST, 2.0 ** min(session.failures, 16)))
            self._commands.append(Happened(f"failed a task: {event.reason}", event.session))
        elif lease.version == self.version:
            self._roster.rest(session, max(session.rests_until, now + REST_AFTER_REFUSAL))
        self._end_lease(lease, now, avoid=frozenset({event.session.worker}))
        if lease.kind == "centre":
            self._give_up_if_nobody_can(lease.version)
        self._dispatch.feed(session, now)

    def _tick(self, now: float) -> None:
        if self._course.gathers_until is not None and now >= self._course.gathers_until:
            self._course.gathers_until = None
        self._roster.wake(now)
        if not self._course.deaf:
            self._run_out(now)
        if not self._course.deaf and now - self._checked_silence >= SILENCE_CHECKED_EVERY:
            self._checked_silence = now
            for session in self._roster.silent(now, SILENT_AFTER):
                self._left(session.id, f"silent for {now - session.heard:.0f} s", now)
        if now - self._acknowledged_at >= ACKNOWLEDGE_AFTER:
            self._acknowledged_at = now
            self._acknowledge_all()
        self._check_stop(now)

    def _hear_again(self, since: float, now: float) -> None:
        """Nobody was heard since then: that is no silence of theirs."""
        self._course.deaf = False
        self._leases.put_off(now - since, now + HEARD_WITHIN)
        for session in self.sessions.values():
            session.heard = now

    def _acknowledge_all(self) -> None:
        for session in self._roster.owed.values():
            while results := session.take_unacknowledged():
                self._commands.append(SendAcknowledge(session.id, results, "accepted"))
        self._roster.owed.clear()

    # Leases.

    def _run_out(self, now: float) -> None:
        """Take back the leases whose deadline has passed."""
        for lease in self._leases.run_out(now):
            session = self.sessions[lease.session]
            session.limit = max(1, min(session.limit, session.credit) // 2)
            since = max(lease.issued, session.last_result)
            session.pace.ran_out(lease.count * self._leases.steps(lease.kind), now - since)
            self._roster.reweigh(session)
            seconds = now - lease.issued
            self._commands.append(
                Happened(f"lease of task {lease.task} ran out after {seconds:.1f} s", session.id)
            )
            self._end_lease(lease, now, avoid=frozenset({session.id.worker}), attempts=1)
            self._roster.note_room(session, now)

    def _end_lease(
        self, lease: Lease, now: float, avoid: frozenset[str] = NOBODY, attempts: int = 0
    ) -> None:
        self._leases.end(lease, self.sessions.get(lease.session), now, avoid, attempts)

    def _take_up(self, session: Session, held: HeldLease, now: float) -> bool:
        """Lease to this session once more what it still works on: whether that was possible.

        What is not leased may count all the same when its result comes.
        """
        work = self._work_of(held)
        if work is None or session.room <= 0 or not self._leases.is_free(held.task):
            return False
        end = held.first + held.count
        claim = work.claim_exactly(held.first, end, session.id.worker)
        if claim is None:
            return False
        self._leases.issue(session, held.kind, held.version, work, claim, now, held.task)
        session.earned = max(session.earned, len(session.leases))
        return True

    def _work_of(self, held: HeldLease) -> Work | None:
        """What the lease is a part of, where its result would count."""
        if held.count <= 0 or held.first < 0 or held.version < 0:
            return None
        end = held.first + held.count
        if held.kind == "centre":
            evaluation = self._evaluations.of(held.version)
            return evaluation.work if evaluation is not None and evaluation.has(end) else None
        index = self._batches.index(held.first)
        if held.version > self.version or self._course.final is not None:
            return None
        if index - held.version > self.spec.pool.max_staleness:
            return None
        if index == self.version and not self.updating:
            return self._batches.open.work
        ahead = self._batches.next
        if index == self.version + 1 and held.count <= self._dispatch.room_ahead:
            return ahead.work
        return None

    # Results.

    def _arrived(self, event: Arrived, now: float) -> None:
        session = self.sessions.get(event.session)
        lease = self._leases.of(event)
        steps = int(event.lengths.sum())
        if session is not None:
            session.heard = now
            if lease is not None and lease.session == event.session:
                self._returned(session, lease, steps, now)
        if event.kind == "centre":
            outcome, reason = self._accept_centre(event)
        else:
            outcome, reason = self._accept_members(event, lease, steps)
        if outcome == "accepted":
            self._keep(event)
        else:
            self._answer_useless(Useless(event, outcome, reason))
        if lease is not None:
            self._end_lease(lease, now)
            if lease.session != event.session and (holder := self.sessions.get(lease.session)):
                self._roster.note_room(holder, now)
        if session is not None:
            self._dispatch.feed(session, now)

    def _keep(self, event: Arrived) -> None:
        """Ask for an accepted result to be made durable."""
        until = event.version
        if event.kind == "members":
            until = max(self._batches.index(event.first), self.open_index)
        self._keeping.add(event)
        self._commands.append(KeepResult(event, until))

    def _kept(self, event: Kept) -> None:
        """Acknowledge what is durable now, with the next task where one may come."""
        for id, name in event.results:
            session = self.sessions.get(id)
            if session is not None and session.credit > 0 and not self.ended:
                session.unacknowledged.append(name)
                self._roster.owed[id] = session
            else:
                self._commands.append(SendAcknowledge(id, (name,), "accepted"))
            for useless in self._keeping.kept(id, name):
                self._answer_useless(useless)

    def _answer_useless(self, useless: Useless) -> None:
        """Tell a worker that its result does not count, once what counts instead is safe."""
        if not self._keeping.holds_back(useless):
            event, outcome, reason = useless
            self._commands.append(SendAcknowledge(event.session, (event.name,), outcome, reason))

    def _returned(self, session: Session, lease: Lease, steps: int, now: float) -> None:
        """A result came in time: learn the session's speed, where its begin was seen."""
        duration = now - max(lease.issued, session.last_result)
        session.last_result = now
        session.limit = min(MOST_TASKS, session.limit + 1)
        session.failures = 0
        if lease.begun_before:
            return
        session.pace.observe(steps, duration)
        self._roster.reweigh(session)
        self._leases.took(duration)

    def _accept_centre(self, event: Arrived) -> tuple[Outcome, str]:
        evaluation = self._evaluations.of(event.version)
        if evaluation is None:
            return "late", "that evaluation is over"
        end = event.first + event.count
        if not evaluation.has(end):
            return "refused", "there are no such episodes"
        is_open = evaluation.work.is_open(event.first, end)
        if not is_open.any():
            return "duplicate", "another worker was first"
        for episode, reason in event.failed:
            if is_open[episode - event.first] and self._confirmed(evaluation.work, event, episode):
                self._give_up(evaluation, f"episode {episode} fails: {reason}")
                return "accepted", ""
        avoid = frozenset({event.session.worker})
        evaluation.record(event.first, event.returns, event.lengths, avoid)
        lengths = event.lengths[~np.isnan(event.returns)]
        if lengths.size:
            self._leases.saw_centre(int(lengths.sum()), lengths.size)
        return "accepted", ""

    def _accept_members(
        self, event: Arrived, lease: Lease | None, steps: int
    ) -> tuple[Outcome, str]:
        end = event.first + event.count
        index, last = self._batches.index(event.first), self._batches.index(end - 1)
        if index != last or index > self.version + 1 or event.version > self.version:
            return "refused", "that range was never leased"
        age = max(index, self.open_index) - event.version
        batch = self._batches.of(index)
        if batch is None or age > self.spec.pool.max_staleness:
            return "late", f"{age} versions old"
        if lease is not None and lease.claim.open and not event.failed:
            batch.work.settle(lease.claim)
            self._count(batch, event, event.count, steps)
            return "accepted", ""
        if not batch.work.is_open(event.first, end).all():
            # Observation sums are of the whole result: it counts as a whole or not at all.
            return "duplicate", "another worker was first"
        self._drop_failing(batch, event)
        valid = ~np.isnan(event.returns[:, 0])
        taken = batch.work.accept(event.first, valid, frozenset({event.session.worker}))
        counted = int(np.count_nonzero(taken))
        if counted:
            self._count(batch, event, counted, int(event.lengths[taken].sum()))
        return "accepted", ""

    def _count(self, batch: Batch, event: Arrived, counted: int, steps: int) -> None:
        """Keep accepted returns, of so many directions and steps, for the next update."""
        contribution = Contribution(
            session=event.session,
            version=event.version,
            first=event.first,
            returns=event.returns,
            lengths=event.lengths,
            observed=event.observed,
        )
        members = 2 * counted
        self._batches.count(batch, contribution, members, batch.index < self.open_index)
        self._leases.saw_members(steps, members)
        session = self.sessions.get(event.session)
        if session is not None:
            session.members += members

    def _drop_failing(self, batch: Batch, event: Arrived) -> None:
        """Give up the directions of the open batch whose failure this result confirms."""
        if batch.index < self.open_index:
            return
        for direction, reason in event.failed:
            if self._confirmed(batch.work, event, direction):
                batch.drop(direction)
                self._commands.append(
                    Happened(f"direction {direction} dropped, its episode fails: {reason}")
                )

    def _confirmed(self, work: Work, event: Arrived, unit: int) -> bool:
        worker = event.session.worker
        # Where nobody is here, as before anybody is back, others may still come.
        alone = self._roster.eligible == {worker}
        return work.fail(unit, worker, event.task, alone)

    # Updates.

    def _maybe_close(self, now: float) -> None:
        """Close the open batch where all is here, or the quorum and the rest had its time."""
        if self.updating or self.ended or self._course.final is not None:
            return
        batch = self._batches.open
        if batch.work.missing and not self._may_leave_the_rest(batch, now):
            return
        contributions, members = self._batches.close()
        self.episodes += members * self.spec.environment.episodes
        self._course.updating = True
        self._commands.append(CloseBatch(self.version, contributions, tuple(sorted(batch.dropped))))

    def _may_leave_the_rest(self, batch: Batch, now: float) -> bool:
        """Whether the quorum is here and what is missing has had the time that was expected."""
        return (
            batch.settled >= self._quorum
            and not batch.work.unleased.unawaited
            and not batch.work.expects(now)
        )

    def _updated(self, event: Updated, now: float) -> None:
        self._course.version = event.version
        self._course.updating = False
        self._batches.reach(self.version)
        self._begin_version(now)

    def _begin_version(self, now: float) -> None:
        """Ask for the centre evaluation of a new version where due, and see if it is the last."""
        if self._evaluations.is_due(self.version):
            self._evaluations.begin(self.version)
        self._check_stop(now)

    def _check_stop(self, now: float) -> None:
        """After the last update only the centre of the last version is evaluated, in full."""
        stop = self.spec.stop
        if self._course.final is not None or self.updating or self.ended:
            return
        if stop.updates is not None and self.version >= stop.updates:
            self._course.final = f"{self.version} updates are made"
        elif stop.episodes is not None and self.episodes >= stop.episodes:
            self._course.final = f"{self.episodes:,} episodes are used"
        elif stop.seconds is not None and now - self.started >= stop.seconds:
            if not self.workers and now < self._patient_until:
                return
            self._course.final = f"{stop.seconds:g} s have passed"
            if not self.workers:
                self._end(
                    self.version, reached=False, reason=f"{self._course.final}, no worker is here"
                )
                return
        else:
            return
        if not self.spec.centre.evaluate_every:
            self._end(self.version, reached=False, reason=self._course.final)
            return
        if self._evaluations.of(self.version) is None:
            self._evaluations.begin(self.version)
        self._evaluations.under_way[-1].make_full()

    # The centre.

    def _give_up_if_nobody_can(self, version: int) -> None:
        evaluation = self._evaluations.of(version)
        if evaluation is None or version == self.version:
            return
        eligible = self._roster.eligible
        if any(eligible <= part.avoid for part in evaluation.work.unleased):
            self._give_up(evaluation, "nobody has it any more")

    def _give_up(self, evaluation: Evaluation, reason: str) -> None:
        self._evaluations.end(evaluation)
        self._commands.append(
            Happened(f"centre evaluation of version {evaluation.version} given up: {reason}")
        )

    def _conclude_evaluations(self) -> None:
        """Judge what is finished, and see whether the run is over with it."""
        while not self.ended and (judged := self._evaluations.take_finished()):
            self._commands.append(judged)
            if judged.reached:
                self._end(judged.version, reached=True, reason="the target is reached")
        if self._course.final is not None and not self._evaluations.under_way:
            self._end(self.version, reached=False, reason=self._course.final)

    def _end(self, version: int, reached: bool, reason: str) -> None:
        if self.ended:
            return
        self._acknowledge_all()
        self._course.ended = True
        self._commands.append(EndRun(version, reached, reason))
