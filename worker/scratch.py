"""A temporary directory that goes with its process, whatever ends that."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
from pathlib import Path
from typing import IO

if sys.platform != "win32":
    import fcntl

PREFIX = "shoal-snapshots-"
_LOCK = "in-use"


class Scratch:
    """Made when it is first needed. One that a killed process left is removed by the next one."""

    def __init__(self) -> None:
        self._path: Path | None = None
        self._lock: IO[str] | None = None

    @property
    def path(self) -> Path | None:
        """Where it is; None while there is none."""
        return self._path

    def make(self) -> Path:
        """Where it is. Raises OSError."""
        while self._path is None:
            _sweep(Path(tempfile.gettempdir()))
            path = Path(tempfile.mkdtemp(prefix=PREFIX))
            with contextlib.suppress(FileNotFoundError):
                lock = (path / _LOCK).open("w")
                ours = _try_lock(lock) or sys.platform == "win32"
                # Who sweeps at that moment may take it for a dead one's.
                if ours and path.exists():
                    self._path, self._lock = path, lock
                else:
                    lock.close()
        return self._path

    def remove(self) -> None:
        """Leave nothing."""
        if self._path is not None:
            shutil.rmtree(self._path, ignore_errors=True)
        if self._lock is not None:
            self._lock.close()


def _sweep(where: Path) -> None:
    """Remove what processes left that are no more: nobody has their lock."""
    for lock in where.glob(f"{PREFIX}*/{_LOCK}"):
        with contextlib.suppress(OSError), lock.open("r+") as file:
            if _try_lock(file):
                shutil.rmtree(lock.parent, ignore_errors=True)


def _try_lock(file: IO[str]) -> bool:
    """Whether nobody else had the lock, which is ours now for as long as the file is open."""
    if sys.platform == "win32":
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
