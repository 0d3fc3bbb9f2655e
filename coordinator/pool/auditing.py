"""Has what workers return evaluated by others too, and draws the consequences."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from coordinator.pool.batches import Batches
from coordinator.pool.checks import Check, Checks
from coordinator.pool.classes import ALL, Classes
from coordinator.pool.course import Course
from coordinator.pool.disputes import Disputes
from coordinator.pool.events import Arrived, Command, Contribution, Happened
from coordinator.pool.holding import HeldBack, Holding
from coordinator.pool.leases import Leases
from coordinator.pool.roster import Roster, Session
from coordinator.pool.sentences import Sentences
from coordinator.pool.trials import Trials
from coordinator.pool.verdicts import VOUCHED_WITHIN, Verdicts
from coordinator.pool.work import Lease, Work
from coordinator.trust import Answer, Comparison, Trust, compare, parts
from coordinator.trust.dispute import SUPPORTERS
from coordinator.trust.sums import are_far
from protocol.spec import RunSpec

PATIENCE = 30.0
"""Seconds without a result of anybody else after which a newcomer may do again what it did, and of
anybody established after which those count as if they were not there; more where tasks are long."""
MEDIANS = 3.0
"""Likewise, times what the median task takes."""
SHARE = 16
"""Of a batch one direction in so many counts at most by the word of newcomers alone, where anybody
is established."""


class Auditing:
    """Compares results, holds back those of newcomers, and asks others where two do not agree.

    Results of who is not believed free their directions again, so that others evaluate them in
    ordinary tasks; what these return is compared. Once enough are established newcomers are given
    nothing that a batch waits for: they are tried with what the established have returned. Of what
    the believed return a part is leased once more. Nothing that is evaluated for a check counts in
    an update.
    """

    def __init__(
        self,
        spec: RunSpec,
        trust: Trust,
        course: Course,
        roster: Roster,
        leases: Leases,
        batches: Batches,
        sentences: Sentences,
        commands: list[Command],
    ) -> None:
        """All parts are the pool's own, shared with it; `commands` takes what is to be done."""
        self.trust = trust
        self.classes = Classes(trust)
        self.checks = Checks()
        self.spent = 0
        """directions that others evaluated for checks; episodes of the centre are not counted"""
        self._course = course
        self._roster = roster
        self._leases = leases
        self._batches = batches
        self._staleness = spec.pool.max_staleness
        self._sentences = sentences
        self._commands = commands
        self._whole = spec.normalizer.enabled
        self._dims = spec.environment.observation.size
        self._far: dict[int, set[str]] = {}
        """workers by version whose observation sums are out of the band"""
        self._window = spec.versions_kept - 1
        self.amend(spec)
        self._latest = self._earlier = ("", -math.inf)
        """the worker that was there last, and the last other one, each with the time"""
        self._believed_at = -math.inf
        """when somebody believed was there last"""
        self._now = -math.inf
        self._held = Holding()
        self._trials = Trials(trust, self.classes, self._whole)
        self._disputes = Disputes(trust, self.classes, roster, self.checks, self._convict)
        self.centres = Verdicts(
            trust,
            self.checks,
            self._disputes,
            _answer,
            self._audit,
            self._is_lone,
            lambda: max(VOUCHED_WITHIN, MEDIANS * leases.median_seconds),
        )
        self._by_newcomers: Counter[int] = Counter()
        """directions by batch that count by the word of newcomers"""

    def amend(self, spec: RunSpec) -> None:
        """These settings hold now."""
        self._most_by_newcomers = max(1, spec.directions // SHARE)

    # Whom the pool has.

    @property
    def has_established(self) -> bool:
        """Whether so many who are here are believed that newcomers stand behind them: what a few
        can do would hold all others up. They have to return something now and then."""
        if self.classes.believed(ALL) < SUPPORTERS:
            return False
        silent = self._now - self._believed_at
        return silent < PATIENCE or silent < self._patience

    @property
    def _patience(self) -> float:
        return max(PATIENCE, MEDIANS * self._leases.median_seconds)

    def is_known(self, worker: str) -> bool:
        """Whether a worker need not stand behind others: it is believed, or hardly anybody is."""
        return self.trust.is_believed(worker) or not self.has_established

    def was_there(self, worker: str, now: float) -> None:
        """A worker came, or returned something."""
        self._now = now
        if worker != self._latest[0]:
            self._earlier = self._latest
        self._latest = worker, now
        if self.trust.is_believed(worker):
            self._believed_at = now

    def awaits_others(self, worker: str) -> bool:
        """Whether what is held back of a newcomer is for others: as long as any return a thing."""
        if self.trust.is_believed(worker):
            return False
        name, last = self._latest
        return self._now - (self._earlier[1] if name == worker else last) < self._patience

    def may_judge(self, worker: str) -> bool:
        """Whether a worker is given episodes of the centre, which nobody evaluates again: who is
        believed, or where nobody is, or nobody else does anything, who is not suspected."""
        if self.trust.is_believed(worker):
            return True
        if self.trust.standing(worker) != "new":
            return False
        return not self.has_established or not self.awaits_others(worker)

    # Results.

    def holds_back(self, event: Arrived, lease: Lease | None, session: Session | None) -> bool:
        """Compare a result of members with what is held back, and see whether it has to wait for
        somebody else's word as well: then it does not count, and what it is of is free again."""
        worker = event.session.worker
        believed = self.trust.is_believed(worker)
        standing = self.trust.standing(worker)
        suspected = self.trust.is_suspected(worker)
        if suspected and lease is None:
            return True  # of before it was quarantined
        index = self._batches.index(event.first)
        far = self._whole and self._sums_are_far(event)
        end = event.first + event.count
        again = lease is None or not lease.owes(event.first, end)
        if again and session is not None and len(self._roster.eligible) > 1:
            return far or not believed  # what a newcomer says again is no second word for it
        if believed and not far and index not in self._held:
            return False
        mine = _answer(event, session)
        confirmed = np.zeros(event.count, dtype=bool)
        own, others = confirmed.copy(), {worker}
        for held in list(self._held.near(index, event.first, end)):
            theirs = held.answer
            rows = slice(max(0, theirs.first - event.first), max(0, theirs.end - event.first))
            if theirs.version != event.version:
                continue
            if theirs.worker == worker:
                own[rows] = True
                continue
            others.add(theirs.worker)
            found = None if held.forgotten else compare(mine, theirs)
            agrees = found is not None and self._weigh(mine, theirs, found)
            if self.trust.standing(worker) != standing:
                return True  # it was sentenced for this one
            if found is not None and agrees:
                confirmed[rows] |= found.exact or self._are_known(mine.numeric, theirs.numeric)
                self._confirm(held, index, event, found.exact)
        if far:
            # Others do its directions: whoever agrees in returns may have seen other frames.
            self.trust.doubt(worker)
        elif believed:
            return False
        elif not suspected:
            if confirmed.all() and self._may_count(index, event.count):
                return False
            if len(others) == 1 and self._roster.eligible <= others:
                return False  # nobody is here who could say otherwise
            if own.all() and lease is not None and not lease.begun_before:
                self._audit(mine, 0, event.count)
                return False  # it was given this anew, as nobody came to say otherwise
        if not own.all():
            self._held.hold(index, mine, event.task)
        return True

    def _sums_are_far(self, event: Arrived) -> bool:
        """Whether the observation sums of a result lie where hardly anybody's of its version do."""
        if not event.version or not event.observed or not are_far(event.observed, self._dims):
            return False
        workers = self._far.setdefault(event.version, set())
        if self.is_known(event.session.worker):
            workers.add(event.session.worker)
        return len(workers) < min(SUPPORTERS, len(self._roster.eligible))

    def counted(self, event: Arrived, session: Session | None) -> None:
        """A result counts: who is new may be tried with it; where its worker is believed, have a
        part of it checked, by chance."""
        worker, answer = event.session.worker, None
        if self.classes.size(ALL) > self.classes.believed(ALL):
            answer = _answer(event, session)
            if self.trust.is_believed(worker) or not self.has_established:
                self._trials.counted(answer)
        if len(self._roster.eligible) < 2 or not self.trust.is_believed(worker):
            return
        lone = session is not None and self._is_lone(session.numeric)
        part = self.trust.audited(worker, event.count, self._whole, lone)
        if part is not None:
            self._audit(answer or _answer(event, session), *part)

    def closes(self, version: int, contributions: Sequence[Contribution]) -> None:
        """An update uses these: see whose returns are not what chance gives."""
        returns = [(each.session.worker, each.returns[each.valid]) for each in contributions]
        for worker, part in parts(returns).items():
            if self.trust.used(worker, version, part):
                self._commands.append(
                    Happened(f"{worker} drifts: its ranks are not what chance gives; it is audited")
                )

    def _are_known(self, one: bytes, other: bytes) -> bool:
        """Whether what a worker of one class confirms of one of the other is worth anything:
        anybody may claim a class of its own, and those who do may be of one mind."""
        return max(map(self.classes.size, (one, other))) > 1 or not self.classes.any_shared

    def _is_lone(self, numeric: bytes) -> bool:
        """Whether too few of a class are believed to tell what is true in it, and others are."""
        return self.has_established and self.classes.believed(numeric) < SUPPORTERS

    def _audit(self, answer: Answer, begin: int, count: int) -> Check | None:
        """Have so many units of an answer, after so many of it, evaluated by somebody else, if
        anybody else is here."""
        if self.checks.full or len(self._roster.eligible) < 2:
            return None
        alone = self.classes.size(answer.numeric) < 2 or self._is_lone(answer.numeric)
        numeric = b"" if alone else answer.numeric
        first = answer.first + begin
        check = Check(
            answer.version,
            first,
            count,
            answer.kind,
            Work(first, first + count),
            numeric,
            {answer.worker},
            answer=answer,
        )
        self.checks.waiting.append(check)
        return check

    def answered(
        self, check: Check, event: Arrived, lease: Lease | None, session: Session | None
    ) -> None:
        """Somebody did a check, or a part of it that is to come; with the last one a task counts
        as one that others confirmed."""
        if lease is None or not lease.owes(event.first, event.first + event.count):
            return
        mine = _answer(event, session)
        check.work.accept(event.first, np.ones(event.count, dtype=bool), lease=lease)
        if check.trial is None and event.kind == "members":
            self.spent += event.count
        if check.dispute is not None:
            self._disputes.hear(check.dispute, mine)
            return
        trial, said = check.trial, [] if check.answer is None else [check.answer]
        if trial is not None:
            said = list(trial.answers)
        earned: set[str] = set()
        for theirs in said:
            found = self._agree(mine, theirs)
            if found is None or check.work.missing or theirs.worker in earned:
                continue
            earned.add(theirs.worker)
            self._earns(theirs.worker, mine.worker, found.exact)
            if trial is not None:
                self._earns(mine.worker, theirs.worker, found.exact)
        if trial is not None:
            trial.add(mine)

    def is_trial(self, lease: Lease) -> bool:
        """Whether what is leased is there to see whether its worker tells the truth."""
        check = self.checks.of(lease)
        return check is not None and check.trial is not None

    def brought_nothing(self, event: Arrived, lease: Lease) -> bool:
        """Whether this is of a trial, and all of it fails that did not for somebody else."""
        if not event.failed or not np.isnan(event.returns).all():
            return False
        check = self.checks.of(lease)
        if check is None or check.trial is None:
            return False
        return check.trial.has_returns(event.first, event.first + event.count)

    def _agree(self, mine: Answer, theirs: Answer) -> Comparison | None:
        """What a comparison with what is checked shows, where they confirm each other."""
        if self.trust.standing(theirs.worker) == "banned":
            return None
        found = compare(mine, theirs)
        return None if found is None or not self._weigh(mine, theirs, found) else found

    # Leases of checks.

    @property
    def has_checks(self) -> bool:
        """Whether there is anything to check, or to try somebody with."""
        return bool(self.checks.waiting) or bool(self._trials)

    def stands_behind(self, worker: str) -> bool:
        """Whether a worker is given nothing that counts: others are established, and at work."""
        return self.has_established and not self.trust.is_believed(worker)

    def tries_first(self, worker: str) -> bool:
        """Whether a newcomer is tried before it is given what counts: of what is held back of it
        the few who are believed hardly evaluate anything again before its version is over."""
        return 0 < self.classes.believed(ALL) < SUPPORTERS and self.trust.standing(worker) == "new"

    def check_for(self, session: Session) -> Check | None:
        """What this session may check; it waits no more for anybody."""
        if self.trust.is_suspected(session.id.worker):
            return None
        return self.checks.take(lambda check: self._suits(check, session))

    def trial_for(self, session: Session) -> Check | None:
        """What this session is tried with, where it is not believed."""
        if self._disputes.is_party(session.id.worker):
            return None
        return self._trials.trial_for(session, self._is_current)

    def _suits(self, check: Check, session: Session) -> bool:
        worker = session.id.worker
        if worker in check.asked or (check.numeric and session.numeric != check.numeric):
            return False
        if self.trust.is_believed(worker):
            return True
        if check.dispute is not None:
            return self._disputes.has_a_say(worker, session.numeric)
        # At the start, and in a class of newcomers, they have to judge each other.
        return self.classes.believed(check.numeric or ALL) < SUPPORTERS

    def look(self, now: float) -> None:
        """Time has passed: what was handed back waits again, what is too old is let go."""
        self._now = now
        self.checks.look(self._leases.out)
        self.centres.drop(lambda version: not self._is_current(version))
        for version in [version for version in self._far if not self._is_current(version)]:
            del self._far[version]
        if not (self.checks.waiting or self._disputes or self._held or self._by_newcomers):
            return
        self.checks.drop(lambda check: not self._is_current(check.version))
        self._disputes.look(self._is_current)
        oldest = self._course.version - self._staleness
        self._held.drop_before(oldest)
        for index in [index for index in self._by_newcomers if index < oldest]:
            del self._by_newcomers[index]

    def _is_current(self, version: int) -> bool:
        """Whether all workers still have the parameters of a version."""
        return self._course.version - version < self._window

    # What a comparison leads to.

    def _weigh(self, mine: Answer, theirs: Answer, found: Comparison) -> bool:
        """Draw the consequences of a comparison: whether the answers confirm each other."""
        if found.exact:
            if not found.agrees:
                self._disputes.open(mine, theirs, found)
            return found.agrees
        for one, other in ((mine, theirs), (theirs, mine)):
            if not self.is_known(other.worker):
                continue
            if self.trust.compared(one.worker, other.worker, found.alike, found.unlike):
                record = self.trust.record(one.worker)
                self._convict(
                    one.worker,
                    f"of {record.alike + record.unlike} pairs it found the other member better in "
                    f"{record.unlike}, beside workers of other numeric classes",
                )
            elif (
                not found.agrees
                and self.trust.is_believed(other.worker)
                and not self.trust.is_believed(one.worker)
            ):
                self.trust.contradicted(one.worker, other.worker)
        return found.agrees

    def _confirm(self, held: HeldBack, index: int, event: Arrived, exact: bool) -> None:
        """Somebody else got what a newcomer had: of a task only the first part is worth a thing."""
        worker, other = event.session.worker, held.answer.worker
        theirs = self._held.confirmed_by(index, held.task)
        if not theirs:
            self._earns(other, worker, exact)
        theirs.add(worker)
        mine = self._held.confirmed_by(index, event.task)
        if other not in mine and not self.has_established:
            mine.add(other)
            self._earns(worker, other, exact)

    def _earns(self, worker: str, by: str, exact: bool) -> None:
        """Somebody else got the same as this worker in a task, of the same numeric class where it
        is `exact`; who is no better known earns it nothing, where others are."""
        if not self.is_known(by):
            return
        if self.trust.confirmed(worker, by, self._electorate(worker, exact), exact):
            self.classes.changed(worker)
            self._commands.append(
                Happened(f"{worker} is established: others got the same in its first tasks")
            )

    def _electorate(self, worker: str, exact: bool) -> int:
        """How many could speak for a worker: of its class where enough of that are believed."""
        if not self.has_established:
            return max(1, self.classes.size(ALL) - 1)
        if exact:
            of_class = max(map(self.classes.believed, self.classes.of(worker)), default=0)
            if of_class >= SUPPORTERS:
                return of_class
        return max(1, self.classes.believed(ALL))

    def _may_count(self, index: int, count: int) -> bool:
        """Whether newcomers may confirm each other so much more of a batch."""
        if not self.has_established:
            return True
        if self._by_newcomers[index] + count > self._most_by_newcomers:
            return False
        self._by_newcomers[index] += count
        return True

    # Consequences.

    def _convict(self, worker: str, reason: str) -> None:
        if worker in self.trust.trusted or self.trust.standing(worker) == "banned":
            return
        standing = self.trust.convict(worker, reason)
        self.classes.changed(worker)
        self._sentences.pass_on(worker, standing, reason)
        self.forget(worker)

    def forget(self, worker: str) -> None:
        """Nothing that a worker returned so far is compared with any more: it is sentenced for it
        once."""
        self._disputes.forget(worker)
        self.checks.drop(lambda check: check.answer is not None and check.answer.worker == worker)
        self._held.forget(worker)
        self.centres.forget(worker)
        self._trials.forget(worker)


def _answer(event: Arrived, session: Session | None) -> Answer:
    numeric = b"" if session is None else session.numeric
    return Answer(
        event.session.worker,
        numeric,
        event.kind,
        event.version,
        event.first,
        event.returns,
        event.lengths,
        event.observed,
    )
