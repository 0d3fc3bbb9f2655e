"""What the host sees of a run where it has no screen of its own: plain lines."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from coordinator.progress import Progress
from protocol.figures import shown

if TYPE_CHECKING:
    from coordinator.local import LocalWorkers
    from coordinator.server import Server

PROGRESS_EVERY = 2.0
"""Seconds between progress lines."""


class Console:
    """Writes progress and events to `stream`, line by line."""

    def __init__(self, stream: TextIO | None = None, events: bool = True) -> None:
        self._stream = stream or sys.stderr
        self._events = events
        self._written = 0.0
        self._begin = time.monotonic()
        self._last = (self._begin, 0, 0)
        self._rates = (0.0, 0.0)

    def go_on(self, progress: Progress, directory: Path) -> None:
        """What counted before this process is no speed of it."""
        self._last = (time.monotonic(), progress.episodes, progress.steps)

    def say(self, line: str) -> None:
        """A line that stays, where anybody reads it: the run goes on without, too."""
        with contextlib.suppress(OSError):
            print(line, file=self._stream, flush=True)

    def event(self, line: str) -> None:
        """Something that happened in the pool; left out where the host wants it quiet."""
        if self._events:
            self.say(f"{time.strftime('%H:%M:%S')} {line}")

    def update(self, progress: Progress) -> None:
        """The state of the run after an update, now and then."""
        now = time.monotonic()
        if self._due(now):
            self.say(self._line(progress, now))

    def measure(self, line: Mapping[str, Any]) -> None:
        """It is in the run directory."""

    def follow(self, version: int, goal: int) -> None:
        """How far a run is that somebody else leads."""
        now = time.monotonic()
        if self._due(now):
            behind = f", {goal - version:,} behind" if goal > version else ""
            self.say(f"{now - self._begin:.1f} s  following: version {version:,}{behind}")

    def ready(self, join: str) -> None:
        """Workers can join."""
        self.say(f"volunteers join with:  {join}")

    def lead(self, server: Server | None) -> None:
        """What happens comes by itself."""

    def employ(self, workers: LocalWorkers) -> None:
        """Nobody asks for more here."""

    def clear(self) -> None:
        """There is nothing to be taken away."""

    def close(self, progress: Progress) -> None:
        """The last state."""
        self.say(self._line(progress, time.monotonic()))

    def _due(self, now: float) -> bool:
        """Whether a line of progress is, which then counts as written."""
        due = now - self._written >= PROGRESS_EVERY
        if due:
            self._written = now
        return due

    def _line(self, progress: Progress, now: float) -> str:
        then, episodes, steps = self._last
        if now - then >= 0.5:
            seconds = now - then
            self._rates = (
                (progress.episodes - episodes) / seconds,
                (progress.steps - steps) / seconds,
            )
            self._last = (now, progress.episodes, progress.steps)
        centre = "-"
        if progress.centre is not None:
            judged = progress.centre
            centre = f"{shown(judged.mean)} (version {judged.version}, {judged.episodes} episodes)"
        members = "-" if math.isnan(progress.mean) else shown(progress.mean)
        busy = f"  busy: {progress.busy}" if progress.busy else ""
        return (
            f"{now - self._begin:.1f} s  update {progress.version}  centre {centre}  "
            f"members {members}  {self._rates[0]:,.0f} episodes/s  {self._rates[1]:,.0f} steps/s  "
            f"workers {progress.workers}  {progress.wire_bytes_per_episode:.1f} bytes/episode"
            f"{busy}"
        )
