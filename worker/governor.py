"""Decides whether a worker takes tasks, and when it leaves, of all that a volunteer wants. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from protocol.figures import span
from worker.control import Request
from worker.permission import Permission, Readings, Terms
from worker.view import View
from worker.wishes import NOTHING, Wishes

LONGEST_LOOK = 5.0
"""Seconds between two looks that may have been idle: what is longer, this machine slept."""


@dataclass(frozen=True, slots=True)
class Course:
    """What holds from now on: why no tasks are taken, and why the worker leaves once those that run
    are finished; both empty where that is not so."""

    paused: str = ""
    leave: str = ""


class Governor:
    """The volunteer's terms and words, held against the clock and what the machine tells.

    Attributes:
        wishes: the volunteer's latest words.
    """

    def __init__(self, terms: Terms, wishes: Wishes, now: float) -> None:
        """`now`: when the worker began, by the clock that `look` gets."""
        self.wishes = wishes
        self._terms = terms
        self._permission = Permission(terms)
        self._began = self._looked = now
        self._idle = 0.0

    def look(
        self, readings: Readings, view: View, unix: float, local: datetime, now: float
    ) -> Course:
        """What holds at this moment: `unix` and `local` by the clock of the machine, which may be
        set; `now` in seconds that never go back."""
        if self.wishes.paused and not self.wishes.pausing(unix):
            self.wishes = NOTHING
        passed = max(0.0, min(now - self._looked, LONGEST_LOOK))
        self._looked = now
        paused = self.wishes.reason(unix) or self._permission.judge(readings, local, now)
        return Course(paused, self._why_leave(view, bool(paused), passed, unix, now))

    def told(self, request: Request, unix: float) -> Wishes:
        """What the volunteer wants from now on, after these words."""
        if request.word == "pause":
            return self.wishes.pause(request.seconds, unix)
        if request.word == "finish":
            return self.wishes.finish(unix)
        return NOTHING if request.word == "resume" else self.wishes

    def _why_leave(self, view: View, paused: bool, passed: float, unix: float, now: float) -> str:
        terms = self._terms
        if self.wishes.finished:
            return "told to finish"
        if terms.until is not None and terms.until.over(unix, now - self._began):
            return f"--until {terms.until.text} is reached"
        if terms.most_tasks is not None and view.done >= terms.most_tasks:
            return f"--max-tasks {terms.most_tasks:,} is reached"
        if terms.exit_when_idle is not None:
            busy = paused or view.starting or bool(view.running)
            self._idle = 0.0 if busy else self._idle + passed
            if self._idle >= terms.exit_when_idle:
                return f"idle for {span(terms.exit_when_idle)} (--exit-when-idle)"
        return ""
