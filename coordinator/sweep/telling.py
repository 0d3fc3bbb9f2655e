"""What a person sees of a sweep that goes on: lines, now and then one on how far it is."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Sequence

from coordinator.progress import Progress
from coordinator.sweep.judging import Verdict
from coordinator.sweep.planning import Tried

PROGRESS_EVERY = 5.0
"""Seconds between lines of progress."""
MOST_KNOWN = 10_000
_NOBODY = "waiting: no worker is here"
_COMING = re.compile(r"([a-z2-7]{16})(?: is trusted|(/[a-z2-7]{6}) .*: joined)")


class Counted:
    """Episodes and steps of all runs together, since this process began.

    Attributes:
        episodes: that counted.
        steps: of these.
    """

    def __init__(self) -> None:
        self.episodes = 0
        self.steps = 0

    def begin(self, progress: Progress) -> Callable[[Progress], None]:
        """Takes the progress of a run from now on, whatever it had counted before."""
        seen = [progress.episodes, progress.steps]

        def take(progress: Progress) -> None:
            self.episodes += progress.episodes - seen[0]
            self.steps += progress.steps - seen[1]
            seen[:] = progress.episodes, progress.steps

        return take


class Once:
    """Passes on what the runs say, but that a worker has come or is trusted once: all of a sweep's
    workers come to every run; and that none is here once until one comes to any of them."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._told: set[tuple[str, bool]] = set()
        self._nobody = False

    def __call__(self, line: str) -> None:
        """Pass on a line, unless that is known."""
        if line.startswith(_NOBODY):
            if self._nobody:
                return
            self._nobody = True
        if coming := _COMING.fullmatch(line):
            self._nobody = False
            worker = coming[1], coming[2] is None
            if worker in self._told:
                return
            if len(self._told) < MOST_KNOWN:  # anybody may come under any number of keys
                self._told.add(worker)
        self._say(line)


class Telling:
    """Writes progress at most every few seconds."""

    def __init__(self, say: Callable[[str], None], counted: Counted) -> None:
        self._say = say
        self._counted = counted
        self._began = self._then = time.monotonic()
        self._last = (0, 0)

    def look(self, tried: Sequence[Tried], verdicts: Sequence[Verdict], led: int) -> None:
        """Say how far it is, where that is due; `led`: runs that are led at this moment."""
        now = time.monotonic()
        if now - self._then < PROGRESS_EVERY:
            return
        seconds, counted = now - self._then, self._counted
        episodes, steps = counted.episodes - self._last[0], counted.steps - self._last[1]
        self._then, self._last = now, (counted.episodes, counted.steps)
        self._say(
            f"{now - self._began:.0f} s  {progress(tried, verdicts)}, {led} led now  "
            f"{episodes / seconds:,.0f} episodes/s  {steps / seconds:,.0f} steps/s"
        )


def progress(tried: Sequence[Tried], verdicts: Sequence[Verdict]) -> str:
    """How far a sweep is, in words."""
    states = Counter(each.state(v) for each, v in zip(tried, verdicts, strict=True))
    runs = [run for each in tried for run in each.runs]
    over = sum(states[state] for state in ("finished", "stopped", "failed"))
    words = f"{over} of {len(tried)} points"
    parts = [f"{states[state]} {state}" for state in ("stopped", "failed") if states[state]]
    if parts:
        words += f" ({', '.join(parts)})"
    return f"{words}, {sum(run.state == 'finished' for run in runs)} of {len(runs)} runs finished"
