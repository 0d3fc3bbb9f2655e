"""Lines for who watches a run: harmless to a terminal, and no more than a person can read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from protocol.allowance import Allowance
from protocol.figures import printable

LONGEST_LINE = 300
LINES_PER_SECOND = 10.0
LINES_AT_ONCE = 50.0
"""More than that nobody reads, and strangers could make any number: so what sessions do counts by
itself, and never hides what happens to the run."""
QUIET_LOOKS = 2
"""Looks in a row that find the same reason why nothing happens, before that is told."""


@dataclass
class _Share:
    """How many lines of one sort are told, and how many were left out since the last."""

    allowance: Allowance = field(default_factory=lambda: Allowance(LINES_PER_SECOND, LINES_AT_ONCE))
    unsaid: int = 0


class Lines:
    """What is told, line by line."""

    def __init__(self, tell: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._tell = tell
        self._clock = clock
        self._of_run, self._of_sessions = _Share(), _Share()
        self._quiet = ""
        self._looks = 0

    def say(self, line: str) -> None:
        """Tell a line of the run, unless there were too many. It may quote strangers, who must not
        control a terminal."""
        self._tell_of(self._of_run, line)

    def say_of_session(self, line: str) -> None:
        """Likewise what a session did."""
        self._tell_of(self._of_sessions, line)

    def _tell_of(self, share: _Share, line: str) -> None:
        if not share.allowance.take(1.0, self._clock()):
            share.unsaid += 1
            return
        if share.unsaid:
            self._tell(f"{share.unsaid:,} lines are left out")
            share.unsaid = 0
        self._tell(printable(line[:LONGEST_LINE]))

    def look(self, quiet: str) -> None:
        """Why nothing happens, empty while something does: told once, where it lasts."""
        if quiet != self._quiet:
            self._quiet, self._looks = quiet, 0
        self._looks += 1
        if quiet and self._looks == QUIET_LOOKS:
            self.say(f"waiting: {quiet}")
