"""Control groups as containers and services have them, in a folder of the test's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from worker.evaluation.cgroups import memory_left

GIB = 1 << 30
HUGE = 0x7FFFFFFFFFFFF000  # what the first version says where there is no limit


def machine(root: Path, lines: str, files: dict[str, object]) -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(lines)
    for name, value in files.items():
        file = root / "sys/fs/cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{value}\n")
    return root


CASES = {
    "no limit anywhere": ("0::/\n", {"memory.max": "max", "memory.current": GIB}, None),
    "no files": ("0::/\n", {}, None),
    "no groups": ("", {"memory.max": GIB}, None),
    "a container that sees itself as the root": (
        "0::/\n",
        {"memory.max": 2 * GIB, "memory.current": GIB},
        GIB,
    ),
    "a container that is told the path of the host": (
        "0::/docker/0123\n",
        {"memory.max": 2 * GIB, "memory.current": 0},
        2 * GIB,
    ),
    "a path that leads out of what it sees": (
        "0::/../../other\n",
        {"memory.max": 3 * GIB, "memory.current": 0},
        3 * GIB,
    ),
    "a service in a slice that has less": (
        "0::/user.slice/shoal.service\n",
        {
            "user.slice/memory.max": 3 * GIB,
            "user.slice/memory.current": 2 * GIB,
            "user.slice/shoal.service/memory.max": 2 * GIB,
            "user.slice/shoal.service/memory.current": GIB // 2,
        },
        GIB,
    ),
    "files that are read and can be let go": (
        "0::/\n",
        {
            "memory.max": 2 * GIB,
            "memory.current": 2 * GIB,
            "memory.stat": f"anon 5\ninactive_file {GIB}\nactive_file 7",
        },
        GIB,
    ),
    "more taken than a limit that was lowered": (
        "0::/\n",
        {"memory.max": GIB, "memory.current": 2 * GIB},
        0,
    ),
    "the first version": (
        "9:name=systemd:/\n4:cpuset,memory:/box\n0::/\n",
        {
            "memory/memory.limit_in_bytes": HUGE,
            "memory/box/memory.limit_in_bytes": 4 * GIB,
            "memory/box/memory.usage_in_bytes": 2 * GIB,
            "memory/box/memory.stat": f"inactive_file 1\ntotal_inactive_file {GIB}",
        },
        3 * GIB,
    ),
    "both, of which the smaller counts": (
        "4:memory:/\n0::/\n",
        {
            "memory/memory.limit_in_bytes": 2 * GIB,
            "memory/memory.usage_in_bytes": 0,
            "memory.max": GIB,
            "memory.current": 0,
        },
        GIB,
    ),
    "nonsense": ("x\n0::\n::\n", {"memory.max": "much", "memory.stat": "inactive_file"}, None),
}


@pytest.mark.parametrize(("lines", "files", "left"), CASES.values(), ids=CASES)
def test_the_tightest_group_says_what_is_left(
    tmp_path: Path, lines: str, files: dict[str, object], left: int | None
) -> None:
    assert memory_left(machine(tmp_path, lines, files)) == left


def test_where_there_are_no_control_groups_nothing_is_said(tmp_path: Path) -> None:
    assert memory_left(tmp_path) is None


def test_this_machine_is_read() -> None:
    left = memory_left()
    assert left is None or left >= 0
