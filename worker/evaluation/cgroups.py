"""How much memory the control groups of this process leave it: those of containers and services."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Names(NamedTuple):
    """The files of a version of control groups; see the kernel's admin guide, "cgroup-v1" and
    "cgroup-v2"."""

    mount: str
    limit: str
    used: str
    cached: str
    """in `memory.stat`: what of it the kernel gives back when it is asked for"""


SECOND = Names("sys/fs/cgroup", "memory.max", "memory.current", "inactive_file")
FIRST = Names(
    "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
)


def memory_left(root: Path = Path("/")) -> int | None:
    """Bytes that this process and those beside it may still take; None where no group says.

    A group has no more than those around it; a container may not see those, nor its own path.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except (OSError, ValueError):
        return None
    found: list[int] = []
    for line in lines:
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if not controllers:
            names = SECOND
        elif "memory" in controllers.split(","):
            names = FIRST
        else:
            continue
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for depth in range(len(parts) + 1):
            left = _left(root.joinpath(names.mount, *parts[:depth]), names)
            found += [] if left is None else [left]
    return min(found, default=None)


def _left(group: Path, names: Names) -> int | None:
    """What a group may still take; None where it has no limit, or there is none such."""
    limit = _number(group / names.limit)
    if limit is None:  # also "max"
        return None
    used, cached = _number(group / names.used) or 0, 0
    try:
        for line in (group / "memory.stat").read_text().splitlines():
            name, _, value = line.partition(" ")
            cached = int(value) if name == names.cached else cached
    except (OSError, ValueError):
        cached = 0
    return max(0, limit - max(0, used - cached))


def _number(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None
