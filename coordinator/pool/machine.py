"""The pool's state machine: events and the time in, commands out, nothing else touched."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random

from coordinator.pool.acceptance import BEGINNING, Acceptance, Standing
from coordinator.pool.auditing import Auditing
from coordinator.pool.batch import Batch
from coordinator.pool.batches import Batches
from coordinator.pool.bidding import Host
from coordinator.pool.course import Course
from coordinator.pool.dispatch import Dispatch
from coordinator.pool.evaluations import Evaluations
from coordinator.pool.events import (
    Arrived,
    Audit,
    Ban,
    CloseBatch,
    Command,
    Deaf,
    EndRun,
    Event,
    Happened,
    Heard,
    Hearing,
    HeldLease,
    Joined,
    Kept,
    Left,
    Paused,
    Refused,
    Relaxed,
    Rely,
    Resumed,
    SendAcknowledge,
    SessionId,
    StopAsked,
    Strained,
    Tick,
    Unban,
    Updated,
)
from coordinator.pool.failures import Failures
from coordinator.pool.intake import Intake
from coordinator.pool.leases import Leases
from coordinator.pool.offers import Offers
from coordinator.pool.quiet import quiet_because
from coordinator.pool.roster import Roster, Session
from coordinator.pool.sentences import Sentences
from coordinator.pool.staleness import Staleness
from coordinator.pool.work import Lease, Work
from coordinator.trust import Trust
from protocol.batches import Layout
from protocol.spec import RunSpec

SILENT_AFTER = 35.0
"""Seconds without a word after which a session counts as gone; idle workers speak every 10 s."""
SILENCE_CHECKED_EVERY = 5.0
ACKNOWLEDGE_AFTER = 2.0
"""Seconds that an acknowledgement waits for a task to ride on; who takes none is told at once."""
GATHER_SECONDS = 0.2
"""After the first hello to a pool that goes on, before it leases what is free: it may be what the
others still hold, who hear of the new epoch in the same moment."""
HEARD_WITHIN = 15.0
"""Seconds in which all speak again after nobody was heard for a while: what they said meanwhile is
lost, and they say it again within 12.5 s."""
GOODBYE = "left"
"""The reason of who leaves as one should; all others vanish."""
RETURN_WITHIN = 10.0
"""Seconds that the workers of a run which goes on have to come back, where its time is up."""
FEW = 64
"""Directions whose steps are summed up faster one by one than as an array."""
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
        steps: int = 0,
        first_task: int = 1,
        unjudged: Sequence[int] | None = None,
        elapsed: float = 0.0,
        used: Sequence[tuple[int, int]] | None = None,
        standing: Standing = BEGINNING,
        trust: Trust | None = None,
        layout: Layout | None = None,
    ) -> None:
        """Go on from any version of a run. Then the results that were kept come as `Arrived`, in
        their order, before any session joins.

        `episodes` and `steps` were used by the updates so far, `elapsed` seconds did the run take.
        `first_task` is beyond all task numbers of earlier epochs. `unjudged` are the versions,
        ascending and none beyond `version`, whose centre evaluation is still owed; None: that of
        `version`, where one is due, and no other. `used` are (first, count) of the directions that
        the last `max_staleness` updates used or dropped, so that others of their batches may still
        count (`coordinator.pool.past.used`); None: none may. `standing`: of the candidate and what
        is accepted, where the strategy needs acceptance (`coordinator.pool.acceptance.standing`).
        `trust`: what is known of workers, and what draws who is audited, which no worker may know;
        by default nothing, and the same numbers in each pool. `spec`: with the settings that hold
        at `version`; `layout`: which directions the batches have, where not all are of one size.
        """
        self.spec = spec
        self.started = now - elapsed
        self.episodes, self.steps = episodes, steps
        self._course = Course(version, gathers_until=math.inf if first_task > 1 else None)
        self._roster = Roster()
        self._leases = Leases(spec, first_task)
        self.sessions = self._roster.sessions
        self.leases = self._leases.out
        self._batches = Batches(spec, version, used, layout)
        self._evaluations = Evaluations(spec)
        self._acceptance = Acceptance(spec.needs_acceptance, version, standing)
        self._commands: list[Command] = []
        self.trust = trust or Trust(spec.pool.audit_share, Random(0))
        self._sentences = Sentences(
            self._course,
            self._roster,
            self._leases,
            self._batches,
            self._evaluations,
            self.trust,
            self._commands,
        )
        self._auditing: Auditing | None = None
        if spec.pool.audit_share:
            self._auditing = Auditing(
                spec,
                self.trust,
                self._course,
                self._roster,
                self._leases,
                self._batches,
                self._sentences,
                self._commands,
            )
        self._offers = Offers(
            spec,
            self._course,
            self._roster,
            self._leases,
            self._batches,
            self._evaluations,
            self._acceptance,
        )
        self._dispatch = Dispatch(
            spec,
            self._course,
            self._roster,
            self._leases,
            self._batches,
            self._evaluations,
            self._offers,
            self._auditing,
            self._commands,
        )
        self._host = Host(
            self.trust,
            self._roster,
            self._dispatch,
            self._sentences,
            self._auditing,
            self._commands,
        )
        self._failures = Failures(
            self._course,
            self._roster,
            self._leases,
            self._batches,
            self._evaluations,
            self._auditing,
            self._commands,
        )
        self._intake = Intake(
            spec,
            self._course,
            self._roster,
            self._leases,
            self._batches,
            self._evaluations,
            self.trust,
            self._auditing,
            self._commands,
        )
        self._staleness = Staleness(spec)
        self._now = now
        self._checked_silence = now
        self._acknowledged_at = now
        self._patient_until = now + RETURN_WITHIN if elapsed else now
        if unjudged is None:
            self._begin_version(now)
        else:
            for owed in unjudged:
                self._evaluations.begin(owed)
            self._check_stop(now)
            self._judge_candidate(now)

    def handle(self, event: Event, now: float) -> list[Command]:
        """What is to be done because of `event` at time `now` (seconds, never decreasing)."""
        self._now = now
        if self._course.ended:
            if isinstance(event, Kept):
                self._intake.kept(event, now)
        else:
            # Nothing is free and no evaluation over because of a usual result, or a sign of life:
            # who waits is fed with the next tick at the latest.
            if isinstance(event, Arrived):
                self._arrived(event, now)
                usual = event.kind == "members" and not event.failed and event.part is None
            else:
                self._note(event, now)
                usual = isinstance(event, Heard)
            if not usual:
                self._conclude_evaluations(now)
            batches = self._batches
            if batches.open.work.missing <= batches.spare:
                self._maybe_close(now)
            if not usual:
                self._feed_others(event, now)
        commands = self._commands[:]
        self._commands.clear()
        return commands

    def _feed_others(self, event: Event, now: float) -> None:
        """Offer work, and what is to be copied, to those whom the event does not come from."""
        dispatch, roster = self._dispatch, self._roster
        if isinstance(event, FOR_ALL):
            if dispatch.has_offers():
                dispatch.feed_idle(now)
                dispatch.feed_waiting(roster.roomy, now)
            dispatch.insure(now)
        elif roster.waits and dispatch.has_offers():
            dispatch.feed_idle(now)

    def _note(self, event: Event, now: float) -> None:
        match event:
            case Kept():
                self._intake.kept(event, now)
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
            case Paused():
                self._course.paused = event.reason
            case Resumed():
                self._course.paused = ""
            case Ban() | Unban() | Rely() | Audit():
                self._host.bids(event, now)
            case StopAsked():
                self._end_here(event.reason)

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
    def paused(self) -> bool:
        """Whether the host wants nothing new leased."""
        return bool(self._course.paused)

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
        batch = self.open_batch
        return batch.settled - len(batch.dropped), batch.work.size

    @property
    def open_batch(self) -> Batch:
        """The batch that the next update but the one which is being made will close."""
        return self._batches.next if self.updating else self._batches.open

    @property
    def early(self) -> int:
        """Directions of the batch after the open one that are begun already."""
        return 0 if self.updating else self._batches.next.begun

    @property
    def audited(self) -> int:
        """Directions that were evaluated for no update, to check what others return; without those
        that newcomers were tried with, who would have had nothing to do."""
        return self._auditing.spent if self._auditing is not None else 0

    def quiet_because(self) -> str:
        """Why no worker is being fed right now; empty while work is out."""
        return quiet_because(self._course, self._roster, self._leases, self._failures, self._now)

    # Sessions.

    def _joined(self, event: Joined, now: float) -> None:
        if self._course.gathers_until == math.inf:
            self._course.gathers_until = now + GATHER_SECONDS
        session = self.sessions.get(event.session)
        if session is None:
            session = self._roster.enter(
                event.session, event.credit, event.speed, now, event.stands_by
            )
            if self._auditing is not None and not event.stands_by:
                self._auditing.was_there(event.session.worker, now)
            self._commands.append(Happened("joined", event.session))
        else:
            # It may have missed tasks meanwhile; what it still finishes counts all the same.
            named = set(event.held)
            missed = [lease for lease in session.leases.values() if lease.named not in named]
            for lease in missed:
                self._leases.end(lease, session, now)
            if missed:
                self._roster.lost(session, "it came again without its tasks", now)
            session.heard = now
            self._roster.set_credit(session, event.credit)
            self._commands.append(Happened("joined again", event.session))
        session.lanes = event.lanes
        self._identify(session, event.numeric)
        self._host.refuses(session, event.credit, now)
        if again := sum(self._take_up(session, held, now) for held in event.held):
            self._roster.found(session)
            leases = "lease" if again == 1 else "leases"
            self._commands.append(Happened(f"{again} {leases} taken up again", event.session))
        self._failures.retry_with(session.id.worker)
        self._dispatch.feed(session, now)

    def _left(self, id: SessionId, reason: str, now: float) -> None:
        session = self.sessions.get(id)
        if session is None:
            return
        if reason == GOODBYE:
            self._failures.hand_back(session, now)
        else:
            self._failures.vanished(session, reason, now)
        if self._auditing is not None and not session.stands_by:
            self._auditing.classes.went(session)
        self._host.left(id)
        self._roster.leave(session, now)
        self._commands.append(Happened("left" if reason == GOODBYE else f"gone: {reason}", id))

    def _heard(self, event: Heard, now: float) -> None:
        session = self.sessions.get(event.session)
        if session is None:
            return
        session.heard = now
        if event.credit is not None and not self._host.refuses(session, event.credit, now):
            self._roster.set_credit(session, event.credit)
            self._dispatch.feed(session, now)

    def _identify(self, session: Session, numeric: bytes) -> None:
        """The session says what its numeric class is."""
        known = session.numeric
        session.numeric = numeric
        if self._auditing is not None and not session.stands_by:
            self._auditing.classes.moved(session, known)

    def _refused(self, event: Refused, now: float) -> None:
        lease = self.leases.get(event.task)
        session = self.sessions.get(event.session)
        if lease is None or lease.session != event.session or session is None:
            return
        session.heard = now
        self._failures.refused(event, session, lease, now)
        self._dispatch.feed(session, now)

    def _tick(self, now: float) -> None:
        if self._course.gathers_until is not None and now >= self._course.gathers_until:
            self._course.gathers_until = None
        self._roster.wake(now)
        self._batches.look_again()
        self._failures.retry(now)
        if self._auditing is not None:
            self._auditing.look(now)
            self._sentences.carry_out(now)
        if not self._course.deaf:
            self._failures.run_out(now)
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
            while session.unacknowledged:
                results = session.take_unacknowledged()
                self._commands.append(SendAcknowledge(session.id, results, "accepted"))
        self._roster.owed.clear()

    # Leases.

    def _take_up(self, session: Session, held: HeldLease, now: float) -> bool:
        """Lease to this session once more what it still works on: whether that was possible.

        What is not leased may count all the same when its result comes.
        """
        work = self._work_of(held)
        if work is None or session.room <= 0 or not self._leases.is_free(held.task):
            return False
        claim = work.claim_again(held.first, held.first + held.count, session.id.worker)
        if claim is None:
            return False
        self._leases.issue(session, held.kind, held.version, work, claim, now, held)
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
        if index == self.version + 1 and held.count <= self._offers.room_ahead:
            return ahead.work
        return None

    # Results.

    def _arrived(self, event: Arrived, now: float) -> None:
        id, lengths, auditing = event.session, event.lengths, self._auditing
        session = self.sessions.get(id)
        lease = self._leases.of(event)
        if session is not None:
            session.heard = now
            if event.task == session.overran:
                session.overran = 0
                session.last_result = now  # only now does it begin with what it was given since
        few = event.kind == "members" and len(lengths) <= FEW
        steps = sum(lengths.ravel().tolist()) if few else int(lengths.sum())
        if auditing is not None and lease is not None:
            auditing.was_there(id.worker, now)
        counts = self._intake.take(event, lease, session, steps)
        if counts and session is not None:
            session.merit += 1
        if lease is not None:
            self._came_back(event, lease, session, steps, now)
        elif counts and session is not None:
            self._roster.found(session)
        if auditing is not None:
            self._sentences.carry_out(now)
        if session is not None:
            self._dispatch.feed(session, now)

    def _came_back(
        self, event: Arrived, lease: Lease, session: Session | None, steps: int, now: float
    ) -> None:
        """A lease got its result of so many steps, or a part of that, from a session, if it is
        here; the last one ends it."""
        if session is not None and event.session == lease.session:
            holder, own = session, True
        else:
            holder, own = self.sessions[lease.session], False
        leases, roster = self._leases, self._roster
        count = len(event.returns)
        fresh = lease.came(event.first, event.first + count)
        if own and fresh:
            self._learn(lease, holder, steps * fresh / count, now)
        if fresh < lease.count and lease.left:
            if fresh:
                leases.progressed(lease, holder, now)
            return
        auditing = self._auditing
        if own and auditing is not None and auditing.brought_nothing(event, lease):
            self._failures.tried_in_vain(event, holder, now)
        elif own:
            if not holder.proven:
                self._dispatch.first_returned(lease)
            roster.returned(holder, auditing is None or auditing.is_known(holder.id.worker))
            if not lease.begun_before:
                leases.took(lease, lease.spent, now)
        leases.end(lease, holder, now)
        if not own:
            roster.note_room(holder, now)

    def _learn(self, lease: Lease, session: Session, steps: float, now: float) -> None:
        """So many steps came in time: learn the session's speed, where their begin was seen."""
        began = lease.issued
        if session.last_result > began:
            began = session.last_result
        seconds = now - began
        session.last_result = now
        if lease.begun_before and lease.timed <= lease.issued:
            return
        if session.lanes:
            steps *= self._leases.filled(lease, session)
        session.pace.observe(steps, seconds)
        self._roster.reweigh(session)
        lease.spent += seconds

    # Updates.

    def _maybe_close(self, now: float) -> None:
        """Close the open batch, whose quorum is here, where all is or the rest had its time."""
        course = self._course
        if course.updating or course.ended or course.final is not None or self._acceptance.awaits:
            return
        batch = self._batches.open
        if batch.work.missing and not self._may_leave_the_rest(batch, now):
            return
        closed = self._batches.close()
        self.episodes += closed.members * self.spec.environment.episodes
        self.steps += closed.steps
        if self._auditing is not None:
            self._auditing.closes(self.version, closed.contributions)
        course.close(now)
        dropped = tuple(sorted(batch.dropped))
        self._commands.append(CloseBatch(self.version, closed.contributions, dropped))
        if said := self._staleness.closes(closed.stale, closed.members, now):
            self._commands.append(said)

    def _may_leave_the_rest(self, batch: Batch, now: float) -> bool:
        """Whether what is missing beyond the quorum has had the time that it is given."""
        if not self.spec.pool.patience:
            return True
        return not batch.work.unleased.unawaited and not batch.work.expects(now)

    def _updated(self, event: Updated, now: float) -> None:
        if event.amended is not None and event.layout is not None:
            self._amend(event.amended, event.layout)
        self._acceptance.reach(event.version, self._course.reverts)
        self._course.reach(event.version, now)
        self._batches.reach(self.version)
        self._failures.give_up_old_centres()
        self._begin_version(now)

    def _amend(self, spec: RunSpec, layout: Layout) -> None:
        """These settings hold from now on."""
        self.spec = spec
        self._batches.amend(spec, layout)
        for part in (
            self._leases,
            self._offers,
            self._dispatch,
            self._evaluations,
            self._staleness,
        ):
            part.amend(spec)
        if self._auditing is not None:
            self._auditing.amend(spec)

    def _begin_version(self, now: float) -> None:
        """Ask for the centre evaluation of a new version where due, and see if it is the last."""
        if self._evaluations.is_due(self.version):
            self._evaluations.begin(self.version)
        if self._course.final is not None:
            self._evaluate_in_full()
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
        elif stop.steps is not None and self.steps >= stop.steps:
            self._course.final = f"{self.steps:,} steps are used"
        elif stop.seconds is not None and now - self.started >= stop.seconds:
            if not self.workers and now < self._patient_until:
                return
            self._course.final = f"{stop.seconds:g} s have passed"
            if not self.workers:
                self._end_here(f"{self._course.final}, no worker is here")
                return
        else:
            return
        if not self.spec.centre.evaluate_every:
            self._end_here(self._course.final)
            return
        self._evaluate_in_full()

    def _evaluate_in_full(self) -> None:
        """The run ends with the current version, or returns to the accepted one after it."""
        if self._evaluations.of(self.version) is None:
            self._evaluations.begin(self.version)
        self._evaluations.under_way[-1].make_full()

    # The end.

    def _conclude_evaluations(self, now: float) -> None:
        """Judge what is finished, and see whether a candidate or the run is over with it."""
        while (
            not self._course.ended
            and self._is_vouched_for(now)
            and (judged := self._evaluations.take_finished())
        ):
            self._commands.append(judged)
            self._acceptance.judge(judged)
            if judged.reached:
                self._end(judged.version, reached=True, reason="the target is reached")
        self._judge_candidate(now)
        course = self._course
        if course.final is not None and not self._evaluations.under_way and not course.updating:
            self._end_here(course.final)

    def _is_vouched_for(self, now: float) -> bool:
        """Whether the finished evaluation may be judged: one that ends the run, is the best or
        decides on a candidate is worth a lie."""
        evaluation, auditing = self._evaluations.finished, self._auditing
        if auditing is None or evaluation is None:
            return True
        matters = evaluation.mean > self._evaluations.best or self._acceptance.awaits
        if not matters and not evaluation.reached:
            return True
        return auditing.centres.may_be_judged(evaluation.version, evaluation.reached, now)

    def _judge_candidate(self, now: float) -> None:
        """Have a candidate that is no better than what is accepted reverted."""
        course, acceptance = self._course, self._acceptance
        if course.updating or course.ended:
            return
        if acceptance.awaits and self._evaluations.of(self.version) is None:
            acceptance.give_up()
        if acceptance.rejected:
            self._batches.close()
            course.close(now, reverts=True)
            self._commands.append(CloseBatch(self.version, (), (), reverts=True))

    def _end_here(self, reason: str) -> None:
        """The run ends without having reached anything, and returns what is accepted."""
        self._end(self._acceptance.accepted_version, reached=False, reason=reason)

    def _end(self, version: int, reached: bool, reason: str) -> None:
        if self.ended:
            return
        self._acknowledge_all()
        self._course.ended = True
        self._commands.append(EndRun(version, reached, reason))
