"""A line that tells how a training stands: in a terminal or a notebook, rewritten in place."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Callable
from typing import TextIO

from coordinator.training.results import TrainingProgress
from protocol.figures import shown, span

REWRITE_SECONDS = 0.2
"""Between two states that are shown: nobody reads faster."""
NOTEBOOK = "ZMQInteractiveShell"
"""IPython's class of shell behind a notebook."""


def suitable_stream() -> TextIO | None:
    """Where a person watches; None: nobody does."""
    if _in_notebook():
        return sys.stdout  # what goes to stderr looks like an error there
    return sys.stderr if sys.stderr is not None and sys.stderr.isatty() else None


def _in_notebook() -> bool:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == NOTEBOOK


def line_of(now: TrainingProgress, speed: float) -> str:
    """How a training stands, at so many environment steps per second."""
    centre = "-"
    if now.centre is not None:
        centre = f"{shown(now.centre.mean)} (version {now.centre.version})"
    members = "-" if math.isnan(now.mean_return) else shown(now.mean_return)
    return (
        f"{now.run}: {span(now.seconds)}  update {now.version}  centre {centre}  "
        f"members {members}  {speed:,.0f} steps/s  workers {now.workers}"
    )


class Status:
    """The line, and lines above it that stay."""

    def __init__(self, stream: TextIO | None, clock: Callable[[], float] = time.monotonic) -> None:
        """`stream`: where a person watches; None: nobody does."""
        self._stream = stream
        self._clock = clock
        self._length = 0
        self._next = -math.inf
        self._before: TrainingProgress | None = None
        self._last: TrainingProgress | None = None
        self._speed = 0.0

    def show(self, now: TrainingProgress) -> None:
        """A new state; where one was shown just before, only if it is the last."""
        moment = self._clock()
        self._last = now
        if moment >= self._next:
            self._next = moment + REWRITE_SECONDS
            self._rewrite(now)

    def say(self, line: str) -> None:
        """A line that stays."""
        self._write("\r" + line.ljust(self._length) + "\n")
        self._length = 0

    def close(self) -> None:
        """What is shown stays, with the last state, and what others write begins below it."""
        if self._last is not None and self._last is not self._before:
            self._rewrite(self._last)
        if self._length:
            self._write("\n")
            self._length = 0

    def _rewrite(self, now: TrainingProgress) -> None:
        before, self._before = self._before, now
        if before is not None and now.seconds > before.seconds:
            self._speed = (now.steps - before.steps) / (now.seconds - before.seconds)
        line = line_of(now, self._speed)
        self._write("\r" + line.ljust(self._length))
        self._length = len(line)

    def _write(self, text: str) -> None:
        if self._stream is not None:
            with contextlib.suppress(OSError, ValueError):  # closed: the training goes on
                self._stream.write(text)
                self._stream.flush()
