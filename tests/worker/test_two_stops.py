"""Ctrl-C at a real terminal: a countdown first, the tasks handed back second."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

import pytest

from protocol import messages
from tests.protocol.mosquitto import Mosquitto
from tests.worker.reference import TOYS, run_spec
from tests.worker.scripted import Host
from tests.worker.test_daemon import coordinating, join_url

if sys.platform != "win32":
    from tests.worker.terminal import Terminal

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="a pseudo-terminal")
FINISHING = r"finishing 1 task, (?:about (\d+) s|a moment) left; Ctrl-C again hands it back"


async def test_the_first_ctrl_c_counts_down_and_the_second_hands_back(tmp_path: Path) -> None:
    broker = Mosquitto(tmp_path)
    broker.start()
    spec = run_spec("ToyWalk-v0", environment={"episodes": 32}, strategy={"population": 65_536})
    host = Host(spec)
    command = ("join", join_url(broker, host), "--allow-module", TOYS, "--lanes", "16")
    async with coordinating(host, broker.url) as coordinator:
        with Terminal(*command, SHOAL_HOME=str(tmp_path / "home")) as terminal:

            async def shows(pattern: str) -> re.Match[str]:
                return await asyncio.to_thread(terminal.until, pattern)

            await coordinator.until(lambda: coordinator.welcomes == 1)
            coordinator.tell(host.task(first=0, count=125))
            await coordinator.hears(messages.Result)
            coordinator.tell(host.task(first=125, count=messages.MAX_TASK_DIRECTIONS))
            await shows(r"1 done, 1 running")
            terminal.interrupt()
            left = int((await shows(FINISHING))[1] or 0)
            assert left > 0
            assert (await coordinator.hears(messages.Credit)).credit == 0
            # The line that is rewritten goes on counting.
            while (now := int((await shows(rf"\r\x1b\[K{FINISHING}"))[1] or 0)) >= left:
                left = now
            terminal.interrupt()
            await shows(r"handed 1 task back and left")
            assert await asyncio.to_thread(terminal.ends) == 0
            assert (await coordinator.hears(messages.Refusal)).cause == "handed-back"
            assert "Traceback" not in terminal.shown
    broker.kill()
