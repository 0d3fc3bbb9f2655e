"""A real command on a pseudo-terminal, and what its screen shows."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
DEADLINE = 60.0
_PARTS = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])|\r|\n|[^\x1b\r\n]+|\x1b")


class Screen:
    """As much of a terminal as is needed to read what was drawn: moves, colours, two screens."""

    def __init__(self, columns: int, lines: int) -> None:
        self.columns, self.lines = columns, lines
        self.other = False
        self.cursor_hidden = False
        self.raw = ""
        self._cells: dict[int, str] = {}
        self._line = 1
        self._rest = ""

    def feed(self, text: str) -> None:
        self.raw += text
        text = self._rest + text
        self._rest = ""
        if (cut := text.rfind("\x1b")) >= 0 and not re.match(r"\x1b\[[?0-9;]*[A-Za-z]", text[cut:]):
            text, self._rest = text[:cut], text[cut:]
        for match in _PARTS.finditer(text):
            numbers, letter = match[1], match[2]
            if letter == "H":
                self._line = int((numbers or "1").split(";")[0])
                self._cells[self._line] = ""
            elif letter == "J":
                self._cells.clear()
            elif letter in ("h", "l") and numbers == "?1049":
                self.other = letter == "h"
            elif letter in ("h", "l") and numbers == "?25":
                self.cursor_hidden = letter == "l"
            elif letter is None and match[0] not in ("\r", "\n") and self.other:
                self._cells[self._line] = self._cells.get(self._line, "") + match[0]

    @property
    def rows(self) -> list[str]:
        return [self._cells.get(number, "") for number in range(1, self.lines + 1)]

    @property
    def text(self) -> str:
        return "\n".join(self.rows)


class Command:
    """A `shoal` command whose terminal we hold the other end of."""

    def __init__(self, *arguments: str, columns: int, lines: int, **environment: str) -> None:
        self.screen = Screen(columns, lines)
        self.end, theirs = pty.openpty()
        self._size(columns, lines)
        self.before = termios.tcgetattr(theirs)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "shoal", *arguments],
            cwd=ROOT,
            env={**os.environ, "TERM": "xterm-256color", "PYTHONIOENCODING": "utf8", **environment},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        self._theirs = theirs

    def resize(self, columns: int, lines: int) -> None:
        self.screen.columns, self.screen.lines = columns, lines
        self._size(columns, lines)

    def press(self, keys: str) -> None:
        os.write(self.end, keys.encode())

    def until(self, found: Callable[[Screen], object]) -> None:
        """Read until the screen shows that; fails with what it shows at the deadline."""
        deadline = time.monotonic() + DEADLINE
        while not found(self.screen):
            assert time.monotonic() < deadline, self.screen.text + "\n" + self.screen.raw[-3000:]
            if not self._read(0.2) and self.process.poll() is not None and not self._read(0.0):
                assert found(self.screen), "ended: " + self.screen.raw[-3000:]

    def ended(self) -> int:
        """The exit code, once the process has ended and all that it wrote is read."""
        deadline = time.monotonic() + DEADLINE
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.screen.text
            self._read(0.1)
        while self._read(0.0):
            pass
        return self.process.returncode

    def in_order(self) -> bool:
        """Whether the terminal is as it was before the command."""
        same = termios.tcgetattr(self._theirs) == self.before
        return same and not self.screen.other and not self.screen.cursor_hidden

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        os.close(self.end)
        os.close(self._theirs)

    def _size(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.end, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def _read(self, seconds: float) -> bool:
        if not select.select([self.end], [], [], seconds)[0]:
            return False
        with contextlib.suppress(OSError):
            self.screen.feed(os.read(self.end, 65536).decode("utf-8", errors="replace"))
            return True
        return False


@contextlib.contextmanager
def on_terminal(
    *arguments: str, columns: int = 100, lines: int = 30, **environment: str
) -> Iterator[Command]:
    command = Command(*arguments, columns=columns, lines=lines, **environment)
    try:
        yield command
    finally:
        command.close()
