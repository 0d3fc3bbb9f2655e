"""What the host sees of a run: one live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import shutil
import sys
import time
from typing import TextIO

from coordinator.progress import Progress
from protocol.figures import shown

PLAIN_EVERY = 2.0
"""Seconds between plain progress lines."""


class Console:
    """Writes progress and events to `stream`; the live line is redrawn below the events."""

    def __init__(self, stream: TextIO | None = None, events: bool = True) -> None:
        self._stream = stream or sys.stderr
        self._live = self._stream.isatty()
        self._events = events
        self._drawn = False
        self._written = 0.0
        self._begin = time.monotonic()
        self._last = (self._begin, 0, 0)
        self._rates = (0.0, 0.0)

    def go_on(self, progress: Progress) -> None:
        """What counted before this process is no speed of it."""
        self._last = (time.monotonic(), progress.episodes, progress.steps)

    def say(self, line: str) -> None:
        """A line that stays."""
        self.clear()
        print(line, file=self._stream, flush=True)

    def event(self, line: str) -> None:
        """Something that happened in the pool; left out where the host wants it quiet."""
        if self._events:
            self.say(f"{time.strftime('%H:%M:%S')} {line}")

    def update(self, progress: Progress) -> None:
        """The state of the run after an update."""
        now = time.monotonic()
        if self._due(now):
            self._show(self._line(progress, now), now)

    def follow(self, version: int, goal: int) -> None:
        """How far a run is that somebody else leads."""
        now = time.monotonic()
        if self._due(now):
            behind = f", {goal - version:,} behind" if goal > version else ""
            self._show(f"{now - self._begin:.1f} s  following: version {version:,}{behind}", now)

    def _due(self, now: float) -> bool:
        return self._live or now - self._written >= PLAIN_EVERY

    def _show(self, line: str, now: float) -> None:
        self._written = now
        if self._live:
            self.clear()
            width = shutil.get_terminal_size().columns - 1
            self._stream.write(line[:width])
            self._stream.flush()
            self._drawn = True
        else:
            print(line, file=self._stream, flush=True)

    def close(self, progress: Progress) -> None:
        """The last state, as a line that stays."""
        line = self._line(progress, time.monotonic())
        self.say(line)

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

    def clear(self) -> None:
        """Take the live line away, so that something else can be said."""
        if self._drawn:
            self._stream.write("\r\x1b[2K")
            self._drawn = False
