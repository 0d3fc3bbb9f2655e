"""Who is given what: free work, the most useful first, then copies of what is overdue."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator
from itertools import islice

from coordinator.pool.auditing import Auditing
from coordinator.pool.batches import Batches
from coordinator.pool.checks import Check
from coordinator.pool.course import Course
from coordinator.pool.evaluations import Evaluations
from coordinator.pool.events import Command, SendTask, SessionId
from coordinator.pool.leases import Leases
from coordinator.pool.newcomers import Newcomers
from coordinator.pool.offers import Offer, Offers
from coordinator.pool.roster import Roster, Session
from coordinator.pool.sizing import Pacing
from coordinator.pool.work import Claim, Lease, Work
from protocol.messages import MAX_TASK_DIRECTIONS
from protocol.spec import RunSpec

OFFERS_AT_ONCE = 1000
"""Waiting sessions that one event offers work or copies to at most: the next event goes on."""
FRUITLESS_OFFERS = 4
"""So many more may have no use for it than take it, before the rest must wait for the next event:
bounds what an event costs."""
INSURED_EVERY = 0.025
"""Seconds between two looks for what is to be copied, at least: they go through all that is out."""
LAST_SHARE = 0.02
"""The last units of a batch, this part of it, are copied without being overdue: that costs no more
than this part, and the batch ends with the fastest of those who wait, not with who is slow, lost or
held back by a network."""
MOST_HOLDERS = 4
"""Sessions that are at the same units at once, at most: what breaks its workers must not break all
who wait."""
LOOKS = 16
"""Newcomers, and ranges of free units, that are looked at to see whether one is for the other; and
those who wait, to see whether a copy is for them."""
SOONER = 2.0
"""Times as soon as what it is a copy of a copy must be expected: it costs messages and somebody's
core."""
TRIED_AGAIN_AFTER = 30.0
"""Seconds without a task after which who is too slow gets one all the same: it may be faster by
now."""


class Dispatch:
    """Leases what is free to who has room for it; what it decides becomes `SendTask` commands."""

    def __init__(
        self,
        spec: RunSpec,
        course: Course,
        roster: Roster,
        leases: Leases,
        batches: Batches,
        evaluations: Evaluations,
        offers: Offers,
        auditing: Auditing | None,
        commands: list[Command],
    ) -> None:
        """All parts are the pool's own, shared with it; `commands` takes what is to be done."""
        self._course = course
        self._roster = roster
        self._leases = leases
        self._batches = batches
        self._evaluations = evaluations
        self._offers = offers
        self._auditing = auditing
        self._commands = commands
        self._insured = -math.inf
        self._newcomers = Newcomers(spec.directions)
        self.amend(spec)

    def amend(self, spec: RunSpec) -> None:
        """These settings hold now."""
        self._copies = spec.pool.copies
        self._minimum_seconds = spec.pool.minimum_task_seconds
        self._newcomers.resize(spec.directions)

    def has_offers(self) -> bool:
        """Whether anything is free."""
        if self._auditing is not None and self._auditing.has_checks:
            return True
        self._offers.look()
        return self._offers.any

    def feed_idle(self, now: float) -> None:
        """Offer work to those who have none, first to those who have returned some."""
        self.feed_waiting(self._roster.idle, now)
        room = self._room_for_newcomers(now) or self._auditing is not None
        if room and self._roster.newcomers:
            self.feed_waiting(self._roster.newcomers, now)

    def feed_waiting(self, queue: OrderedDict[SessionId, Session], now: float) -> None:
        """Offer work to those who wait, the longest first, while there is some."""
        balance = FRUITLESS_OFFERS
        self._offers.look()
        for _ in range(min(len(queue), OFFERS_AT_ONCE)):
            balance += 1 if self._feed(next(iter(queue.values())), now) else -1
            if not balance:
                return

    def insure(self, now: float) -> None:
        """Copy what is overdue, and the last units of all, to who waits without a task.

        Only now and then: a copy is made long after its lease began, and no result waits for it.
        """
        if not self._copies or not self._course.leases or now < self._insured + INSURED_EVERY:
            return
        self._insured = now
        for work in self._awaited():
            if self._roster.waits:
                self._insure(work, now)

    def _insure(self, work: Work, now: float) -> None:
        """The largest of what is late goes to the fastest who wait, in parts where it is too large
        for one; the first result of any unit counts."""
        last = work.missing <= LAST_SHARE * work.size
        claims = [
            claim
            for claim in work.insurable(math.inf if last else now)
            if self._copies_of(claim, last, now) > 0
        ]
        claims.sort(key=lambda claim: claim.left, reverse=True)
        waiting: list[Session] = []
        if claims:
            for queue in (self._roster.idle, self._roster.newcomers):
                waiting += islice(queue.values(), OFFERS_AT_ONCE)
        waiting.sort(key=lambda session: (session.proven, session.pace.measured, session.speed))
        for claim in claims:
            within = claim.expected_within(now) / SOONER
            passed: list[Session] = []
            while waiting and len(passed) < LOOKS and self._copies_of(claim, last, now) > 0:
                session = waiting.pop()
                if not self._copy(claim, work, session, within, now):
                    passed.append(session)  # it may be for another, and this for one after it
            waiting += reversed(passed)

    def _copies_of(self, claim: Claim, last: bool, now: float) -> int:
        """How many more are wanted; one of what is not overdue, among the `last` units."""
        holders = len(claim.leases)
        if claim.overdue <= now:
            return min(self._copies - claim.trusted(now), MOST_HOLDERS - holders)
        return 2 - holders if last else 0

    def _copy(self, claim: Claim, work: Work, session: Session, within: float, now: float) -> bool:
        """Lease to an idle session what is claimed already, or its end, as much as makes a task:
        whether it can, `within` so many seconds."""
        lease, auditing, worker = claim.leases[0], self._auditing, session.id.worker
        if auditing is not None:
            if worker in claim.range.avoid:
                return False  # it may be held back of this worker, for others
            if auditing.stands_behind(worker):
                return False
            if lease.kind == "centre" and not self._may_judge(worker):
                return False
        pacing = self._leases.pacing(session, lease.kind, now)
        count = min(claim.left, max(1, pacing.fill, int(self._minimum_seconds / pacing.unit)))
        if not session.proven:
            count = min(count, self._room_for_newcomers(now))
        if not count or pacing.seconds(count) > within:
            return False
        part = claim if count == claim.left else work.split(claim, count, now)
        version = lease.version if lease.kind == "centre" else self._course.version
        copy = self._leases.issue(session, lease.kind, version, work, part, now, None, pacing)
        self._hand_over(session, copy)
        self._roster.note_room(session, now)
        return True

    def feed(self, session: Session, now: float) -> bool:
        """Lease to this session as much as it has room for and is its share: whether it got any."""
        self._offers.look()
        return self._feed(session, now)

    def _feed(self, session: Session, now: float) -> bool:
        """Likewise, of what was free when that was looked at last."""
        spare = room = session.spare
        if room > 0 and now >= session.rests_until and self._offers.may_lease:
            while spare and self._lease_something(session, now):
                spare -= 1
        self._roster.note_spare(session, spare, now)
        return spare < room

    def _lease_something(self, session: Session, now: float) -> bool:
        """The most useful first: what the run waits for, then what it will need."""
        auditing = self._auditing
        if auditing is None:
            return self._lease_work(session, now)
        if auditing.checks.waiting and self._lease_check(session, auditing.check_for(session), now):
            return True
        worker, trial_first = session.id.worker, auditing.tries_first(session.id.worker)
        if trial_first and self._lease_trial(session, now):
            return True
        if not auditing.stands_behind(worker) and self._lease_work(session, now):
            return True
        return not trial_first and self._lease_trial(session, now)

    def _lease_work(self, session: Session, now: float) -> bool:
        """Lease to this session what counts."""
        offers = self._offers
        for offer in offers.needed:
            if not offer.work.unleased.total:
                continue
            if offer.kind == "centre" and not self._may_judge(session.id.worker):
                continue
            pacing = self._leases.pacing(session, offer.kind, now)
            if self._lease_part(session, offer, MAX_TASK_DIRECTIONS, pacing, now):
                return True
        if not offers.members_wanted:
            return False
        room = self._batches.early_room(self._course.updating)
        return room > 0 and self._lease_early(session, room, now)

    def _may_judge(self, worker: str) -> bool:
        """Whether a worker is given episodes of the centre."""
        return self._auditing is None or self._auditing.may_judge(worker)

    def _lease_trial(self, session: Session, now: float) -> bool:
        """Try this session, if it holds nothing, and there is anything to try it with."""
        if session.leases or self._auditing is None:
            return False
        return self._lease_check(session, self._auditing.trial_for(session), now)

    def _lease_check(self, session: Session, check: Check | None, now: float) -> bool:
        """Lease to this session a check that is for it, if there is one."""
        if check is None or self._auditing is None:
            return False
        claim = check.work.claim(check.count, session.id.worker, self._roster.eligible)
        if claim is None:
            return False
        lease = self._leases.issue(session, check.kind, check.version, check.work, claim, now)
        self._auditing.checks.leased(check, lease)
        self._send_task(session, lease)
        return True

    def _awaited(self) -> Iterator[Work]:
        """What has no free unit any more and holds the run up."""
        batch = self._batches.open
        if (
            not self._course.updating
            and self._course.final is None
            and not batch.work.unleased.total
            and batch.settled < self._batches.quorum
        ):
            yield batch.work
        for evaluation in self._evaluations.under_way:
            if not evaluation.work.unleased.total:
                yield evaluation.work

    def _lease_early(self, session: Session, room: int, now: float) -> bool:
        """Lease to this session what it can do of the next batch until that is open, beside what it
        holds, at most `room` directions: the less is done one version early, the better the run
        learns."""
        offer = self._offers.early(now)
        pacing = self._leases.pacing(session, "members", now)
        seconds = offer.update_in - pacing.free_in + offer.before_in
        if seconds <= 0.0:
            return False
        if seconds < self._minimum_seconds:
            seconds = self._minimum_seconds
        limit = math.ceil(seconds / pacing.unit) or 1
        if limit < room:
            room = limit
        if room > MAX_TASK_DIRECTIONS:
            room = MAX_TASK_DIRECTIONS
        return self._lease_part(session, offer, room, pacing, now)

    def _lease_part(
        self, session: Session, offer: Offer, most: int, pacing: Pacing, now: float
    ) -> bool:
        """Lease to this session what of the offer is its share, at most so many units: whether
        there was any."""
        roster, leases, work = self._roster, self._leases, offer.work
        end = offer.end
        late = pacing.free_in + pacing.unit > end and session.pace.measured
        if late and not self._may_be_late(session, offer, pacing, now):
            return False
        size = leases.size(session, roster.share(session), work, pacing)
        if not size:
            return False
        if late:
            size = 1
        elif size > most:
            size = most
        if session.losses and (session.vouched_for or not session.proven):
            # Whose worker lost its last tasks begins with a small one.
            size = max(1, size >> session.losses)
        if not session.proven:
            size = min(size, self._room_for_newcomers(now))
        elif pacing.fill and roster.newcomers:
            # Its full lanes may take all that there is, batch after batch.
            size = min(size, work.unleased.total - self._left_to_newcomers(work, now))
        if size <= 0:
            return False
        worker = session.id.worker
        claim = work.claim(size, worker, roster.eligible)
        if claim is None and not session.leases and self._forgives(worker, work):
            # Nobody idles beside work that it once failed where no other has room for it.
            claim = work.claim(size, worker, roster.roomy_workers)
        if claim is None:
            return False
        lease = leases.issue(
            session, offer.kind, offer.version, work, claim, now, None, pacing, end
        )
        self._hand_over(session, lease)
        return True

    def _forgives(self, worker: str, work: Work) -> bool:
        """Whether a worker may have again what it failed, or what is held back of it: a failing
        episode has to wait for somebody else, and a newcomer's word for as long as others work."""
        auditing = self._auditing
        if auditing is None or auditing.trust.is_believed(worker):
            return not work.has_failing
        return not auditing.awaits_others(worker)

    def _hand_over(self, session: Session, lease: Lease) -> None:
        """Send the session the task of its new lease; of a newcomer it is noted."""
        self._send_task(session, lease)
        if not session.proven:
            self._newcomers.hold(lease)
            self._roster.trying = len(self._newcomers)

    def _room_for_newcomers(self, now: float) -> int:
        """Units that may be given to who has returned nothing yet."""
        room = self._newcomers.room(now)
        self._roster.trying = len(self._newcomers)
        return room if self._roster.known_takers else MAX_TASK_DIRECTIONS

    def _left_to_newcomers(self, work: Work, now: float) -> int:
        """Units of this work that are not for others: none where no newcomer may have them."""
        if self._auditing is not None and self._auditing.has_established:
            return 0
        waiting = [session.id.worker for session in islice(self._roster.newcomers.values(), LOOKS)]
        if not any(not part.avoid.issuperset(waiting) for part in islice(work.unleased, LOOKS)):
            return 0
        return self._room_for_newcomers(now)

    def first_returned(self, lease: Lease) -> None:
        """The first lease of a session came back."""
        self._newcomers.returned(lease)
        self._roster.trying = len(self._newcomers)

    def _may_be_late(self, session: Session, offer: Offer, pacing: Pacing, now: float) -> bool:
        """Whether a unit is given to who would be done with it only after its batch should end.

        Somebody faster comes for it, as long as it is expected that others return theirs.
        """
        if offer.late_end > 0.0:
            return pacing.seconds(1) <= offer.late_end
        if session.leases:
            return False
        if now - session.fed >= TRIED_AGAIN_AFTER:
            return True
        if offer.before or offer.work.expects(now):
            return False
        # Before anything of a batch is out nothing is expected, and who is slow may come first.
        return self._roster.fastest_waiting(session) is session

    def _send_task(self, session: Session, lease: Lease) -> None:
        told = session.take_unacknowledged() if session.unacknowledged else ()
        self._commands.append(
            SendTask(
                session.id, lease.task, lease.kind, lease.version, lease.first, lease.count, told
            )
        )
