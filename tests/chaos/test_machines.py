"""Two machines on a network of their own: the second joins with the line that the first prints."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from tests.chaos.processes import running

ADDRESSES = ("10.77.31.1", "10.77.31.2")


def ip(*arguments: str) -> None:
    """Change something of the network; skips the test where this machine does not allow it."""
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no networks of one's own here: {done.stderr.strip()}")


@pytest.fixture
def machines() -> Iterator[tuple[Sequence[str], Sequence[str]]]:
    """What starts a command on either of two machines, joined by a cable and with no way out."""
    if os.getuid() != 0 or shutil.which("ip") is None:
        pytest.skip("networks of one's own need root, and iproute2")
    ours = f"{os.getpid():x}"
    names = [f"shoal-{ours}-{end}" for end in "ab"]
    cables = [f"v{ours}{end}" for end in "ab"]
    try:
        for name in names:
            ip("netns", "add", name)
        ip("link", "add", cables[0], "type", "veth", "peer", "name", cables[1])
        for name, cable, address in zip(names, cables, ADDRESSES, strict=True):
            ip("link", "set", cable, "netns", name)
            ip("-n", name, "address", "add", f"{address}/24", "dev", cable)
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "set", cable, "up")
        here, there = (("ip", "netns", "exec", name) for name in names)
        yield here, there
    finally:
        for name in names:
            with suppress(OSError):
                subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def test_a_second_machine_joins_with_the_printed_line_unchanged(
    machines: tuple[Sequence[str], Sequence[str]], tmp_path: Path
) -> None:
    here, there = machines
    leading = ("shoal", "host", "CartPole-v1", "--bind", "0.0.0.0", "--updates", "3", "--json")
    with running(*leading, "--run-dir", str(tmp_path / "run"), within=here) as host:
        line = host.await_line("volunteers join with:").split("shoal join ")[1]
        assert ADDRESSES[0] in line
        with running(
            "shoal", "join", *line.split(), "--home", str(tmp_path / "home"), within=there
        ) as worker:
            assert host.await_end() == 0, host.lines
            assert worker.await_end() == 0, worker.lines
    assert host.last_json()["updates"] == 3
