"""Disputes of two workers of one numeric class, and who is asked to settle them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from coordinator.pool.checks import Check, Checks
from coordinator.pool.classes import Classes
from coordinator.pool.roster import Roster
from coordinator.pool.work import Work
from coordinator.trust import Answer, Comparison, Dispute, Trust
from coordinator.trust.dispute import SUPPORTERS
from protocol.messages import TaskKind

JURORS = 4
"""Workers that are asked at once in one dispute."""
MOST_DISPUTES = 64
"""At once; who is wrong is so again."""
ENOUGH = 16
"""Established workers of a class that are enough to settle its disputes among themselves; where
they are fewer newcomers have a say as well: a few who came to be believed by copying must not be
left to judge each other."""
HEARD_AFTER = 3
"""Tasks of such a newcomer that others confirmed: keys cost nothing, and a crowd that only lies
must not be heard."""
MOST_OF_ONE = 2
"""Of them that one worker is in."""


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


class Disputes:
    """Has others of the class evaluate what two of it disagree about, until it is clear."""

    def __init__(
        self,
        trust: Trust,
        classes: Classes,
        roster: Roster,
        checks: Checks,
        convict: Callable[[str, str], None],
    ) -> None:
        """All parts are the pool's own, shared with it; `convict` takes who is wrong, and why."""
        self._trust = trust
        self._classes = classes
        self._roster = roster
        self._checks = checks
        self._convict = convict
        self._cases: list[Case] = []

    def __bool__(self) -> bool:
        return bool(self._cases)

    def open(self, mine: Answer, theirs: Answer, found: Comparison) -> None:
        """Two of one class do not agree."""
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

    def hear(self, dispute: Dispute, answer: Answer) -> None:
        """Somebody who was asked says what is right."""
        case = next((case for case in self._cases if case.dispute is dispute), None)
        covers = answer.first <= dispute.first and dispute.end <= answer.end
        if dispute.sums:
            covers = (answer.first, answer.end) == (dispute.first, dispute.end)
        if case is None or not covers or np.isnan(answer.returns).any():
            return
        dispute.hear(answer.worker, answer.key(dispute.first, dispute.end, dispute.sums))
        self._decide(case)

    def is_party(self, worker: str) -> bool:
        """Whether a worker said something that others deny, and nobody decided who is right."""
        return any(worker in case.dispute.said for case in self._cases)

    def concern(self, kind: TaskKind, version: int) -> bool:
        """Whether any is about that version."""
        return any(case.kind == kind and case.dispute.version == version for case in self._cases)

    def forget(self, worker: str) -> None:
        """Nothing that a worker said so far is compared with any more."""
        for case in self._cases:
            case.dispute.said.pop(worker, None)

    def look(self, is_current: Callable[[int], bool]) -> None:
        """Time has passed: ask more where it takes more, and let go what is too old."""
        for case in list(self._cases):
            if is_current(case.dispute.version):
                self._ask(case)
                continue
            self._close(case)
            for worker in case.dispute.said:
                self._trust.doubt(worker)

    def _decide(self, case: Case) -> None:
        dispute = case.dispute
        mute = {w for w in dispute.said if not self.has_a_say(w, dispute.numeric)}
        electorate = len(set(self._class(dispute.numeric)) | (dispute.said.keys() - mute))
        wrong = dispute.wrong(electorate, self._trust.trusted, mute)
        if wrong is None:
            self._ask(case)
            return
        self._close(case)
        unit = "direction" if case.kind == "members" else "centre episode"
        what = "its observation sums from" if dispute.sums else "its returns for"
        for worker in sorted(wrong):
            right = len(dispute.said.keys() - wrong - mute)
            self._convict(
                worker,
                f"{what} {unit} {dispute.first} of version {dispute.version} are not what "
                f"{right} other{'s' * (right != 1)} got",
            )

    def _close(self, case: Case) -> None:
        self._cases.remove(case)
        self._checks.drop(lambda check: check.dispute is case.dispute)

    def _ask(self, case: Case) -> None:
        """Ask as many more as it takes, so many at once."""
        dispute = case.dispute
        case.checks = [check for check in case.checks if self._checks.is_pending(check)]
        class_ = set(self._class(dispute.numeric))
        left = len(class_ - case.asked - dispute.said.keys())
        if self._trust.trusted & class_:
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
            self._checks.waiting.appendleft(check)

    def has_a_say(self, worker: str, numeric: bytes) -> bool:
        """Whether a worker of this class may settle its disputes."""
        if self._trust.is_believed(worker):
            return True
        believed = self._classes.believed(numeric)
        if believed >= ENOUGH or self._trust.is_suspected(worker):
            return False
        if believed < SUPPORTERS:
            return True
        record = self._trust.records.get(worker)
        return record is not None and record.confirmed >= HEARD_AFTER

    def _class(self, numeric: bytes) -> list[str]:
        """The workers of a class that take work and could be asked."""
        eligible = self._roster.eligible
        return [
            worker
            for worker in self._classes.workers(numeric)
            if worker in eligible and self.has_a_say(worker, numeric)
        ]
