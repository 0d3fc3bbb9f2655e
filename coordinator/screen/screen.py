"""The full-screen view as a thin shell: clock, keys and signals in, frames and orders out."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coordinator.console import Console
from coordinator.metrics_file import last_lines
from coordinator.pool.events import Paused, Resumed
from coordinator.progress import Progress
from coordinator.screen.frame import Scene, frame
from coordinator.screen.history import History
from coordinator.screen.keys import Mode, Order, keys_in, press
from coordinator.screen.terminal import Terminal
from protocol.clock import now
from protocol.errors import ShoalError

if TYPE_CHECKING:
    from coordinator.local import LocalWorkers
    from coordinator.overview import Overview
    from coordinator.server import Server

REDRAW = 0.5
"""Seconds between two frames."""
SHARE = 0.02
"""Of a core that frames may take: where one takes long, because of thousands of workers, the next
comes later."""
LAST_EVENTS = 5
"""Lines that stay once the screen is gone, beside those that were meant to."""
NOTE_SECONDS = 5.0
"""For which a word on what a key did is shown."""


class Screen:
    """Shows a run on the whole terminal from when it is led, or followed, until `clear`.

    Lines that come before or afterwards go to the plain console; what was said meanwhile is said
    there once the screen is gone.
    """

    def __init__(self, console: Console, terminal: Terminal) -> None:
        self._console = console
        self._terminal = terminal
        self._history = History()
        self._server: Server | None = None
        self._last: Overview | None = None
        """as the run stood when we ceased to lead it"""
        self._workers: LocalWorkers | None = None
        self._join = ""
        self._follows = ""
        self._note, self._note_until = "", 0.0
        self._mode = Mode()
        self._said: list[str] = []
        self._next: asyncio.TimerHandle | None = None
        self._jobs: set[asyncio.Task[None]] = set()
        self._log = _Log(self)

    # What is shown.

    def say(self, line: str) -> None:
        """A line that stays."""
        self._history.tell(line)
        if self._terminal.entered:
            self._said.append(line)
        else:
            self._console.say(line)

    def event(self, line: str) -> None:
        """Something that happened in the pool."""
        self._history.tell(f"{time.strftime('%H:%M:%S')} {line}")

    def go_on(self, progress: Progress, directory: Path) -> None:
        """What the run was before: its curves go on."""
        self._console.go_on(progress, directory)
        for line in last_lines(directory):
            self._history.measure(line)

    def update(self, progress: Progress) -> None:
        """The next frame shows it."""

    def measure(self, line: Mapping[str, Any]) -> None:
        """A line of metrics."""
        self._history.measure(line)

    def follow(self, version: int, goal: int) -> None:
        """How far a run is that somebody else leads."""
        behind = f", {goal - version:,} behind" if goal > version else ""
        self._follows = f"following: version {version:,}{behind}"
        self._last = None
        self._open()

    def ready(self, join: str) -> None:
        """Workers can join."""
        self._join = join
        self._said.append(f"volunteers join with:  {join}")

    def lead(self, server: Server | None) -> None:
        """We lead the run from now on; None: no more, and it is told why."""
        if server is None and self._server is not None:
            self._last = self._server.overview()
        self._server = server
        if server is not None:
            self._open()

    def employ(self, workers: LocalWorkers) -> None:
        """The workers of this machine."""
        self._workers = workers

    def clear(self) -> None:
        """Give the terminal back, and say what is to stay."""
        if not self._terminal.entered:
            return
        if self._next is not None:
            self._next.cancel()
        logging.getLogger().removeHandler(self._log)
        self._terminal.leave()
        events = [line for line in self._history.events if line not in self._said]
        for line in [*self._said, *events[-LAST_EVENTS:]]:
            self._console.say(line)
        self._said.clear()

    def close(self, progress: Progress) -> None:
        """The last state, as a line that stays."""
        self.clear()
        self._console.close(progress)

    # The terminal.

    def _open(self) -> None:
        if self._terminal.entered:
            return
        loop = asyncio.get_running_loop()
        self._terminal.enter()
        logging.getLogger().addHandler(self._log)
        loop.add_reader(self._terminal.keys, self._typed)
        loop.add_signal_handler(signal.SIGWINCH, self._draw)
        self._tick()

    def _tick(self) -> None:
        began = now()
        self._draw()
        pause = max(REDRAW, (now() - began) / SHARE)
        if self._terminal.entered:
            self._next = asyncio.get_running_loop().call_later(pause, self._tick)

    def _draw(self) -> None:
        if not self._terminal.entered:
            return
        moment, server = now(), self._server
        overview = self._last if server is None else server.overview()
        if overview is not None:
            self._history.look(overview, moment)
        if moment >= self._note_until:
            self._note = ""
        scene = Scene(
            overview=overview,
            history=self._history,
            now=moment,
            join=self._join,
            follows=self._follows,
            local=0 if self._workers is None else self._workers.count,
            mode=self._mode,
            note=self._note,
        )
        size = self._terminal.size
        self._terminal.draw(frame(scene, *size, self._terminal.plain), size)

    # Keys.

    def _typed(self) -> None:
        data = self._terminal.read()
        if not data:
            asyncio.get_running_loop().remove_reader(self._terminal.keys)
            return
        for key in keys_in(data):
            server = self._server
            paused = server is not None and server.overview().paused
            leads = server is not None
            self._mode, order = press(self._mode, key, leads=leads, paused=paused)
            self._do(order)
            if self._mode.asks:
                break  # what was typed, or pasted, with the question is no answer to it
        self._draw()

    def _do(self, order: Order) -> None:
        server = self._server
        if order == "stop" and server is None:
            signal.raise_signal(signal.SIGINT)
        if server is None:
            return
        match order:
            case "pause":
                server.heed(Paused("paused by the host"))
                self._remark("paused: p goes on")
            case "resume":
                server.heed(Resumed())
                self._remark("going on")
            case "stop":
                self._remark("stopping")
                server.stop("stopped by the host")
            case "leave":
                self._remark("leaving the run to be resumed")
                server.pause("paused by the host")
            case "more" | "fewer":
                self._start(order == "more")

    def _start(self, more: bool) -> None:
        """One more worker of this machine, or one less."""
        if self._workers is None:
            return
        task = asyncio.get_running_loop().create_task(self._hire(self._workers, more))
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)

    async def _hire(self, workers: LocalWorkers, more: bool) -> None:
        try:
            await (workers.add() if more else workers.remove())
        except ShoalError as error:
            self.event(str(error))
        count = workers.count
        self._remark(f"{count} worker{'s' * (count != 1)} of this machine")
        self._draw()

    def _remark(self, note: str) -> None:
        self._note, self._note_until = note, now() + NOTE_SECONDS


class _Log(logging.Handler):
    """Warnings of libraries, which would be written across the screen."""

    def __init__(self, screen: Screen) -> None:
        super().__init__(logging.WARNING)
        self._screen = screen

    def emit(self, record: logging.LogRecord) -> None:
        """Show its first line among the events; may be called from any thread."""
        self._screen.event(record.getMessage().partition("\n")[0])
