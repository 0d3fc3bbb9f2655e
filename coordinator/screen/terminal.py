"""A terminal that is drawn on as a whole, and left as it was found, however that comes about."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import termios
from collections.abc import Mapping
from types import FrameType
from typing import Any, TextIO

from rich.console import Console
from rich.text import Text

ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"
"""The other screen, no cursor, and what is too wide is cut."""
LEAVE = "\x1b[?7h\x1b[?25h\x1b[?1049l"
FRESH_EVERY = 20
"""Frames after which all is drawn anew: somebody else may have written on the screen."""


def suits(output: TextIO, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a screen can be drawn there, and keys be read."""
    try:
        both = output.isatty() and sys.stdin.isatty()
    except ValueError:  # closed
        return False
    if not both or environment.get("TERM", "dumb") in ("", "dumb", "unknown"):
        return False
    try:  # a shell's job in the background may not change the terminal
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except OSError:
        return False


def is_plain(output: TextIO, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether it takes ASCII alone."""
    encoding = (output.encoding or "ascii").lower().replace("-", "")
    return encoding != "utf8" or environment.get("TERM", "") in ("linux", "vt100", "vt220")


class Terminal:
    """Drawn line by line: only what changed is written. Ctrl-C works as ever.

    Attributes:
        plain: it takes ASCII alone.
    """

    def __init__(self, output: TextIO) -> None:
        """Nothing happens before `enter`."""
        self.plain = is_plain(output)
        self._output = output
        self._keys = sys.stdin.fileno()
        self._before: list[Any] | None = None
        self._shown: list[Text] = []
        self._size = (0, 0)
        self._frames = 0
        self._console = Console(file=output, force_terminal=True, legacy_windows=False)

    @property
    def entered(self) -> bool:
        """Whether the screen is ours."""
        return self._before is not None

    @property
    def size(self) -> tuple[int, int]:
        """(columns, lines), as they are now."""
        try:
            size = os.get_terminal_size(self._output.fileno())
        except OSError:
            return 80, 24
        return max(1, size.columns), max(1, size.lines)

    def enter(self) -> None:
        """Take the screen, and single keys as they are typed."""
        if self.entered:
            return
        self._before = termios.tcgetattr(self._keys)
        ours = termios.tcgetattr(self._keys)
        ours[0] &= ~termios.IXON  # Ctrl-S would hold the host up with its next frame
        ours[3] &= ~(termios.ICANON | termios.ECHO)
        ours[6][termios.VMIN], ours[6][termios.VTIME] = 1, 0
        # A host that is put to sleep leads nothing, and would leave this screen behind.
        ours[6][termios.VSUSP] = os.fpathconf(self._keys, "PC_VDISABLE").to_bytes(1, "little")
        termios.tcsetattr(self._keys, termios.TCSANOW, ours)
        self._write(ENTER)
        self._shown, self._size = [], (0, 0)
        self.guard()

    def guard(self) -> None:
        """Leave the screen before SIGTERM ends this process, where nobody handles it."""
        if self.entered and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._terminated)

    def leave(self) -> None:
        """Give the screen back."""
        if self._before is None:
            return
        before, self._before = self._before, None
        if signal.getsignal(signal.SIGTERM) == self._terminated:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._write(LEAVE)
        with contextlib.suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(self._keys, termios.TCSANOW, before)

    def draw(self, lines: list[Text], size: tuple[int, int]) -> None:
        """Show these lines, made for that size."""
        if not self.entered:
            return
        self.guard()
        self._frames += 1
        anew = size != self._size or self._frames % FRESH_EVERY == 0
        if size != self._size:
            self._write("\x1b[2J")
        changed = [
            f"\x1b[{number + 1};1H{self._rendered(line)}"
            for number, line in enumerate(lines)
            if anew or line != self._shown[number]
        ]
        self._shown, self._size = lines, size
        if changed:
            self._write("".join(changed))

    def read(self) -> bytes:
        """What was typed; empty where the terminal is gone."""
        with contextlib.suppress(OSError):
            return os.read(self._keys, 256)
        return b""

    @property
    def keys(self) -> int:
        """The file descriptor to wait for keys at."""
        return self._keys

    def _rendered(self, line: Text) -> str:
        with self._console.capture() as captured:
            self._console.print(line, end="", soft_wrap=True, highlight=False)
        return captured.get()

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # the terminal is gone, or slow
            self._output.write(text)
            self._output.flush()

    def _terminated(self, number: int, frame: FrameType | None) -> None:
        self.leave()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
