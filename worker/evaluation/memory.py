"""How much memory an evaluation process takes."""

from __future__ import annotations

import psutil


def own(process: psutil.Process) -> int:
    """Bytes of memory that are resident for this process alone, as far as the system tells; 0 where
    it is gone. Parameters that processes share are nobody's."""
    try:
        found = process.memory_info()
    except psutil.Error:
        return 0
    return int(found.rss - getattr(found, "shared", 0))
