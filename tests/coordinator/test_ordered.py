"""What a person orders of a led run: to pause, to go on, to end; and who has its directory."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from coordinator import log as update_log
from coordinator import orders
from coordinator.directory import RunDirectory
from coordinator.holder import holder
from coordinator.log import LogReader
from coordinator.orders import Pause, Stop
from coordinator.pool.events import Paused, Resumed
from tests.coordinator.runs import led, resumed, spec_of

OTHERS = 2**22 + 1
"""No process has this id."""


def state(directory: Path) -> object:
    with LogReader(directory / "log.sqlite") as log:
        return log.noted(update_log.STATE)


async def test_a_paused_run_keeps_its_workers_and_goes_on_where_it_was(tmp_path: Path) -> None:
    async with led(spec_of(stop={"updates": 1000}), tmp_path) as run, run.worker() as worker:
        await worker.until(lambda: worker.version >= 2)
        run.server.heed(Paused("the host paused it"))
        await worker.until(lambda: run.server.overview().batch.leased == 0 and not worker.held)
        at = worker.version
        assert run.server.overview().paused and len(run.server.overview().workers) == 1
        run.server.heed(Resumed())
        await worker.until(lambda: worker.version > at + 1)


async def test_an_order_ends_the_run_of_the_process_that_it_is_for(tmp_path: Path) -> None:
    async with led(spec_of(stop={"updates": 100_000}), tmp_path) as run, run.worker() as worker:
        path = run.directory.orders_path
        assert state(run.directory.path) == "running"
        orders.give(path, Stop(OTHERS))
        orders.give(path, Pause(os.getpid()))
        outcome = await run.outcome()
        assert outcome.state == "paused" and "shoal stop --pause" in outcome.reason
        assert state(run.directory.path) == "paused"
        await run.end()
        async with resumed(tmp_path, run.url) as again:
            await worker.until(lambda: worker.version > outcome.version)
            orders.give(path, Stop(os.getpid()))
            assert (await again.outcome()).state == "stopped"
        assert state(run.directory.path) == "stopped"


def test_who_has_a_directory_is_told_by_its_lock_and_never_by_what_was_left(
    tmp_path: Path,
) -> None:
    assert holder(tmp_path) is None
    with closing(RunDirectory.create(tmp_path / "run", "test-12345678")):
        assert holder(tmp_path / "run") == os.getpid()
    assert holder(tmp_path / "run") is None
    script = (
        "import sys; from pathlib import Path; from coordinator.directory import RunDirectory\n"
        "kept = RunDirectory.open(Path(sys.argv[1])); print('there', flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "run")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None and process.stdout.readline() == "there\n"
        assert holder(tmp_path / "run") == process.pid
        process.kill()
    assert holder(tmp_path / "run") is None
    for garbage in ("", "-1", "word", "9" * 30):
        (tmp_path / "run" / "host.pid").write_text(garbage)
        assert holder(tmp_path / "run") is None
