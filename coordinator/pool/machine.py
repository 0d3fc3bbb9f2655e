"""The pool's state machine: events and the time in, commands out, nothing else touched."""

from __future__ import annotations

import heapq
import math
from collections import deque
from statistics import median
from typing import Literal

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
    Lease,
    Left,
    Refused,
    SendAcknowledge,
    SendTask,
    Session,
    SessionId,
    StopAsked,
    Tick,
    Updated,
)
from coordinator.pool.ranges import Ranges
from coordinator.pool.sizing import (
    UNKNOWN_LEASE,
    UNKNOWN_SPEED,
    follow,
    lease_seconds,
    task_size,
)
from protocol.messages import MAX_TASK_DIRECTIONS
from protocol.spec import RunSpec

Outcome = Literal["accepted", "late", "duplicate", "refused"]

SILENT_AFTER = 35.0
"""Seconds without a word after which a session counts as gone; idle workers speak every 10 s."""
ACKNOWLEDGE_AFTER = 0.5
"""Seconds that an acknowledgement waits for a task to ride on."""
LONGEST_REST = 60.0
"""Seconds that a worker which keeps failing is left alone at most."""
FIRST_LENGTH = 100.0
"""Steps of an episode assumed before any was seen."""


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
        self.sessions: dict[SessionId, Session] = {}
        self.leases: dict[int, Lease] = {}
        self._batches: dict[int, Batch] = {}
        self._late: list[Contribution] = []
        self._evaluations: list[Evaluation] = []
        self._final: str | None = None
        self._workers: dict[str, int] = {}
        self._hungry: dict[SessionId, None] = {}
        self._deadlines: list[tuple[float, int]] = []
        self._next_task = first_task
        self._total_speed = 0.0
        self._weights: dict[SessionId, float] = {}
        self._length: float | None = None
        self._centre_length: float | None = None
        self._durations: deque[float] = deque(maxlen=101)
        self._median: float | None = None
        self._checked_silence = now
        self._acknowledged_at = now
        self._commands: list[Command] = []
        self._batch(version)
        self._begin_version(now)

    def handle(self, event: Event, now: float) -> list[Command]:
        """What is to be done because of `event` at time `now` (seconds, never decreasing)."""
        if self.ended:
            return []
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
        commands, self._commands = self._commands, []
        return commands

    # What a person asks: why is nothing happening?

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
        if all(session.credit == 0 for session in self.sessions.values()):
            return "all workers are paused"
        return "all workers rest after failures; the log says which"

    @property
    def open_index(self) -> int:
        """Index of the batch that the next update will close."""
        return self.version + self.updating

    @property
    def progress(self) -> tuple[int, int]:
        """(accepted, all) directions of the open batch."""
        batch = self._batch(self.open_index)
        return batch.accepted, batch.size

    # Sessions.

    def _joined(self, event: Joined, now: float) -> None:
        if event.session in self.sessions:
            self._left(event.session, "joined anew", now)
        session = Session(
            id=event.session,
            credit=event.credit,
            speed=event.speed or UNKNOWN_SPEED,
            heard=now,
            joined=now,
        )
        self.sessions[event.session] = session
        worker = event.session.worker
        self._workers[worker] = self._workers.get(worker, 0) + 1
        self._reweigh(session)
        self._commands.append(Happened("joined", event.session))
        self._feed(session, now)

    def _left(self, id: SessionId, reason: str, now: float) -> None:
        session = self.sessions.pop(id, None)
        if session is None:
            return
        self._hungry.pop(id, None)
        self._workers[id.worker] -= 1
        if not self._workers[id.worker]:
            del self._workers[id.worker]
        session.credit = 0
        self._reweigh(session)
        for lease in list(session.leases.values()):
            self._release(lease, frozenset())
        self._commands.append(Happened(f"left: {reason}", id))
        self._feed_hungry(now)
        self._maybe_close(now)

    def _heard(self, event: Heard, now: float) -> None:
        session = self.sessions.get(event.session)
        if session is None:
            return
        session.heard = now
        if event.credit is not None:
            session.credit = event.credit
            self._reweigh(session)
            self._feed(session, now)

    def _refused(self, event: Refused, now: float) -> None:
        lease = self.leases.get(event.task)
        session = self.sessions.get(event.session)
        if lease is None or lease.session != event.session or session is None:
            return
        session.heard = now
        if event.blame:
            session.failures += 1
            session.rests_until = now + min(LONGEST_REST, 2.0 ** min(session.failures, 16))
            self._commands.append(Happened(f"failed a task: {event.reason}", event.session))
        self._release(lease, frozenset({event.session.worker}))
        if lease.kind == "centre":
            self._abandon_if_nobody_can(lease.version)
        self._feed(session, now)
        self._feed_hungry(now)
        self._conclude_evaluations()

    def _reweigh(self, session: Session) -> None:
        """Keep the sum of the speeds of all who take work."""
        weight = session.speed if session.credit > 0 else 0.0
        self._total_speed += weight - self._weights.get(session.id, 0.0)
        if weight:
            self._weights[session.id] = weight
        else:
            self._weights.pop(session.id, None)
        if not self._weights:
            self._total_speed = 0.0

    def _tick(self, now: float) -> None:
        self._run_out(now)
        if now - self._checked_silence >= 5.0:
            self._checked_silence = now
            for session in list(self.sessions.values()):
                if now - session.heard > SILENT_AFTER:
                    self._left(session.id, f"silent for {now - session.heard:.0f} s", now)
        if now - self._acknowledged_at >= ACKNOWLEDGE_AFTER:
            self._acknowledged_at = now
            for session in self.sessions.values():
                self._acknowledge_now(session)
        self._check_stop(now)
        self._feed_hungry(now)
        self._maybe_close(now)

    def _acknowledge_now(self, session: Session) -> None:
        while session.unacknowledged:
            tasks = tuple(session.unacknowledged[:256])
            del session.unacknowledged[:256]
            self._commands.append(SendAcknowledge(session.id, tasks, "accepted"))

    # Leases.

    def _run_out(self, now: float) -> None:
        """Take back the leases whose deadline has passed."""
        while self._deadlines and self._deadlines[0][0] <= now:
            _, task = heapq.heappop(self._deadlines)
            lease = self.leases.get(task)
            if lease is None:
                continue
            session = self.sessions.get(lease.session)
            if session is not None:
                session.limit = max(1, min(session.limit, session.credit) // 2)
                session.speed *= 0.5
                self._reweigh(session)
            if lease.kind == "members":
                attempts = self._batch(lease.first // self.spec.directions).attempts
                attempts[lease.first] = attempts.get(lease.first, 0) + 1
            seconds = now - lease.issued
            self._commands.append(
                Happened(f"lease of task {task} ran out after {seconds:.1f} s", lease.session)
            )
            self._release(lease, frozenset({lease.session.worker}))

    def _drop_lease(self, lease: Lease) -> None:
        del self.leases[lease.task]
        session = self.sessions.get(lease.session)
        if session is not None:
            session.leases.pop(lease.task, None)
            if session.spare > 0:
                self._hungry[session.id] = None
        if lease.kind == "members":
            batch = self._batches.get(lease.first // self.spec.directions)
            if batch is not None:
                batch.tasks.discard(lease.task)

    def _release(self, lease: Lease, avoid: frozenset[str]) -> None:
        """End a lease without a result: what of it is still open may be leased again."""
        self._drop_lease(lease)
        end = lease.first + lease.count
        if lease.kind == "centre":
            evaluation = self._evaluation(lease.version)
            if evaluation is not None and not evaluation.has(lease.first, lease.count):
                evaluation.ranges.remove(lease.first, end)
                evaluation.ranges.add(lease.first, end, avoid)
            return
        batch = self._batches.get(lease.first // self.spec.directions)
        if batch is not None and batch.index >= self.open_index:
            batch.release(lease.first, end, avoid)

    def _feed_hungry(self, now: float) -> None:
        """Offer work to those who had room for more than there was."""
        for id in list(self._hungry):
            session = self.sessions.get(id)
            if session is None:
                del self._hungry[id]
            else:
                self._feed(session, now)

    def _feed(self, session: Session, now: float) -> None:
        """Lease to this session as much as it has room for and is its share."""
        self._hungry.pop(session.id, None)
        while session.spare > 0 and now >= session.rests_until:
            if not self._lease_something(session, now):
                break
        if session.spare > 0:
            self._hungry[session.id] = None

    def _lease_something(self, session: Session, now: float) -> bool:
        """The most useful first: what the run waits for, what it will need, then insurance."""
        older = [e for e in self._evaluations if e.version < self.version]
        if any(self._lease_centre(session, evaluation, now) for evaluation in older):
            return True
        if self._members_wanted():
            if not self.updating and self._lease_members(session, self.version, now):
                return True
            current = self._evaluations[-1:] if self._evaluations else []
            if any(self._lease_centre(session, evaluation, now) for evaluation in current):
                return True
            if self._lease_ahead(session, now):
                return True
        else:
            if any(self._lease_centre(session, e, now) for e in self._evaluations):
                return True
        return self._lease_overdue(session, now)

    def _members_wanted(self) -> bool:
        """No members are leased after the last update, nor while a centre evaluation is so far
        behind that workers are about to forget its version."""
        if self._final is not None:
            return False
        oldest = self._evaluations[0].version if self._evaluations else self.version
        kept = self.spec.versions_kept - 1 - self.spec.pool.max_staleness
        return self.version - oldest < kept

    def _lease_members(self, session: Session, index: int, now: float, most: int = 1 << 30) -> bool:
        batch = self._batch(index)
        steps = 2 * self.spec.environment.episodes * (self._length or FIRST_LENGTH)
        held = sum(
            lease.count
            for lease in session.leases.values()
            if lease.kind == "members" and lease.first // self.spec.directions == index
        )
        count = self._size(session, batch.unleased.total, batch.missing, held, steps)
        if count == 0:
            return False
        taken = self._take(batch.unleased, min(count, most), session.id.worker)
        if taken is None:
            return False
        first, end = taken
        attempts = batch.attempts.get(first, 0)
        lease = self._lease(session, "members", self.version, first, end, steps, attempts, now)
        batch.tasks.add(lease.task)
        return True

    def _take(self, ranges: Ranges, most: int, worker: str) -> tuple[int, int] | None:
        """A range for this worker; one that all who are here have failed is for anyone again."""
        most = min(most, MAX_TASK_DIRECTIONS)
        taken = ranges.take(most, worker)
        if taken is None and any(self._workers.keys() <= candidate.avoid for candidate in ranges):
            taken = ranges.take(most, worker, heed_avoid=False)
        return taken

    def _lease_ahead(self, session: Session, now: float) -> bool:
        """Work for a later batch at today's version, within the share that may be stale."""
        for index in range(self.version + 1, self.version + self.spec.pool.max_staleness + 1):
            batch = self._batch(index)
            room = math.floor(self.spec.pool.stale_share * batch.size) - batch.ahead
            if room > 0:
                before = batch.unleased.total
                if self._lease_members(session, index, now, room):
                    batch.ahead += before - batch.unleased.total
                    return True
        return False

    def _lease_centre(self, session: Session, evaluation: Evaluation, now: float) -> bool:
        steps = self._centre_length or self._length or FIRST_LENGTH
        held = sum(
            lease.count
            for lease in session.leases.values()
            if lease.kind == "centre" and lease.version == evaluation.version
        )
        unleased = evaluation.ranges.total
        count = self._size(session, unleased, evaluation.unfinished, held, steps)
        if count == 0:
            return False
        taken = self._take(evaluation.ranges, count, session.id.worker)
        if taken is None:
            return False
        self._lease(session, "centre", evaluation.version, *taken, steps, 0, now)
        return True

    def _lease_overdue(self, session: Session, now: float) -> bool:
        """Insurance: a second lease of the open batch's most overdue range."""
        batch = self._batches.get(self.open_index)
        if batch is None or self.updating or batch.unleased.total:
            return False
        late = [
            lease
            for task in batch.tasks
            if (lease := self.leases[task]).predicted_end < now
            and not lease.duplicated
            and lease.session.worker != session.id.worker
        ]
        if not late:
            return False
        lease = min(late, key=lambda lease: (lease.predicted_end, lease.task))
        lease.duplicated = True
        steps = 2 * self.spec.environment.episodes * (self._length or FIRST_LENGTH)
        end = lease.first + lease.count
        twin = self._lease(session, "members", self.version, lease.first, end, steps, 0, now)
        twin.duplicated = True
        batch.tasks.add(twin.task)
        return True

    def _size(
        self, session: Session, unleased: int, unfinished: int, held: int, steps: float
    ) -> int:
        pool = self.spec.pool
        return task_size(
            unleased=unleased,
            unfinished=unfinished,
            held=held,
            share=session.speed / max(self._total_speed, session.speed),
            units_per_second=session.speed / steps,
            task_seconds=pool.task_seconds,
            minimum_seconds=min(pool.minimum_task_seconds, pool.task_seconds),
            idle=not session.leases,
        )

    def _lease(
        self,
        session: Session,
        kind: Kind,
        version: int,
        first: int,
        end: int,
        steps: float,
        attempts: int,
        now: float,
    ) -> Lease:
        count = end - first
        duration = count * steps / session.speed
        queued = max((lease.predicted_end for lease in session.leases.values()), default=now) - now
        queued = max(0.0, queued)
        seconds = lease_seconds(
            duration, queued, self.spec.pool.lease_floor, self._median, attempts
        )
        if self._length is None or not session.measured:
            seconds = max(seconds, UNKNOWN_LEASE * 2 ** min(attempts, 10))
        lease = Lease(
            task=self._next_task,
            session=session.id,
            kind=kind,
            version=version,
            first=first,
            count=count,
            issued=now,
            predicted_end=now + queued + duration,
            deadline=now + seconds,
        )
        self._next_task += 1
        self.leases[lease.task] = lease
        session.leases[lease.task] = lease
        heapq.heappush(self._deadlines, (lease.deadline, lease.task))
        acknowledged = tuple(session.unacknowledged[:256])
        del session.unacknowledged[:256]
        self._commands.append(
            SendTask(session.id, lease.task, kind, version, first, count, acknowledged)
        )
        return lease

    # Results.

    def _arrived(self, event: Arrived, now: float) -> None:
        session = self.sessions.get(event.session)
        lease = self.leases.get(event.task)
        if session is not None:
            session.heard = now
            if lease is not None and lease.session == event.session:
                self._measure(session, lease, event, now)
        if lease is not None:
            self._drop_lease(lease)
        if event.kind == "centre":
            self._arrived_centre(event)
        else:
            self._arrived_members(event)
        if session is not None:
            self._feed(session, now)
        self._maybe_close(now)
        self._conclude_evaluations()
        if event.kind == "centre" or event.failed:
            self._feed_hungry(now)

    def _measure(self, session: Session, lease: Lease, event: Arrived, now: float) -> None:
        """Learn the session's speed and the episodes' length from a result in time."""
        steps = int(event.lengths.sum())
        duration = now - max(lease.issued, session.last_result)
        session.last_result = now
        session.limit = min(64, session.limit + 1)
        session.failures = 0
        if duration > 0.0 and steps > 0:
            session.speed = follow(session.speed, steps / duration, session.measured)
            session.measured += 1
            self._reweigh(session)
            self._durations.append(duration)
            if self._median is None or len(self._durations) % 10 == 0:
                self._median = median(self._durations)

    def _arrived_centre(self, event: Arrived) -> None:
        evaluation = self._evaluation(event.version)
        if evaluation is None:
            self._answer(event, "late", "that evaluation is over")
        elif event.first + event.count > evaluation.asked:
            self._answer(event, "refused", "those episodes were not asked for")
        elif evaluation.has(event.first, event.count):
            self._answer(event, "duplicate", "another worker was first")
        elif event.failed:
            self._evaluations.remove(evaluation)
            self._commands.append(
                Happened(
                    f"centre evaluation of version {event.version} given up: {event.failed[0][1]}",
                    event.session,
                )
            )
            self._answer(event, "accepted")
        else:
            evaluation.record(event.first, event.returns, event.lengths)
            self._centre_length = float(event.lengths.mean())
            self._answer(event, "accepted")

    def _arrived_members(self, event: Arrived) -> None:
        size = self.spec.directions
        index, last = event.first // size, (event.first + event.count - 1) // size
        age = max(index, self.open_index) - event.version
        batch = self._batches.get(index)
        if index != last or event.version > self.version:
            self._answer(event, "refused", "the range or the version was never leased")
            return
        if batch is None or age > self.spec.pool.max_staleness:
            if batch is not None and batch.index >= self.open_index:
                batch.release(event.first, event.first + event.count, frozenset())
            self._answer(event, "late", f"{age} versions old")
            return
        if batch.open_count(event.first, event.first + event.count) < event.count:
            self._answer(event, "duplicate", "another worker was first")
            return
        contribution = Contribution(
            session=event.session,
            version=event.version,
            first=event.first,
            returns=event.returns,
            lengths=event.lengths,
            observed=event.observed,
        )
        batch.accept(contribution)
        if batch.index < self.open_index:
            self._late.append(contribution)
        else:
            self._fail_episodes(batch, event)
        counted = event.count - len(event.failed)
        if counted:
            mean = float(event.lengths.sum()) / (2 * counted * self.spec.environment.episodes)
            self._length = mean if self._length is None else 0.7 * self._length + 0.3 * mean
        session = self.sessions.get(event.session)
        if session is not None:
            session.members += 2 * counted
        self._answer(event, "accepted")

    def _fail_episodes(self, batch: Batch, event: Arrived) -> None:
        for direction, reason in event.failed:
            if batch.fail(direction, event.session.worker, len(self._workers)):
                self._commands.append(
                    Happened(f"direction {direction} dropped, its episode fails: {reason}")
                )
            else:
                batch.release(direction, direction + 1, frozenset({event.session.worker}))

    def _answer(self, event: Arrived, outcome: Outcome, reason: str = "") -> None:
        session = self.sessions.get(event.session)
        if outcome == "accepted" and session is not None:
            session.unacknowledged.append(event.task)
        else:
            self._commands.append(SendAcknowledge(event.session, (event.task,), outcome, reason))

    # Updates.

    def _batch(self, index: int) -> Batch:
        if index not in self._batches:
            self._batches[index] = Batch(index, self.spec.directions)
        return self._batches[index]

    def _maybe_close(self, now: float) -> None:
        """Close the open batch where all is here, or the quorum and the rest had its time."""
        if self.updating or self.ended or self._final is not None:
            return
        batch = self._batch(self.version)
        if batch.missing:
            if batch.accepted < math.ceil(self.spec.pool.quorum * batch.size):
                return
            if batch.unleased.total or self.spec.pool.quorum >= 1.0:
                return
            if any(self._still_has_time(batch, self.leases[task], now) for task in batch.tasks):
                return
        contributions = sorted(
            (
                contribution
                for contribution in [*self._late, *batch.contributions]
                if self.version - contribution.version <= self.spec.pool.max_staleness
            ),
            key=lambda contribution: (contribution.first, contribution.version),
        )
        self._late = []
        self.updating = True
        counted = sum(int((~np.isnan(c.returns[:, 0])).sum()) for c in contributions)
        self.episodes += 2 * counted * self.spec.environment.episodes
        self._commands.append(
            CloseBatch(self.version, tuple(contributions), tuple(sorted(batch.dropped)))
        )
        self._feed_hungry(now)

    @staticmethod
    def _still_has_time(batch: Batch, lease: Lease, now: float) -> bool:
        """Whether the lease may yet bring something new before its predicted end."""
        brings = batch.open_count(lease.first, lease.first + lease.count) == lease.count
        return brings and lease.predicted_end > now

    def _updated(self, event: Updated, now: float) -> None:
        self.version = event.version
        self.updating = False
        oldest = self.version - self.spec.pool.max_staleness
        for index in [index for index in self._batches if index < oldest]:
            del self._batches[index]
        self._batch(self.version)
        self._begin_version(now)
        self._feed_hungry(now)
        self._maybe_close(now)

    def _begin_version(self, now: float) -> None:
        """Ask for the centre evaluation of a new version where due, and see if it is the last."""
        every = self.spec.centre.evaluate_every
        if every and self.version % every == 0:
            self._evaluations.append(self._new_evaluation(full=False))
        self._check_stop(now)

    def _new_evaluation(self, full: bool) -> Evaluation:
        centre = self.spec.centre
        return Evaluation(
            self.version, centre.episodes, centre.screening, self.spec.stop.target, full
        )

    def _check_stop(self, now: float) -> None:
        """After the last update only the centre of the last version is evaluated, in full."""
        stop = self.spec.stop
        if self._final is not None or self.updating:
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
        evaluation = self._evaluation(self.version)
        if evaluation is None:
            self._evaluations.append(self._new_evaluation(full=True))
        else:
            evaluation.make_full()

    # The centre.

    def _evaluation(self, version: int) -> Evaluation | None:
        return next((e for e in self._evaluations if e.version == version), None)

    def _abandon_if_nobody_can(self, version: int) -> None:
        evaluation = self._evaluation(version)
        if evaluation is None or version == self.version:
            return
        if any(self._workers.keys() <= candidate.avoid for candidate in evaluation.ranges):
            self._evaluations.remove(evaluation)
            self._commands.append(
                Happened(f"centre evaluation of version {version} given up: nobody has it any more")
            )

    def _conclude_evaluations(self) -> None:
        """Judge finished evaluations in the order of their versions, so that every pool ends at the
        same one."""
        while self._evaluations and self._evaluations[0].finished and not self.ended:
            evaluation = self._evaluations.pop(0)
            self._commands.append(
                CentreJudged(
                    version=evaluation.version,
                    episodes=evaluation.asked,
                    mean=evaluation.mean,
                    deviation=evaluation.deviation,
                    steps=evaluation.steps,
                    full=evaluation.full,
                    reached=evaluation.reached,
                )
            )
            if evaluation.reached:
                self._end(evaluation.version, reached=True, reason="the target is reached")
        if self._final is not None and not self._evaluations and not self.ended:
            self._end(self.version, reached=False, reason=self._final)

    def _end(self, version: int, reached: bool, reason: str) -> None:
        if self.ended:
            return
        for session in self.sessions.values():
            self._acknowledge_now(session)
        self.ended = True
        self._commands.append(EndRun(version, reached, reason))
