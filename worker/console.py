"""What the volunteer reads: one live line on a terminal, timestamped lines or JSON elsewhere."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
import sys
import time
from collections.abc import Callable
from typing import Any, Literal, Protocol, TextIO

from protocol.figures import printable, span
from worker.view import RunView, View

LIVE_EVERY = 0.5
"""Seconds between two changes of the live line."""
LINE_EVERY = 5.0
"""Seconds between two status lines where they stay."""
REMINDER_EVERY = 60.0
"""Seconds after which an unchanged status is written again, as a sign of life."""
LONGEST_LINE = 500

Mode = Literal["auto", "plain", "json", "quiet"]


class Say(Protocol):
    """Writes a line that stays."""

    def __call__(self, text: str, warning: bool = False) -> None:
        """A warning is shown even to who wants quiet."""


class Console(Protocol):
    """Where lines and the status go. `now` is in seconds that never go back."""

    def say(self, text: str, warning: bool = False) -> None:
        """Write a line that stays."""

    def show(self, view: View, now: float) -> None:
        """Show the status, if it is time to."""

    def close(self) -> None:
        """Leave the screen in order."""


def open_console(mode: Mode, stream: TextIO | None = None) -> Console:
    """The console for where we write to."""
    stream = stream or sys.stderr
    if mode == "json":
        return JsonConsole(stream)
    if mode == "quiet":
        return QuietConsole(stream)
    if mode == "auto" and stream.isatty():
        return LiveConsole(stream, lambda: shutil.get_terminal_size().columns)
    return PlainConsole(stream)


def _write(stream: TextIO, text: str) -> None:
    """Who read it may be gone, or the disk full: the work goes on all the same."""
    with contextlib.suppress(OSError):
        stream.write(text)
        stream.flush()


def harmless(text: str) -> str:
    """One line without control characters: much of what we show was written by strangers."""
    shown = printable(text.replace("\n", " "))
    return shown if len(shown) <= LONGEST_LINE else shown[: LONGEST_LINE - 3] + "..."


class Rates:
    """Evaluations and steps per second since the last look but one, so that figures don't jump."""

    def __init__(self) -> None:
        self._marks: list[tuple[float, int, int]] = []

    def of(self, view: View, now: float) -> tuple[float, float]:
        """(episodes per second, steps per second); looks that are too close change nothing."""
        marks = self._marks
        if not marks or now - marks[-1][0] >= 1.0:
            marks.append((now, view.episodes, view.steps))
            del marks[:-6]
        then, episodes, steps = marks[0]
        seconds = now - then
        if seconds < 0.5:
            return 0.0, 0.0
        return (view.episodes - episodes) / seconds, (view.steps - steps) / seconds


def status_line(view: View, rates: tuple[float, float]) -> str:
    """The status in one line of ASCII, what matters most before what a narrow terminal cuts off."""
    tasks = f"{view.done} done, {view.running} running"
    if view.waiting:
        tasks += f", {view.waiting} waiting"
    if len(view.runs) == 1:
        parts = [f"{view.runs[0].run} at version {view.version}", tasks]
    elif view.runs:
        parts = [tasks, f"{len(view.runs)} runs: {', '.join(map(_share, view.runs))}"]
    else:
        parts = [f"version {view.version}", tasks]
    if view.leaving:
        parts.insert(0, view.leaving)
    elif view.paused and view.running:
        parts.insert(0, f"{view.paused}, once the tasks at hand are finished")
    if view.idle_because:
        parts.append(f"idle: {view.idle_because}{_next(view.next_in)}")
    if view.done:
        parts.append(f"{short(rates[0])} evaluations/s, {short(rates[1])} steps/s")
        answered = f"{view.accepted} accepted, {view.late} late, {view.duplicate} duplicate"
        parts.append(answered + (f", {view.refused} refused" if view.refused else ""))
    if view.counted and view.share:
        updates = f"{view.counted:,} update{'s' * (view.counted != 1)}"
        parts.append(f"counted in {updates}, {_percent(view.share)} of all members")
    if view.unanswered > 1:
        parts.append(f"{view.unanswered} unanswered")
    if view.given:
        parts.append(f"{short(view.given)}B given to peers")
    return " | ".join(parts)


def _share(run: RunView) -> str:
    """What a run has had of the time, and was to have."""
    return f"{run.run} {100.0 * run.had:.0f} % of the time ({100.0 * run.wanted:.0f} % wanted)"


def _percent(share: float) -> str:
    percent = 100.0 * share
    return f"{percent:.0f} %" if percent >= 9.95 else f"{percent:.2g} %"


def _next(seconds: float | None) -> str:
    """When the next update comes, where that is worth a word."""
    if seconds is None:
        return ""
    return f"; next in about {span(seconds)}" if seconds >= 0.5 else "; the next is due"


def short(value: float) -> str:
    """A figure in at most five characters."""
    for factor, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= 9.995 * factor / 10:
            return f"{value / factor:.3g}{letter}"
    return f"{value:.3g}"


class LiveConsole:
    """A terminal: lines scroll, and below them one line is rewritten in place."""

    def __init__(self, stream: TextIO, columns: Callable[[], int]) -> None:
        self._stream = stream
        self._columns = columns
        self._line = ""
        self._shown_at = float("-inf")
        self._rates = Rates()

    def say(self, text: str, warning: bool = False) -> None:
        """Write a line above the live one."""
        _write(self._stream, f"\r\x1b[K{harmless(text)}\n{self._line}")

    def show(self, view: View, now: float) -> None:
        """Rewrite the live line."""
        rates = self._rates.of(view, now)
        if now - self._shown_at < LIVE_EVERY:
            return
        self._shown_at = now
        line = harmless(status_line(view, rates))[: max(20, self._columns() - 1)]
        if line != self._line:
            self._line = line
            _write(self._stream, f"\r\x1b[K{line}")

    def close(self) -> None:
        """Take the live line away."""
        self._line = ""
        _write(self._stream, "\r\x1b[K")


class PlainConsole:
    """A file or a pipe: timestamped lines, the status at most every few seconds."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._status = Paced()
        self._rates = Rates()

    def say(self, text: str, warning: bool = False) -> None:
        """Write a line."""
        _write(self._stream, f"{time.strftime('%H:%M:%S')} {harmless(text)}\n")

    def show(self, view: View, now: float) -> None:
        """Write the status."""
        rates = self._rates.of(view, now)
        if self._status.due(view, now):
            self.say(status_line(view, rates))

    def close(self) -> None:
        """Nothing to do."""


class QuietConsole:
    """Warnings only."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def say(self, text: str, warning: bool = False) -> None:
        """Write a warning."""
        if warning:
            _write(self._stream, f"{harmless(text)}\n")

    def show(self, view: View, now: float) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to do."""


class JsonConsole:
    """For programs: one JSON object a line, with Unix time."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._status = Paced()
        self._rates = Rates()

    def say(self, text: str, warning: bool = False) -> None:
        """Write `{"time", "kind": "line" or "warning", "text"}`."""
        self._write({"kind": "warning" if warning else "line", "text": harmless(text)})

    def show(self, view: View, now: float) -> None:
        """Write `{"time", "kind": "status", ...}` with the fields of `View` and the rates."""
        episodes, steps = self._rates.of(view, now)
        if self._status.due(view, now):
            figures = dataclasses.asdict(view)
            rates = {"evaluations_per_second": round(episodes, 1), "steps_per_second": round(steps)}
            self._write({"kind": "status", **figures, **rates})

    def close(self) -> None:
        """Nothing to do."""

    def _write(self, fields: dict[str, Any]) -> None:
        _write(self._stream, json.dumps({"time": round(time.time(), 3), **fields}) + "\n")


class Paced:
    """When a status that stays is worth writing: every few seconds if it changed."""

    def __init__(self) -> None:
        self._last: View | None = None
        self._at: float | None = None

    def due(self, view: View, now: float) -> bool:
        """Whether to write it now; if so it counts as written."""
        if self._at is None:
            self._at = now
        wait = LINE_EVERY if view != self._last else REMINDER_EVERY
        if now - self._at < wait:
            return False
        self._last, self._at = view, now
        return True
