"""Which process has a run directory at this moment, to lead or follow the run in it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

HOLDER = "host.pid"
RUN = "run"
"""Locked by who has the directory."""


def take(path: Path) -> None:
    """Leave word that this process has the directory, whose lock it holds. Raises OSError."""
    (path / HOLDER).write_text(f"{os.getpid()}\n")


def holder(path: Path) -> int | None:
    """The id of the process that has the directory; None: nobody has it.

    The lock is looked at only where a process of that id is alive, so that who is about to take the
    directory never finds it locked by us.
    """
    try:
        process = int((path / HOLDER).read_text()[:20])
        if process < 1:
            return None
        os.kill(process, 0)
    except PermissionError:
        pass  # another user's
    except (OSError, ValueError, OverflowError):
        return None
    try:
        with (path / RUN).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return process
    except OSError:
        return None
    return None
