"""Two workers of one machine at the same time, with one home and so one key."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, STDOUT
from pathlib import Path

import pytest

from tests.coordinator.runs import led
from tests.worker.reference import run_spec
from worker.names import label_of

ROOT = Path(__file__).parents[2]
SECONDS = 180.0
"""That all of it may take: four processes start."""


@pytest.mark.skipif(sys.platform == "win32", reason="asks for the rights of a file")
async def test_two_workers_that_make_one_home_at_once_are_two_sessions_of_one_key(
    tmp_path: Path,
) -> None:
    spec = run_spec(
        "CartPole-v1",
        environment={"max_steps": 40},
        strategy={"population": 64},
        centre={"evaluate_every": 0},
    )
    home, scratch = tmp_path / "home", tmp_path / "scratch"
    scratch.mkdir()
    async with asyncio.timeout(SECONDS), led(spec, tmp_path) as run:
        url = f"{run.url}/{run.run_id}#{run.identity.fingerprint}"
        command = [sys.executable, "-m", "worker", url, "--home", str(home), "--nice", "0"]
        environment = {**os.environ, "TMPDIR": str(scratch)}
        workers = [
            await asyncio.create_subprocess_exec(
                *command, "--cores", "1", cwd=ROOT, env=environment, stdout=PIPE, stderr=STDOUT
            )
            for _ in range(2)
        ]
        try:
            sessions = run.server._pool.sessions
            while len([one for one in sessions.values() if one.merit > 3]) < 2:
                assert all(worker.returncode is None for worker in workers)
                await asyncio.sleep(0.05)
            first, second = sessions
            assert first.worker == second.worker and first.session != second.session
            before = run.server._versions.current.version
            # One of them leaves: the other goes on with what they share.
            workers[0].terminate()
            assert await workers[0].wait() == 0
            while run.server._versions.current.version < before + 3:
                await asyncio.sleep(0.05)
            assert len(sessions) == 1
            workers[1].terminate()
            assert await workers[1].wait() == 0
        finally:
            for worker in workers:
                if worker.returncode is None:
                    worker.kill()
            said = [(await worker.communicate())[0].decode() for worker in workers]
    assert not any("Traceback" in words or "refused" in words for words in said), said
    key, places = sorted(home.iterdir())
    label = label_of(first.worker)
    assert sorted(path.name for path in places.iterdir()) == [f"{label}-2.lock", f"{label}.lock"]
    assert key.name == "worker.key" and key.stat().st_mode & 0o777 == 0o600
    assert list(scratch.iterdir()) == []
