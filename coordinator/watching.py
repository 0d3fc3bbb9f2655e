"""Where all goes that a person who leads a run is shown: the whole screen, or plain lines."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from coordinator.console import Console
from coordinator.progress import Progress

if TYPE_CHECKING:
    from coordinator.local import LocalWorkers
    from coordinator.server import Server


class Watching(Protocol):
    """Takes what happens, as it comes."""

    def say(self, line: str) -> None:
        """A line that stays."""

    def event(self, line: str) -> None:
        """Something that happened in the pool."""

    def go_on(self, progress: Progress, directory: Path) -> None:
        """The run in this directory counted so much before this process."""

    def update(self, progress: Progress) -> None:
        """The state of the run after an update."""

    def measure(self, line: Mapping[str, Any]) -> None:
        """A line of metrics."""

    def follow(self, version: int, goal: int) -> None:
        """How far a run is that somebody else leads."""

    def ready(self, join: str) -> None:
        """Workers can join, with this command."""

    def lead(self, server: Server | None) -> None:
        """We lead the run from now on; None: no more."""

    def employ(self, workers: LocalWorkers) -> None:
        """The workers of this machine, which a person may want more or fewer of."""

    def clear(self) -> None:
        """Leave the terminal as it was found."""

    def close(self, progress: Progress) -> None:
        """The last state, as a line that stays."""


def open_console(plain: bool, events: bool, stream: TextIO | None = None) -> Watching:
    """A screen where the terminal can show one, and `plain` lines are not asked for."""
    stream = stream or sys.stderr
    console = Console(stream, events)
    if plain or not stream.isatty():
        return console
    from coordinator.screen.screen import Screen
    from coordinator.screen.terminal import Terminal, suits

    return Screen(console, Terminal(stream)) if suits(stream) else console
