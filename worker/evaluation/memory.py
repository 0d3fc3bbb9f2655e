"""How much memory an evaluation process takes and may take, and both in words."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

from worker.evaluation import cgroups

if TYPE_CHECKING:
    import psutil

EMPTY = 80 << 20
"""Bytes that a process takes, or nearly, before it has any environment or policy: with less it
would be replaced for ever."""
LEAST = 1 << 30
"""Bytes that each process may take at least where nobody says how many."""
RESERVED = 4 << 30
"""Bytes beyond its limit that a process may ask for without ever touching them, as libraries do."""
BYTES_A_NUMBER = 64
"""And so many for each parameter, and for each sigma where these are as many: some members, the
centre, the order in which they are read, and as much again."""


class Meter:
    """Tells how much memory a process takes."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._process: psutil.Process | None = None

    def own(self) -> int:
        """Bytes that are resident for this process alone, as far as the system tells; 0 once it is
        gone. Parameters, which processes share, are nobody's."""
        import psutil  # takes a while to load, which here is while the processes start

        try:
            if self._process is None:
                self._process = psutil.Process(self._pid)
            found = self._process.memory_info()
        except psutil.Error:
            return 0
        return int(found.rss - getattr(found, "shared", 0))


def fair_limit(processes: int, basis: int) -> int:
    """Bytes that each of so many processes may take: together half of what is free now, but no less
    than what versions of so many numbers may need, see `RunSpec.basis_size`."""
    return max(free_now() // (2 * processes), LEAST + BYTES_A_NUMBER * basis)


def free_now() -> int:
    """Bytes that are free on the machine, or in our control group where that has less."""
    import psutil

    free = int(psutil.virtual_memory().available)
    left = cgroups.memory_left()
    return free if left is None else min(free, left)


def bound(limit: int) -> None:
    """Let the kernel refuse this process memory far beyond its limit, where the kernel can: what
    grows step by step is ended before that, but one request could take all that the machine has.
    """
    if sys.platform == "win32":
        return
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = limit + RESERVED
    if most == resource.RLIM_INFINITY or wanted < most:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_DATA, (wanted, wanted))


def shown(size: float) -> str:
    """A size for people: `2.1 GiB`, `640 MiB`."""
    if size < 1 << 30:
        return f"{size / (1 << 20):.0f} MiB"
    return f"{size / (1 << 30):.3g} GiB"
