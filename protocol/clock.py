"""The one clock by which silences, leases and answers are timed."""

from __future__ import annotations

import time


def now() -> float:
    """Seconds that go on while the machine sleeps, where the system has such a clock."""
    boottime = getattr(time, "CLOCK_BOOTTIME", None)
    if boottime is None or not hasattr(time, "clock_gettime"):
        return time.monotonic()
    return time.clock_gettime(boottime)
