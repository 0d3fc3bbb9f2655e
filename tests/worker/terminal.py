"""A command in a terminal of its own, to type into and to read from."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
DEADLINE = 60.0


class Terminal:
    """A process whose controlling terminal we hold; it ends with the context."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        self._ours, theirs = pty.openpty()
        clean = {key: value for key, value in os.environ.items() if key in ("PATH", "PYTHONPATH")}
        kept = {"SHOAL_LOCAL_NETWORK": "127.0.0.1", "TERM": "xterm", "PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__)), *arguments],
            cwd=ROOT,
            env={**clean, **kept, **environment},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self.shown = ""

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._ours)

    def until(self, pattern: str) -> re.Match[str]:
        """Wait until it has shown that; what was shown up to there is gone then."""
        deadline = time.monotonic() + DEADLINE
        while (found := re.search(pattern, self.shown)) is None:
            assert time.monotonic() < deadline, f"no {pattern!r} in {self.shown!r}"
            assert self._read(), f"ended without {pattern!r}: {self.shown!r}"
        self.shown = self.shown[found.end() :]
        return found

    def type(self, text: str) -> None:
        """Type a line."""
        os.write(self._ours, f"{text}\n".encode())

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        os.write(self._ours, b"\x03")

    def ends(self) -> int:
        """Its exit code; `shown` has the rest."""
        deadline = time.monotonic() + DEADLINE
        while self._read():
            assert time.monotonic() < deadline, self.shown
        return self.process.wait(timeout=DEADLINE)

    def quits(self) -> int:
        """Its exit code once Ctrl-C is pressed at a prompt: again, where the first came between the
        prompt and the reading, as Python then waits for a key before it notices."""
        for _ in range(4):
            self.interrupt()
            again = time.monotonic() + DEADLINE / 4
            while time.monotonic() < again:
                if not self._read():
                    return self.process.wait(timeout=DEADLINE)
        raise AssertionError(f"Ctrl-C does nothing: {self.shown!r}")

    def _read(self) -> bool:
        if not select.select([self._ours], [], [], 1.0)[0]:
            return True
        try:
            data = os.read(self._ours, 65536)
        except OSError:  # the other end is closed
            return False
        self.shown += data.decode(errors="replace")
        return bool(data)


if __name__ == "__main__":
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.execv(sys.executable, [sys.executable, "-m", "shoal", *sys.argv[1:]])
