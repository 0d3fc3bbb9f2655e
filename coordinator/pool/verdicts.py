"""Evaluations of the centre that would end a run, or be its best: others vouch for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from coordinator.pool.checks import Check, Checks
from coordinator.pool.disputes import Disputes
from coordinator.pool.events import Arrived
from coordinator.pool.roster import Session
from coordinator.trust import Answer, Trust

VOUCHED_WITHIN = 10.0
"""Seconds that others have to vouch for an evaluation, or more where tasks are long; it is
judged all the same then."""
DISPUTED = 6.0
"""So many times as long where somebody got something else."""


@dataclass(slots=True)
class Vouching:
    """What an evaluation is made of, and what of it is checked."""

    answers: list[Answer] = field(default_factory=list)
    checked: list[Answer] = field(default_factory=list)
    whole: list[Answer] = field(default_factory=list)
    """of these all is checked"""
    checks: list[Check] = field(default_factory=list)
    since: float = 0.0


class Verdicts:
    """Has what workers said of the centre evaluated by others: a part of it now and then, as of
    members; a part of all where it would be the best; all where it would end the run."""

    def __init__(
        self,
        trust: Trust,
        checks: Checks,
        disputes: Disputes,
        answer: Callable[[Arrived, Session | None], Answer],
        audit: Callable[[Answer, int, int], Check | None],
        is_lone: Callable[[bytes], bool],
        patience: Callable[[], float],
    ) -> None:
        """`answer` makes one of a result, `audit` has a part of one evaluated by somebody else,
        `patience` are seconds that others have for that."""
        self._trust = trust
        self._checks = checks
        self._disputes = disputes
        self._answer = answer
        self._audit = audit
        self._is_lone = is_lone
        self._patience = patience
        self._versions: dict[int, Vouching] = {}

    def counted(self, event: Arrived, session: Session | None) -> None:
        """Episodes of the centre count."""
        answer = self._answer(event, session)
        vouching = self._versions.setdefault(event.version, Vouching())
        vouching.answers.append(answer)
        if not self._trust.is_believed(answer.worker):
            return
        lone = self._is_lone(answer.numeric)
        part = self._trust.audited(answer.worker, event.count, False, lone)
        if part is not None:
            self._have_checked(vouching, answer, *part)

    def may_be_judged(self, version: int, whole: bool, now: float) -> bool:
        """Whether a finished evaluation is vouched for, or nobody can; its episodes are checked,
        all of them or a part of each answer."""
        vouching = self._versions.get(version)
        if vouching is None:
            return True
        asked = False
        known = vouching.whole if whole else vouching.checked
        for answer in vouching.answers:
            if answer not in known:
                count = len(answer.returns)
                part = (0, count) if whole else self._trust.part(count)
                self._have_checked(vouching, answer, *part)
                asked = True
        if asked:
            vouching.since = now
        disputed = self._disputes.concern("centre", version)
        if now - vouching.since >= self._patience() * (DISPUTED if disputed else 1.0):
            return True
        return not disputed and not any(map(self._checks.is_pending, vouching.checks))

    def forget(self, worker: str) -> None:
        """What a worker said does not count any more."""
        for vouching in self._versions.values():
            vouching.answers = [each for each in vouching.answers if each.worker != worker]

    def drop(self, is_over: Callable[[int], bool]) -> None:
        """Those versions are judged, or too old."""
        for version in [version for version in self._versions if is_over(version)]:
            del self._versions[version]

    def _have_checked(self, vouching: Vouching, answer: Answer, begin: int, count: int) -> None:
        check = self._audit(answer, begin, count)
        vouching.checked.append(answer)
        if count == len(answer.returns):
            vouching.whole.append(answer)
        if check is not None:
            vouching.checks.append(check)
