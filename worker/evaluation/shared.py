"""Parameters that the daemon writes once and its evaluation processes map into their memory."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import sys
import tempfile
import weakref
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from worker.scratch import Scratch


class Shared:
    """One version's parameters, for processes that know the path; until it is closed or forgotten.

    Whoever has mapped them by then keeps them. On Linux they lie in memory without a name: the
    kernel frees it once no process has it open, whatever ends them, and lets nobody write to it.
    Elsewhere they are a file of the scratch directory, which the system keeps in memory as it can.

    Attributes:
        path: where `mapped` finds them.
        inode: the file's number, since another may have the path once they are closed.
        close: lets go of them; more than once does no harm.
    """

    def __init__(self, theta: NDArray[np.float32], scratch: Scratch) -> None:
        """Copies `theta`, float32, shape (size,). Raises OSError where there is no room."""
        octets = np.ascontiguousarray(theta, dtype=np.float32).view(np.uint8).data
        if sys.platform == "linux":
            number = os.memfd_create("shoal-theta", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            self.close = weakref.finalize(self, os.close, number)
            self.path = f"/proc/{os.getpid()}/fd/{number}"
            _fill(number, octets)
        else:
            number, self.path = tempfile.mkstemp(dir=scratch.make())
            self.close = weakref.finalize(self, _remove, self.path)
            with open(number, "wb") as file:  # noqa: PTH123 - it is open already
                file.write(octets)
        self.inode = Path(self.path).stat().st_ino


def mapped(path: str, inode: int) -> NDArray[np.float32]:
    """The parameters at that path, read-only and not copied. Raises OSError."""
    with Path(path).open("rb") as file:
        if os.fstat(file.fileno()).st_ino != inode:
            raise FileNotFoundError(errno.ENOENT, "other parameters than those asked for", path)
        memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return np.frombuffer(memory, dtype=np.float32)


def _fill(number: int, octets: memoryview) -> None:
    """Write an open file without a name for good: nobody changes it from then on."""
    import fcntl

    with open(number, "wb", closefd=False) as file:
        file.write(octets)
    seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
    fcntl.fcntl(number, fcntl.F_ADD_SEALS, seals)


def _remove(path: str) -> None:
    """Remove a file, where the system lets go of one that is in use."""
    with contextlib.suppress(OSError):
        Path(path).unlink()
