"""A crowd of sockets leaves the host the files that it needs."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from socket import socket

ROOT = Path(__file__).parent.parent.parent
HOST = """
import asyncio, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
from coordinator.broker.embedded import EmbeddedBroker
from tests.contract.raw import RawClient

async def main():
    async with EmbeddedBroker() as broker:
        await (await RawClient.connect(broker.url, "before")).leave()
        print(broker.url, flush=True)
        sys.stdin.readline()  # nothing is accepted meanwhile: all of them come at once
        for _ in range(50):
            await asyncio.sleep(0)
            open("/dev/null").close()
        files = [open("/dev/null") for _ in range(20)]  # as a log and snapshots need
        await (await RawClient.connect(broker.url, "after")).leave()
    print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])

asyncio.run(main())
"""
CROWD = 400


def _open_files(soft: int, hard: int) -> str:
    """What a host with such limits may open in the end, which a crowd came to."""
    with (
        subprocess.Popen(
            [sys.executable, "-c", HOST.format(soft=soft, hard=hard)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as host,
        ExitStack() as stack,
    ):
        assert host.stdout is not None
        port = int(host.stdout.readline().rpartition(":")[2])
        for _ in range(CROWD):
            one = stack.enter_context(socket())
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
        said, complained = host.communicate("go\n", timeout=60)
    assert host.returncode == 0 and "Traceback" not in complained, complained
    assert "system resource" not in complained
    return said.strip()


def test_a_process_that_may_open_few_files_keeps_some_for_itself() -> None:
    assert _open_files(160, 160) == "160"


def test_a_process_that_may_have_more_asks_for_them() -> None:
    assert _open_files(160, 4096) == "1120"
