"""Lines for who watches a run: harmless to a terminal, and no more than a person can read."""

from __future__ import annotations

from collections.abc import Callable

from protocol.allowance import Allowance

LONGEST_LINE = 300
LINES_PER_SECOND = 10.0
LINES_AT_ONCE = 50.0
"""More than that nobody reads, and strangers could make any number."""
QUIET_LOOKS = 2
"""Looks in a row that find the same reason why nothing happens, before that is told."""


class Lines:
    """What is told, line by line."""

    def __init__(self, tell: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._tell = tell
        self._clock = clock
        self._allowance = Allowance(LINES_PER_SECOND, LINES_AT_ONCE)
        self._unsaid = 0
        self._quiet = ""
        self._looks = 0

    def say(self, line: str) -> None:
        """Tell a line, unless there were too many. It may quote strangers, who must not control a
        terminal."""
        if not self._allowance.take(1.0, self._clock()):
            self._unsaid += 1
            return
        if self._unsaid:
            self._tell(f"{self._unsaid:,} lines are left out")
            self._unsaid = 0
        self._tell("".join(c if c.isprintable() else "?" for c in line[:LONGEST_LINE]))

    def look(self, quiet: str) -> None:
        """Why nothing happens, empty while something does: told once, where it lasts."""
        if quiet != self._quiet:
            self._quiet, self._looks = quiet, 0
        self._looks += 1
        if quiet and self._looks == QUIET_LOOKS:
            self.say(f"waiting: {quiet}")
