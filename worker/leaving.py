"""How a session comes to its end: since when no new tasks are taken, and when to leave. Pure."""

from __future__ import annotations

from worker.news import counted

WAIT_FOR_ANSWERS = 5.0
"""Seconds that we wait for answers to our last results before we leave."""
HAND_BACK_WITHIN = 1.5
"""Seconds that the evaluation processes may take to hand over what is finished of the tasks that
are given back."""


class Leaving:
    """The volunteer's wish to leave, and how far it is.

    Attributes:
        finishing: whether no new tasks are taken.
        why: where it is not the volunteer at the keyboard who wants it; empty where it is.
        handing_back: how many tasks are being given back unfinished.
    """

    def __init__(self) -> None:
        self.finishing = False
        self.why = ""
        self.handing_back = 0
        self._leave_by: float | None = None

    def finish(self, why: str = "") -> None:
        """Leave once what we hold is finished and answered for."""
        self.finishing = True
        self.why = why

    def hand_back(self, tasks: int, now: float) -> None:
        """Leave as soon as so many tasks are given back."""
        self.finishing = True
        self.handing_back = tasks
        self._leave_by = now + HAND_BACK_WITHIN

    def last_words(
        self, now: float, *, welcomed: bool, held: int, unanswered: int, done: int
    ) -> str:
        """What to say now that it is time to leave; empty while it is not.

        `held`: tasks; `unanswered`: results; `done`: tasks evaluated in this session's life.
        """
        if not self.finishing:
            return ""
        words = self._words(now, welcomed, held, unanswered, done)
        return f"{self.why}: {words}" if words and self.why else words

    def _words(self, now: float, welcomed: bool, held: int, unanswered: int, done: int) -> str:
        if self.handing_back:
            assert self._leave_by is not None
            if held and welcomed and now < self._leave_by:
                return ""
            return f"handed {counted(self.handing_back, 'task')} back and left"
        if held:
            return ""
        if self._leave_by is None:
            self._leave_by = now + WAIT_FOR_ANSWERS
        if not unanswered:
            return "left; every result is answered for" if done else "left"
        if now >= self._leave_by:
            waited = f"within {WAIT_FOR_ANSWERS:.0f} s"
            return f"left; no answer to {counted(unanswered, 'result')} {waited}"
        return ""
