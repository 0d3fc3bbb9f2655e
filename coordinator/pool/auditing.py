"""Has what workers return evaluated by others too, and draws the consequences."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from coordinator.pool.batches import Batches
from coordinator.pool.classes import ALL, Classes
from coordinator.pool.course import Course
from coordinator.pool.events import Arrived, Command, Happened
from coordinator.pool.leases import Leases
from coordinator.pool.roster import Roster, Session
from coordinator.pool.sentences import Sentences
from coordinator.pool.work import Lease, Work
from coordinator.trust import Answer, Comparison, Dispute, Trust, compare
from coordinator.trust.dispute import SUPPORTERS
from protocol.messages import TaskKind
from protocol.spec import RunSpec

JURORS = 4
"""Workers that are asked at once in one dispute."""
MOST_DISPUTES = 64
"""At once; who is wrong is so again."""
MOST_OF_ONE = 2
"""Of them that one worker is in."""
MOST_WAITING = 4096
"""Checks that wait for somebody to do them, at most."""
LOOKS = 16
"""Checks that are looked at for one session: bounds what an event costs."""
PATIENCE = 30.0
"""Seconds without a result of anybody else after which a newcomer may do again what it did."""
NEAR = 64
"""Directions that share a place in the index of what is held back."""
SHARE = 16
"""Of a batch one direction in so many counts at most by the word of newcomers alone, where anybody
is established."""


@dataclass(eq=False, slots=True)
class Check:
    """Units that a worker is to evaluate for no update: an audit of an answer, or a dispute."""

    version: int
    first: int
    count: int
    kind: TaskKind
    work: Work
    numeric: bytes
    """the class that is asked for; empty: any, for what it is worth"""
    asked: set[str]
    """workers that are not to be asked: they answer already, or did"""
    answer: Answer | None = None
    dispute: Dispute | None = None


@dataclass(eq=False, slots=True)
class HeldBack:
    """A result of a newcomer, which counts for nothing but to compare with."""

    answer: Answer
    confirmed: bool = False
    """somebody else got the same"""
    forgotten: bool = False
    """its worker was sentenced since"""


@dataclass(eq=False, slots=True)
class Case:
    """A dispute that is open, and who was asked."""

    dispute: Dispute
    kind: TaskKind
    asked: set[str]
    checks: list[Check] = field(default_factory=list)

    @property
    def name(self) -> tuple[TaskKind, int, int, int, bytes]:
        """What it is about."""
        about = self.dispute
        return self.kind, about.version, about.first, about.end, about.numeric


class Auditing:
    """Compares results, holds back those of newcomers, and asks others where two do not agree.

    Results of who is not believed free their directions again, so that others evaluate them in
    ordinary tasks; what these return is compared. Of what the believed return a part is leased once
    more. Nothing that is evaluated for a check counts in an update.
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
        self.waiting: list[Check] = []
        """checks that nobody does yet"""
        self.spent = 0
        """directions evaluated for checks"""
        self._course = course
        self._roster = roster
        self._leases = leases
        self._batches = batches
        self._staleness = spec.pool.max_staleness
        self._sentences = sentences
        self._commands = commands
        self._whole = spec.normalizer.enabled
        self._window = spec.versions_kept - 1
        self._most_by_newcomers = max(1, spec.directions // SHARE)
        self._latest = self._earlier = ("", -math.inf)
        """the worker that was there last, and the last other one, each with the time"""
        self._out: dict[int, Check] = {}
        """by task"""
        self._cases: list[Case] = []
        self._held: dict[int, dict[int, list[HeldBack]]] = {}
        """by batch, then by place in it"""
        self._by_newcomers: Counter[int] = Counter()
        """directions by batch that count by the word of newcomers"""

    # Whom the pool has.

    @property
    def has_established(self) -> bool:
        """Whether so many who are here are believed that newcomers stand behind them: what a few
        can do would hold all others up."""
        return self.classes.believed(ALL) >= SUPPORTERS

    def is_known(self, worker: str) -> bool:
        """Whether a worker need not stand behind others: it is believed, or hardly anybody is."""
        return self.trust.is_believed(worker) or not self.has_established

    def was_there(self, worker: str, now: float) -> None:
        """A worker came, or returned something."""
        if worker != self._latest[0]:
            self._earlier = self._latest
        self._latest = worker, now

    def awaits_others(self, worker: str, now: float) -> bool:
        """Whether what is held back of a newcomer is for others: as long as any return a thing."""
        if self.trust.is_believed(worker):
            return False
        name, last = self._latest
        return now - (self._earlier[1] if name == worker else last) < PATIENCE

    def may_judge(self, worker: str, now: float) -> bool:
        """Whether a worker is given episodes of the centre, which nobody evaluates again: who is
        believed, or where nobody is, or nobody else does anything, who is not suspected."""
        if self.trust.is_believed(worker):
            return True
        if self.trust.standing(worker) != "new":
            return False
        return not self.has_established or not self.awaits_others(worker, now)

    def _class(self, numeric: bytes) -> list[str]:
        """The workers of a class that take work and could be asked."""
        eligible, is_suspected = self._roster.eligible, self.trust.is_suspected
        return [
            worker
            for worker in self.classes.workers(numeric)
            if worker in eligible and not is_suspected(worker)
        ]

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
        if believed and index not in self._held:
            return False
        mine = _answer(event, session)
        confirmed = np.zeros(event.count, dtype=bool)
        own, others = confirmed.copy(), {worker}
        for held in list(self._near(index, event.first, event.first + event.count)):
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
            if agrees:
                confirmed[rows] = True
                self._confirm(held, worker)
        if believed:
            return False
        if suspected:
            self._hold(index, mine)
            return True
        if confirmed.all() and self._may_count(index, event.count):
            return False
        if len(others) == 1 and self._roster.eligible <= others:
            return False  # nobody is here who could say otherwise
        if own.all():
            self._audit(mine, 0, event.count)
            return False  # nobody came to say otherwise
        self._hold(index, mine)
        return True

    def counted(self, event: Arrived, session: Session | None) -> None:
        """A result of somebody believed counts: have a part of it checked, by chance."""
        worker = event.session.worker
        if len(self._roster.eligible) < 2 or not self.trust.is_believed(worker):
            return
        part = self.trust.audited(worker, event.count, self._whole)
        if part is not None:
            self._audit(_answer(event, session), *part)

    def _audit(self, answer: Answer, begin: int, count: int) -> None:
        """Have so many units of an answer, after so many of it, evaluated by somebody else."""
        if len(self.waiting) >= MOST_WAITING:
            return
        numeric = answer.numeric if self.classes.size(answer.numeric) > 1 else b""
        first = answer.first + begin
        self.waiting.append(
            Check(
                answer.version,
                first,
                count,
                answer.kind,
                Work(first, first + count),
                numeric,
                {answer.worker},
                answer=answer,
            )
        )

    def answered(
        self, check: Check, event: Arrived, lease: Lease | None, session: Session | None
    ) -> None:
        """Somebody did a check, or a part of it."""
        mine = _answer(event, session)
        check.work.accept(event.first, np.ones(event.count, dtype=bool), lease=lease)
        self.spent += event.count
        if check.dispute is not None:
            self._hear(check.dispute, mine)
            return
        theirs = check.answer
        if theirs is None or self.trust.standing(theirs.worker) == "banned":
            return
        found = compare(mine, theirs)
        if found is not None and self._weigh(mine, theirs, found):
            self._earns(theirs.worker, mine.worker)

    # Leases of checks.

    def check_for(self, session: Session) -> Check | None:
        """What this session may check; it waits no more for anybody."""
        if self.trust.is_suspected(session.id.worker):
            return None
        for place, check in enumerate(self.waiting[:LOOKS]):
            if self._suits(check, session):
                del self.waiting[place]
                return check
        return None

    def _suits(self, check: Check, session: Session) -> bool:
        worker = session.id.worker
        if worker in check.asked or (check.numeric and session.numeric != check.numeric):
            return False
        if self.trust.is_believed(worker):
            return True
        # At the start, and in a class of newcomers, they have to judge each other.
        return self.classes.believed(check.numeric or ALL) < SUPPORTERS

    def leased(self, check: Check, lease: Lease) -> None:
        """A session does a check now."""
        check.asked.add(lease.session.worker)
        self._out[lease.task] = check

    def of(self, lease: Lease | None) -> Check | None:
        """The check that a lease is of."""
        return None if lease is None or not self._out else self._out.get(lease.task)

    def look(self) -> None:
        """Time has passed: what was handed back waits again, what is too old is let go."""
        for task, check in list(self._out.items()):
            if task not in self._leases.out:
                del self._out[task]
                if check.work.unleased.total:
                    self.waiting.append(check)
        if not (self.waiting or self._cases or self._held or self._by_newcomers):
            return
        self.waiting = [c for c in self.waiting if self._is_current(c.version)]
        for case in list(self._cases):
            if not self._is_current(case.dispute.version):
                self._cases.remove(case)
                self._drop_checks(case)
                for worker in case.dispute.said:
                    self.trust.doubt(worker)
            else:
                self._ask(case)
        oldest = self._course.version - self._staleness
        for index in [index for index in self._held if index < oldest]:
            del self._held[index]
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
                self._open(mine, theirs, found)
            return found.agrees
        for one, other in ((mine, theirs), (theirs, mine)):
            if not self.trust.is_believed(other.worker):
                continue
            if self.trust.compared(one.worker, other.worker, found.alike, found.unlike):
                record = self.trust.record(one.worker)
                self._convict(
                    one.worker,
                    f"of {record.alike + record.unlike} pairs it found the other member better in "
                    f"{record.unlike}, beside workers of other numeric classes",
                )
            elif not found.agrees and not self.trust.is_believed(one.worker):
                self.trust.contradicted(one.worker, other.worker)
        return found.agrees

    def _confirm(self, held: HeldBack, worker: str) -> None:
        """Somebody else got what a newcomer had."""
        other = held.answer.worker
        if not held.confirmed:
            held.confirmed = True
            self._earns(other, worker)
        if not self.has_established:
            self._earns(worker, other)

    def _earns(self, worker: str, by: str) -> None:
        """Somebody else got the same as this worker in a task; who is no better known earns it
        nothing, where others are."""
        if not self.is_known(by):
            return
        voters = self.classes.believed(ALL) if self.has_established else self.classes.size(ALL) - 1
        electorate = max(1, voters)
        if self.trust.confirmed(worker, by, electorate):
            self.classes.changed(worker)
            self._commands.append(
                Happened(f"{worker} is established: others got the same in its first tasks")
            )

    def _may_count(self, index: int, count: int) -> bool:
        """Whether newcomers may confirm each other so much more of a batch."""
        if not self.has_established:
            return True
        if self._by_newcomers[index] + count > self._most_by_newcomers:
            return False
        self._by_newcomers[index] += count
        return True

    # Disputes.

    def _open(self, mine: Answer, theirs: Answer, found: Comparison) -> None:
        """Two of one class do not agree: have others of the class say what is right."""
        if found.differs is None:
            first, end = mine.first, mine.end
        else:
            first, end = found.differs, found.differs + 1
        name = (mine.kind, mine.version, first, end, mine.numeric)
        for case in self._cases:
            if case.name == name:
                break
        else:
            parties = Counter(worker for each in self._cases for worker in each.dispute.said)
            busy = max(parties[mine.worker], parties[theirs.worker]) >= MOST_OF_ONE
            if busy or len(self._cases) >= MOST_DISPUTES:
                return
            dispute = Dispute(mine.version, first, end, mine.numeric, found.differs is None)
            case = Case(dispute, mine.kind, set())
            self._cases.append(case)
        for answer in (mine, theirs):
            case.asked.add(answer.worker)
            case.dispute.hear(answer.worker, answer.key(first, end, case.dispute.sums))
        self._decide(case)

    def _hear(self, dispute: Dispute, answer: Answer) -> None:
        """Somebody who was asked says what is right."""
        case = next((case for case in self._cases if case.dispute is dispute), None)
        covers = answer.first <= dispute.first and dispute.end <= answer.end
        if dispute.sums:
            covers = (answer.first, answer.end) == (dispute.first, dispute.end)
        if case is None or not covers or np.isnan(answer.returns).any():
            return
        dispute.hear(answer.worker, answer.key(dispute.first, dispute.end, dispute.sums))
        self._decide(case)

    def _decide(self, case: Case) -> None:
        dispute = case.dispute
        electorate = len(set(self._class(dispute.numeric)) | dispute.said.keys())
        wrong = dispute.wrong(electorate, self.trust.trusted)
        if wrong is None:
            self._ask(case)
            return
        self._cases.remove(case)
        self._drop_checks(case)
        unit = "direction" if case.kind == "members" else "centre episode"
        what = "its observation sums from" if dispute.sums else "its returns for"
        for worker in sorted(wrong):
            right = len(dispute.said) - len(wrong)
            self._convict(
                worker,
                f"{what} {unit} {dispute.first} of version {dispute.version} are not what "
                f"{right} other{'s' * (right != 1)} got",
            )

    def _ask(self, case: Case) -> None:
        """Ask as many more as it takes, so many at once."""
        dispute = case.dispute
        case.checks = [c for c in case.checks if c in self.waiting or c in self._out.values()]
        class_ = set(self._class(dispute.numeric))
        left = len(class_ - case.asked - dispute.said.keys())
        if self.trust.trusted & class_:
            left = min(left, 1)
        while len(case.checks) < min(JURORS, left):
            work = Work(dispute.first, dispute.end)
            check = Check(
                dispute.version,
                dispute.first,
                work.size,
                case.kind,
                work,
                dispute.numeric,
                case.asked,
                dispute=dispute,
            )
            case.checks.append(check)
            self.waiting.insert(0, check)

    def _drop_checks(self, case: Case) -> None:
        self.waiting = [check for check in self.waiting if check.dispute is not case.dispute]

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
        for case in self._cases:
            case.dispute.said.pop(worker, None)
        self.waiting = [c for c in self.waiting if c.answer is None or c.answer.worker != worker]
        for places in self._held.values():
            for near in places.values():
                for held in near:
                    held.forgotten |= held.answer.worker == worker
                near[:] = [held for held in near if not held.forgotten]

    # What is held back.

    def _hold(self, index: int, answer: Answer) -> None:
        held = HeldBack(answer)
        places = self._held.setdefault(index, {})
        for place in range(answer.first // NEAR, (answer.end - 1) // NEAR + 1):
            places.setdefault(place, []).append(held)

    def _near(self, index: int, first: int, end: int) -> Iterator[HeldBack]:
        """What is held back of units `[first, end)`, each once."""
        places = self._held.get(index)
        if not places:
            return
        seen: set[int] = set()
        for place in range(first // NEAR, (end - 1) // NEAR + 1):
            for held in places.get(place, ()):
                answer = held.answer
                if answer.first < end and first < answer.end and id(held) not in seen:
                    seen.add(id(held))
                    yield held


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
