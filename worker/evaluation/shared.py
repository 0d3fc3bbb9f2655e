"""Parameters that the daemon writes once and its evaluation processes map into their memory."""

from __future__ import annotations

import contextlib
import errno
import functools
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
    Elsewhere, and where other processes may not look at what this one has open, they are a file of
    the scratch directory, which the system keeps in memory as it can.

    Attributes:
        path: where `mapped` finds them.
        inode: the file's number, since another may have the path once they are closed.
        size: how many they are.
        close: lets go of them; more than once does no harm.
    """

    def __init__(
        self, theta: NDArray[np.float32], scratch: Scratch, *, named: bool = False
    ) -> None:
        """Copies `theta`, float32, shape (size,); to a file where it is to be `named`.

        Raises OSError where there is no room.
        """
        octets = np.ascontiguousarray(theta, dtype=np.float32).view(np.uint8).data
        self.size = theta.size
        if sys.platform == "linux" and not named and _sees_open_files():
            number = os.memfd_create("shoal-theta", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            self.close = weakref.finalize(self, _close, number, "")
            self.path = f"/proc/{os.getpid()}/fd/{number}"
            _fill(number, octets)
        else:
            number, self.path = tempfile.mkstemp(dir=scratch.make())
            self.close = weakref.finalize(self, _close, number, self.path)
            with open(number, "wb", closefd=False) as file:
                file.write(octets)
        self._number = number
        self.inode = os.fstat(number).st_ino

    def copied(self, scratch: Scratch) -> Shared:
        """The same in a new file, though somebody took the old one's name. Raises OSError."""
        octets = bytearray(4 * self.size)
        with open(self._number, "rb", closefd=False) as file:
            file.seek(0)
            if file.readinto(octets) < len(octets):
                raise OSError(errno.EIO, "parameters were cut off", self.path)
        return Shared(np.frombuffer(octets, dtype=np.float32), scratch, named=True)


def mapped(path: str, inode: int, size: int) -> NDArray[np.float32]:
    """The parameters at that path, so many, read-only and not copied. Raises OSError."""
    with Path(path).open("rb") as file:
        found = os.fstat(file.fileno())
        if found.st_ino != inode:
            raise FileNotFoundError(errno.ENOENT, "other parameters than those asked for", path)
        if found.st_size != 4 * size:
            raise OSError(errno.EIO, f"{found.st_size:,} bytes where {4 * size:,} were", path)
        memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return np.frombuffer(memory, dtype=np.float32)


@functools.cache
def _sees_open_files() -> bool:
    """Whether what a process has open has a path."""
    return Path("/proc/self/fd").exists()


def _fill(number: int, octets: memoryview) -> None:
    """Write an open file without a name for good: nobody changes it from then on."""
    import fcntl

    with open(number, "wb", closefd=False) as file:
        file.write(octets)
    seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
    fcntl.fcntl(number, fcntl.F_ADD_SEALS, seals)


def _close(number: int, path: str) -> None:
    """Close a file, and remove it if it has a path and the system lets go of what is in use."""
    os.close(number)
    if path:
        with contextlib.suppress(OSError):
            Path(path).unlink()
