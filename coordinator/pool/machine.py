"""The pool's state machine: events and the time in, commands out, nothing else touched."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np

from coordinator.pool.batch import Batch
from coordinator.pool.centre import Evaluation
from coordinator.pool.events import (
    Arrived,
    CentreJudged,
    CloseBatch,
    Command,
    Contribution,
    EndRun,
    Event,
    Happened,
    Heard,
    Joined,
    Kind,
    Left,
    Refused,
    SendAcknowledge,
    SendTask,
    SessionId,
    StopAsked,
    Tick,
    Updated,
)
from coordinator.pool.ranges import NOBODY
from coordinator.pool.roster import LONGEST_REST, MOST_TASKS, Roster, Session
from coordinator.pool.sizing import PATIENCE, Durations, lease_seconds, task_size
from coordinator.pool.work import Claim, Lease, Work
from protocol.messages import MAX_TASK_DIRECTIONS
from protocol.spec import RunSpec

Outcome = Literal["accepted", "late", "duplicate", "refused"]

SILENT_AFTER = 35.0
"""Seconds without a word after which a session counts as gone; idle workers speak every 10 s."""
SILENCE_CHECKED_EVERY = 5.0
ACKNOWLEDGE_AFTER = 0.5
"""Seconds that an acknowledgement waits for a task to ride on."""
ACKNOWLEDGED_AT_ONCE = 256
"""Results that one message acknowledges at most."""
REST_AFTER_REFUSAL = 1.0
"""Seconds of rest for who gives back, at no fault, work that anybody should be able to do."""
FIRST_LENGTH = 100.0
"""Steps of an episode assumed before any was seen."""
FRUITLESS_OFFERS = 4
"""Waiting sessions that may turn an offer down before the next event; bounds an event's cost."""


class Offer(NamedTuple):
    """Free units that may be leased now, evaluated at `version`, `most` of them to one session."""

    kind: Kind
    version: int
    work: Work
    most: int = MAX_TASK_DIRECTIONS


class Pool:
    """Who evaluates what, what counts, and when the next update is made.

    A deterministic function of the events and their times: no clock, socket, file or randomness.
    `handle` is the only way in. The open batch is batch `version`; while its update is being made
    (between `CloseBatch` and `Updated`) it is batch `version + 1`, evaluated one version early
    where the spec allows staleness.
    """

    def __init__(
        self, spec: RunSpec, version: int, now: float, episodes: int = 0, first_task: int = 1
    ) -> None:
        self.spec = spec
        self.version = version
        self.started = now
        self.episodes = episodes
        self.updating = False
        self.ended = False
        self.leases: dict[int, Lease] = {}
        self._roster = Roster()
        self._batches: dict[int, Batch] = {}
        self._late: list[Contribution] = []
        self._evaluations: list[Evaluation] = []
        self._final: str | None = None
        self._deadlines: list[tuple[float, int]] = []
        self._next_task = first_task
        self._length: float | None = None
        self._centre_length: float | None = None
        self._durations = Durations()
        self._checked_silence = now
        self._acknowledged_at = now
        self._commands: list[Command] = []
        self._begin_version(now)

    def handle(self, event: Event, now: float) -> list[Command]:
        """What is to be done because of `event` at time `now` (seconds, never decreasing)."""
        if not self.ended:
            self._note(event, now)
            self._conclude_evaluations()
            self._maybe_close(now)
            self._feed_hungry(now)
        commands, self._commands = self._commands, []
        return commands

    def _note(self, event: Event, now: float) -> None:
        match event:
            case Arrived():
                self._arrived(event, now)
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
            case StopAsked():
                self._end(self.version, reached=False, reason=event.reason)

    # What a person asks: who is here, how far is it, why is nothing happening?

    @property
    def sessions(self) -> dict[SessionId, Session]:
        """The sessions that are here; not to be changed."""
        return self._roster.sessions

    @property
    def open_index(self) -> int:
        """Index of the batch that the next update will close."""
        return self.version + self.updating

    @property
    def progress(self) -> tuple[int, int]:
        """(accepted, all) directions of the open batch."""
        batch = self._batch(self.open_index)
        return batch.settled - len(batch.dropped), batch.work.size

    def quiet_because(self) -> str:
        """Why no worker is being fed right now; empty while work is out."""
        if self.ended:
            return "the run has ended"
        if not self.sessions:
            return "no worker is here: give the join line to somebody"
        if self.leases:
            return ""
        if self.updating:
            return "the update is being made"
        if not self._roster.eligible:
            return "all workers are paused"
        return "all workers rest after failures; the log says which"

    # Sessions.

    def _joined(self, event: Joined, now: float) -> None:
        session = self.sessions.get(event.session)
        if session is None:
            session = self._roster.enter(event.session, event.credit, event.speed, now)
            self._commands.append(Happened("joined", event.session))
        else:
            # It may have missed tasks meanwhile; what it still finishes counts all the same.
            for lease in list(session.leases.values()):
                self._end_lease(lease, now)
            session.heard = now
            self._roster.set_credit(session, event.credit)
            self._commands.append(Happened("joined again", event.session))
        self._feed(session, now)

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
            self._feed(session, now)

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
        self._feed(session, now)

    def _tick(self, now: float) -> None:
        self._roster.wake(now)
        self._run_out(now)
        if now - self._checked_silence >= SILENCE_CHECKED_EVERY:
            self._checked_silence = now
            for session in self._roster.silent(now, SILENT_AFTER):
                self._left(session.id, f"silent for {now - session.heard:.0f} s", now)
        if now - self._acknowledged_at >= ACKNOWLEDGE_AFTER:
            self._acknowledged_at = now
            self._acknowledge_all()
        self._check_stop(now)

    def _acknowledge_all(self) -> None:
        for session in self._roster.owed.values():
            while tasks := self._acknowledged(session):
                self._commands.append(SendAcknowledge(session.id, tasks, "accepted"))
        self._roster.owed.clear()

    @staticmethod
    def _acknowledged(session: Session) -> tuple[int, ...]:
        """Take the accepted results that the session is to be told of."""
        tasks = tuple(session.unacknowledged[:ACKNOWLEDGED_AT_ONCE])
        del session.unacknowledged[:ACKNOWLEDGED_AT_ONCE]
        return tasks

    # Leases.

    def _run_out(self, now: float) -> None:
        """Take back the leases whose deadline has passed."""
        while self._deadlines and self._deadlines[0][0] <= now:
            _, task = heapq.heappop(self._deadlines)
            lease = self.leases.get(task)
            if lease is None:
                continue
            session = self.sessions[lease.session]
            session.limit = max(1, min(session.limit, session.credit) // 2)
            since = max(lease.issued, session.last_result)
            session.pace.ran_out(lease.count * self._steps(lease.kind), now - since)
            self._roster.reweigh(session)
            seconds = now - lease.issued
            self._commands.append(
                Happened(f"lease of task {task} ran out after {seconds:.1f} s", lease.session)
            )
            self._end_lease(lease, now, avoid=frozenset({lease.session.worker}), attempts=1)

    def _end_lease(
        self, lease: Lease, now: float, avoid: frozenset[str] = NOBODY, attempts: int = 0
    ) -> None:
        """What of the lease is still open may be leased again, unless a copy of it is out."""
        del self.leases[lease.task]
        session = self.sessions.get(lease.session)
        if session is not None:
            del session.leases[lease.task]
            self._roster.note_hunger(session, now)
        lease.work.leave(lease, avoid, attempts)

    def _feed_hungry(self, now: float) -> None:
        """Offer work to those who wait, the longest first, while there is some."""
        fruitless = 0
        hungry = self._roster.hungry
        for _ in range(len(hungry)):
            if fruitless == FRUITLESS_OFFERS or not self._has_work(now):
                return
            session = next(iter(hungry.values()))
            fruitless = 0 if self._feed(session, now) else fruitless + 1

    def _feed(self, session: Session, now: float) -> bool:
        """Lease to this session as much as it has room for and is its share: whether it got any."""
        fed = False
        while (
            not self.ended
            and session.spare > 0
            and now >= session.rests_until
            and self._lease_something(session, now)
        ):
            fed = True
        self._roster.note_hunger(session, now)
        return fed

    def _lease_something(self, session: Session, now: float) -> bool:
        """The most useful first; where all is leased, a copy of what is overdue."""
        for offer in self._offers():
            if self._lease_part(session, offer, now):
                return True
        return any(self._lease_overdue(session, work, now) for work in self._awaited())

    def _has_work(self, now: float) -> bool:
        return any(True for _ in self._offers()) or any(
            work.has_overdue(now) for work in self._awaited()
        )

    def _offers(self) -> Iterator[Offer]:
        """What is free, the most useful first: what the run waits for, then what it will need."""
        wanted = self._members_wanted()
        for evaluation in self._evaluations:
            if evaluation.work.unleased.total and not (
                wanted and evaluation.version == self.version
            ):
                yield Offer("centre", evaluation.version, evaluation.work)
        if not wanted:
            return
        if not self.updating:
            work = self._batch(self.version).work
            if work.unleased.total:
                yield Offer("members", self.version, work)
        for evaluation in self._evaluations[-1:]:
            if evaluation.work.unleased.total and evaluation.version == self.version:
                yield Offer("centre", self.version, evaluation.work)
        if self.spec.pool.max_staleness:
            ahead = self._batch(self.version + 1)
            room = min(ahead.room_ahead(self.spec.pool.stale_share), MAX_TASK_DIRECTIONS)
            if room > 0 and ahead.work.unleased.total:
                yield Offer("members", self.version, ahead.work, room)

    def _awaited(self) -> Iterator[Work]:
        """What has no free unit any more and holds the run up."""
        if not self.updating and self._final is None:
            work = self._batch(self.version).work
            if not work.unleased.total:
                yield work
        for evaluation in self._evaluations:
            if not evaluation.work.unleased.total:
                yield evaluation.work

    def _members_wanted(self) -> bool:
        """No members are leased after the last update, nor while a centre evaluation is so far
        behind that workers are about to forget its version."""
        if self._final is not None:
            return False
        oldest = self._evaluations[0].version if self._evaluations else self.version
        kept = self.spec.versions_kept - 1 - self.spec.pool.max_staleness
        return self.version - oldest < kept

    def _lease_part(self, session: Session, offer: Offer, now: float) -> bool:
        """Lease to this session what of the offer is its share: whether there was any."""
        pool, work = self.spec.pool, offer.work
        units_per_second = session.speed / self._steps(offer.kind)
        count = task_size(
            unleased=work.unleased.total,
            unfinished=work.missing,
            held=sum(lease.count for lease in session.leases.values() if lease.work is work),
            share=self._roster.share(session),
            units_per_second=units_per_second,
            task_seconds=pool.task_seconds,
            minimum_seconds=min(pool.minimum_task_seconds, pool.task_seconds),
            idle=not session.leases,
        )
        if not count:
            return False
        most = min(count, offer.most)
        claim = work.claim(self._next_task, most, session.id.worker, self._roster.eligible)
        if claim is None:
            return False
        self._lease(session, offer.kind, offer.version, work, claim, now)
        return True

    def _lease_overdue(self, session: Session, work: Work, now: float) -> bool:
        """Insurance: a copy of the most overdue lease; the first result of either counts."""
        lease = work.overdue(now, session.id)
        if lease is None:
            return False
        version = lease.version if lease.kind == "centre" else self.version
        self._lease(session, lease.kind, version, work, lease.claim, now)
        return True

    def _lease(
        self, session: Session, kind: Kind, version: int, work: Work, claim: Claim, now: float
    ) -> None:
        median = self._durations.median
        queued = max((lease.expected for lease in session.leases.values()), default=now)
        expected = max(queued - now, 0.0) + claim.range.size * self._steps(kind) / session.speed
        known = session.pace.measured and self._length is not None
        seconds = lease_seconds(
            expected if known else None,
            self.spec.pool.lease_floor,
            median,
            claim.range.attempts,
        )
        patience = seconds if median is None else min(seconds, PATIENCE * median)
        lease = Lease(
            task=self._next_task,
            session=session.id,
            kind=kind,
            version=version,
            work=work,
            claim=claim,
            issued=now,
            expected=now + min(expected, patience),
            deadline=now + seconds,
        )
        self._next_task += 1
        self.leases[lease.task] = lease
        session.leases[lease.task] = lease
        work.enter(lease)
        heapq.heappush(self._deadlines, (lease.deadline, lease.task))
        acknowledged = self._acknowledged(session)
        self._commands.append(
            SendTask(session.id, lease.task, kind, version, lease.first, lease.count, acknowledged)
        )

    def _steps(self, kind: Kind) -> float:
        """Environment steps that a direction (both mirrors) or an episode of the centre takes."""
        if kind == "centre":
            return self._centre_length or self._length or FIRST_LENGTH
        return 2 * self.spec.environment.episodes * (self._length or FIRST_LENGTH)

    # Results.

    def _arrived(self, event: Arrived, now: float) -> None:
        session = self.sessions.get(event.session)
        lease = self._lease_of(event)
        if session is not None:
            session.heard = now
            if lease is not None and lease.session == event.session:
                self._measure(session, lease, event, now)
        accept = self._accept_centre if event.kind == "centre" else self._accept_members
        outcome, reason = accept(event)
        if outcome == "accepted" and session is not None:
            session.unacknowledged.append(event.task)
            self._roster.owed[session.id] = session
        else:
            self._commands.append(SendAcknowledge(event.session, (event.task,), outcome, reason))
        if lease is not None:
            self._end_lease(lease, now)
        if session is not None:
            self._feed(session, now)

    def _lease_of(self, event: Arrived) -> Lease | None:
        """The lease that this is the result of, if it is still out; two sessions of one worker may
        finish each other's."""
        lease = self.leases.get(event.task)
        if lease is None or lease.session.worker != event.session.worker:
            return None
        asked = (lease.kind, lease.version, lease.first, lease.count)
        return lease if asked == (event.kind, event.version, event.first, event.count) else None

    def _measure(self, session: Session, lease: Lease, event: Arrived, now: float) -> None:
        """Learn the session's speed from a result in time."""
        duration = now - max(lease.issued, session.last_result)
        session.last_result = now
        session.limit = min(MOST_TASKS, session.limit + 1)
        session.failures = 0
        session.pace.observe(int(event.lengths.sum()), duration)
        self._roster.reweigh(session)
        self._durations.add(duration)

    def _accept_centre(self, event: Arrived) -> tuple[Outcome, str]:
        evaluation = self._evaluation(event.version)
        if evaluation is None:
            return "late", "that evaluation is over"
        end = event.first + event.count
        if end > evaluation.work.size:
            return "refused", "those episodes were not asked for"
        is_open = evaluation.work.is_open(event.first, end)
        if not is_open.any():
            return "duplicate", "another worker was first"
        for episode, reason in event.failed:
            if is_open[episode - event.first] and self._confirmed(evaluation.work, event, episode):
                self._give_up(evaluation, f"episode {episode} fails: {reason}")
                return "accepted", ""
        avoid = frozenset({event.session.worker})
        evaluation.record(event.first, event.returns, event.lengths, avoid)
        valid = ~np.isnan(event.returns)
        if valid.any():
            self._centre_length = float(event.lengths[valid].mean())
        return "accepted", ""

    def _accept_members(self, event: Arrived) -> tuple[Outcome, str]:
        size = self.spec.directions
        end = event.first + event.count
        index, last = event.first // size, (end - 1) // size
        newest = self.version + max(self.spec.pool.max_staleness, self.updating)
        if index != last or index > newest or event.version > self.version:
            return "refused", "that range was never leased"
        age = max(index, self.open_index) - event.version
        batch = self._batch(index) if index >= self.open_index else self._batches.get(index)
        if batch is None or age > self.spec.pool.max_staleness:
            return "late", f"{age} versions old"
        if not batch.work.is_open(event.first, end).all():
            # Observation sums are of the whole result: it counts as a whole or not at all.
            return "duplicate", "another worker was first"
        self._drop_failing(batch, event)
        valid = ~np.isnan(event.returns[:, 0])
        counted = int(np.count_nonzero(valid))
        batch.work.accept(event.first, valid, frozenset({event.session.worker}))
        if counted:
            contribution = Contribution(
                session=event.session,
                version=event.version,
                first=event.first,
                returns=event.returns,
                lengths=event.lengths,
                observed=event.observed,
            )
            late = batch.index < self.open_index
            (self._late if late else batch.contributions).append(contribution)
            mean = float(event.lengths[valid].mean()) / self.spec.environment.episodes
            self._length = mean if self._length is None else 0.7 * self._length + 0.3 * mean
        session = self.sessions.get(event.session)
        if session is not None:
            session.members += 2 * counted
        return "accepted", ""

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
        return work.fail(unit, worker, alone=self._roster.eligible <= {worker})

    # Updates.

    def _batch(self, index: int) -> Batch:
        batch = self._batches.get(index)
        if batch is None:
            batch = self._batches[index] = Batch(index, self.spec.directions)
        return batch

    def _maybe_close(self, now: float) -> None:
        """Close the open batch where all is here, or the quorum and the rest had its time."""
        if self.updating or self.ended or self._final is not None:
            return
        batch = self._batch(self.version)
        if batch.work.missing and not self._may_leave_the_rest(batch, now):
            return
        contributions = sorted(
            [*self._late, *batch.contributions], key=lambda part: (part.first, part.version)
        )
        self._late = []
        self.updating = True
        counted = sum(int((~np.isnan(part.returns[:, 0])).sum()) for part in contributions)
        self.episodes += 2 * counted * self.spec.environment.episodes
        self._commands.append(
            CloseBatch(self.version, tuple(contributions), tuple(sorted(batch.dropped)))
        )

    def _may_leave_the_rest(self, batch: Batch, now: float) -> bool:
        quorum = self.spec.pool.quorum
        return (
            quorum < 1.0
            and batch.has_quorum(quorum)
            and not batch.work.unleased.total
            and not batch.work.expects(now)
        )

    def _updated(self, event: Updated, now: float) -> None:
        self.version = event.version
        self.updating = False
        oldest = self.version - self.spec.pool.max_staleness
        for index in [index for index in self._batches if index < oldest]:
            del self._batches[index]
        self._begin_version(now)

    def _begin_version(self, now: float) -> None:
        """Ask for the centre evaluation of a new version where due, and see if it is the last."""
        every = self.spec.centre.evaluate_every
        if every and self.version % every == 0:
            self._evaluations.append(self._new_evaluation())
        self._check_stop(now)

    def _new_evaluation(self) -> Evaluation:
        centre = self.spec.centre
        return Evaluation(self.version, centre.episodes, centre.screening, self.spec.stop.target)

    def _check_stop(self, now: float) -> None:
        """After the last update only the centre of the last version is evaluated, in full."""
        stop = self.spec.stop
        if self._final is not None or self.updating or self.ended:
            return
        if stop.updates is not None and self.version >= stop.updates:
            self._final = f"{self.version} updates are made"
        elif stop.episodes is not None and self.episodes >= stop.episodes:
            self._final = f"{self.episodes:,} episodes are used"
        elif stop.seconds is not None and now - self.started >= stop.seconds:
            self._final = f"{stop.seconds:g} s have passed"
        else:
            return
        if not self.spec.centre.evaluate_every:
            self._end(self.version, reached=False, reason=self._final)
            return
        if self._evaluation(self.version) is None:
            self._evaluations.append(self._new_evaluation())
        self._evaluations[-1].make_full()

    # The centre.

    def _evaluation(self, version: int) -> Evaluation | None:
        return next((e for e in self._evaluations if e.version == version), None)

    def _give_up_if_nobody_can(self, version: int) -> None:
        evaluation = self._evaluation(version)
        if evaluation is None or version == self.version:
            return
        eligible = self._roster.eligible
        if any(eligible <= part.avoid for part in evaluation.work.unleased):
            self._give_up(evaluation, "nobody has it any more")

    def _give_up(self, evaluation: Evaluation, reason: str) -> None:
        self._evaluations.remove(evaluation)
        self._commands.append(
            Happened(f"centre evaluation of version {evaluation.version} given up: {reason}")
        )

    def _conclude_evaluations(self) -> None:
        """Judge finished evaluations in the order of their versions, so that every pool ends at the
        same one."""
        while self._evaluations and self._evaluations[0].finished and not self.ended:
            evaluation = self._evaluations.pop(0)
            self._commands.append(
                CentreJudged(
                    version=evaluation.version,
                    episodes=evaluation.work.size,
                    mean=evaluation.mean,
                    deviation=evaluation.deviation,
                    steps=evaluation.steps,
                    full=evaluation.full,
                    reached=evaluation.reached,
                )
            )
            if evaluation.reached:
                self._end(evaluation.version, reached=True, reason="the target is reached")
        if self._final is not None and not self._evaluations:
            self._end(self.version, reached=False, reason=self._final)

    def _end(self, version: int, reached: bool, reason: str) -> None:
        if self.ended:
            return
        self._acknowledge_all()
        self.ended = True
        self._commands.append(EndRun(version, reached, reason))
