"""Trials: newcomers evaluate what others have returned, so that they prove themselves at nobody's
cost, whatever is left of a batch."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from coordinator.pool.checks import Check, Tried
from coordinator.pool.classes import ALL, Classes
from coordinator.pool.roster import Session
from coordinator.pool.work import Work
from coordinator.trust import Answer, Trust
from coordinator.trust.dispute import SUPPORTERS

MOST_REMEMBERED = 64
"""Results that a newcomer may be tried with."""
PAIRS = 8
"""Directions of a trial by somebody of another numeric class, of whom only statistics tell."""
SPREAD = 7919
"""What makes trials be of any place in a task."""
MOST_WHOLE = 32
"""Directions of a result that is evaluated as a whole for the sake of its observation sums."""


class Trials:
    """Remembers the latest results that count, and makes checks of them for who is not believed."""

    def __init__(self, trust: Trust, classes: Classes, whole: bool) -> None:
        """`whole`: results have observation sums, which only whole ones can be compared by."""
        self._trust = trust
        self._classes = classes
        self._whole = whole
        self._latest: deque[Tried] = deque(maxlen=MOST_REMEMBERED)

    def __bool__(self) -> bool:
        """Whether there is anything to try somebody with who is here."""
        return bool(self._latest) and self._classes.size(ALL) > self._classes.believed(ALL)

    def counted(self, answer: Answer) -> None:
        """A result counts."""
        self._latest.append(Tried([answer]))

    def forget(self, worker: str) -> None:
        """Try nobody with what a worker returned."""
        for known in self._latest:
            known.answers[:] = [each for each in known.answers if each.worker != worker]
        if not all(known.answers for known in self._latest):
            self._latest = deque([k for k in self._latest if k.answers], MOST_REMEMBERED)

    def trial_for(self, session: Session, is_current: Callable[[int], bool]) -> Check | None:
        """What a session is tried with: best of a worker that it was not compared with yet, and of
        its own class where others of that are believed."""
        worker, numeric = session.id.worker, session.numeric
        if self._trust.is_believed(worker):
            return None
        exact = self._classes.believed(numeric) >= SUPPORTERS
        largest = MOST_WHOLE if self._whole else 1 if exact else PAIRS
        found, best = None, (False, 0)
        for known in reversed(self._latest):
            answer = known.answers[0]
            if (
                worker in known.asked
                or (exact and answer.numeric != numeric)
                or not is_current(answer.version)
            ):
                continue
            fresh = not all(self._trust.was_compared(worker, a.worker) for a in known.answers)
            worth = fresh, self._size(answer, numeric)
            if worth > best:
                found, best = known, worth
                if worth == (True, largest):
                    break  # none can be better
        if found is None:
            return None
        found.asked.add(worker)
        return self._check(found, numeric)

    def _check(self, tried: Tried, numeric: bytes) -> Check:
        """Of one direction, the same for all; of more where that tells more."""
        answer = tried.answers[0]
        count, size = len(answer.returns), self._size(answer, numeric)
        first = answer.first + min(SPREAD * answer.version % count, count - size)
        return Check(
            answer.version,
            first,
            size,
            answer.kind,
            Work(first, first + size),
            b"",
            {answer.worker},
            trial=tried,
        )

    def _size(self, answer: Answer, numeric: bytes) -> int:
        """Directions of a trial with this answer."""
        count = len(answer.returns)
        if self._whole and count <= MOST_WHOLE:
            return count
        return 1 if numeric and numeric == answer.numeric else min(PAIRS, count)
