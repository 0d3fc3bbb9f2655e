"""What is free at a moment, the most useful first, and by when it is needed."""

from __future__ import annotations

import math

import msgspec

from coordinator.pool.acceptance import Acceptance
from coordinator.pool.batches import Batches
from coordinator.pool.course import Course
from coordinator.pool.evaluations import Evaluations
from coordinator.pool.leases import Leases
from coordinator.pool.roster import Roster
from coordinator.pool.sizing import SLOWER
from coordinator.pool.work import Work
from protocol.messages import TaskKind
from protocol.spec import RunSpec


class Offer(msgspec.Struct, frozen=True, gc=False):
    """Units that may be leased now as far as they are free, evaluated at `version`."""

    kind: TaskKind
    version: int
    work: Work
    end: float
    """seconds until the last of them is expected, from a worker of usual speed"""
    before: int = 0
    """units that the run needs before it waits for these"""
    before_in: float = 0.0
    """seconds until those are expected"""
    update_in: float = 0.0
    """seconds that the update which comes first takes"""
    late_end: float = -math.inf
    """seconds within which one of them may come late, and counts all the same"""


class Offers:
    """What may be leased does not depend on who asks: it is looked at once for all whom an event
    lets ask. Meanwhile it only becomes less, by what is leased to them."""

    def __init__(
        self,
        spec: RunSpec,
        course: Course,
        roster: Roster,
        leases: Leases,
        batches: Batches,
        evaluations: Evaluations,
        acceptance: Acceptance,
    ) -> None:
        """All parts are the pool's own, shared with it."""
        self._course = course
        self._roster = roster
        self._leases = leases
        self._batches = batches
        self._evaluations = evaluations
        self._acceptance = acceptance
        self._lag = spec.versions_kept - 1 - spec.pool.max_staleness
        self._spared = spec.pool.max_staleness - 1
        """versions for which what is begun early may come late and count all the same"""
        self.amend(spec)
        self.may_lease = False
        """whether anything new may be leased at all"""
        self.needed: list[Offer] = []
        """what the run waits for, the most useful first"""
        self.members_wanted = False
        """No members are leased after the last update, nor around a candidate that may be reverted,
        nor while a centre evaluation is so far behind that workers are about to forget its version.
        """
        self._early: Offer | None = None

    def amend(self, spec: RunSpec) -> None:
        """These settings hold now."""
        self._minimum_seconds = spec.pool.minimum_task_seconds

    def look(self) -> None:
        """Look at what is free."""
        course, acceptance = self._course, self._acceptance
        evaluations = self._evaluations.under_way
        wanted = course.final is None and not (acceptance.candidate and acceptance.awaits)
        if wanted and evaluations:
            wanted = course.version - evaluations[0].version < self._lag
        self.may_lease, self.members_wanted, self._early = course.leases, wanted, None
        needed: list[Offer] = []
        current = None
        for evaluation in evaluations:
            work = evaluation.work
            if work.unleased.total:
                version = evaluation.version
                offer = Offer("centre", version, work, self._end("centre", work.missing))
                if wanted and version == course.version:
                    current = offer
                else:
                    needed.append(offer)
        if wanted and not course.updating:
            work = self._batches.open.work
            if work.unleased.total:
                end = self._end("members", work.missing)
                needed.append(Offer("members", course.version, work, end))
        if current is not None:
            needed.append(current)
        self.needed = needed

    @property
    def any(self) -> bool:
        """Whether anything was free at the last look."""
        return bool(self.needed) or (self.members_wanted and self.room_ahead > 0)

    @property
    def room_ahead(self) -> int:
        """Directions of the next batch that may still be begun one version early."""
        return self._batches.early_room(self._course.updating)

    def early(self, now: float) -> Offer:
        """What may be begun one version early, where there is room for that."""
        early = self._early
        if early is None:
            early = self._early = self._look_ahead(now)
        return early

    def _look_ahead(self, now: float) -> Offer:
        course, work, speed = self._course, self._batches.next.work, self._roster.speed
        before = 0 if course.updating else self._batches.awaited
        end = self._end("members", before + work.missing)
        before_in, late_end = 0.0, -math.inf
        if speed:
            steps = self._leases.steps["members"]
            before_in = before * steps / speed
            if self._spared > 0:
                late_end = end + self._spared * (work.size * steps / speed)
        update_in = course.update_in(now)
        version = course.version
        return Offer("members", version, work, end, before, before_in, update_in, late_end)

    def _end(self, kind: TaskKind, units: int) -> float:
        """Seconds until the last of so many units is expected, from a worker of usual speed."""
        roster, least = self._roster, self._minimum_seconds
        speed = roster.speed
        if not speed:
            return math.inf
        steps = self._leases.steps[kind]
        last = SLOWER * steps / roster.typical_speed
        return units * steps / speed + (last if last > least else least)
