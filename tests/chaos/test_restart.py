"""A host that dies and goes on from its directory: the same parameters, nobody else restarts."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import sqlite3
from contextlib import ExitStack
from pathlib import Path

from coordinator.history.verify import verify_directory
from tests.chaos.processes import (
    await_updates,
    host,
    resumed,
    undisturbed_hash,
    updates,
    worker,
)

RUN = ("CartPole-v1", "--seed", "5", "--updates", "8", "--normalize", "--set", "stop.target=1e9")
RUN += ("--quorum", "1", "--max-staleness", "0", "--set", "environment.max_steps=40")
RUN += ("--strategy", "sep-cma", "--sigma", "1", "--policy", "linear")
"""A strategy with a memory, and a sigma for each parameter: they must come back too."""
SMALL_TASKS = ("--set", "pool.task_seconds=0.01", "--set", "pool.minimum_task_seconds=0")


def logged(run_dir: Path) -> int:
    """The version that the log leads to."""
    with contextlib.closing(sqlite3.connect(run_dir / "log.sqlite")) as database:
        return int(database.execute("SELECT COUNT(*) FROM updates").fetchone()[0])


def test_a_host_killed_twice_comes_to_the_same_end(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    with ExitStack() as stack:
        leader, url = stack.enter_context(host(*RUN, *SMALL_TASKS, run_dir=run_dir))
        helpers = [stack.enter_context(worker(url, tmp_path / "home"))]
        for epoch, made in ((2, 2), (3, 5)):
            await_updates(run_dir, made)
            leader.signal(signal.SIGKILL)
            leader.process.wait()
            ended = logged(run_dir)
            # Who joins now has to come to sigmas that it has not seen adapt.
            late = worker(url, tmp_path / f"late-{made}")
            helpers.append(stack.enter_context(late))
            leader = stack.enter_context(resumed(run_dir))
            line = leader.await_line("resumed run ")
            at = re.search(r"at version (\d+) .* epoch (\d+), \d+ results kept", line)
            assert at is not None and (int(at[1]), int(at[2])) == (ended, epoch), line
        assert leader.await_end() == 0, leader.lines
        outcome = leader.last_json()
        assert [helper.await_end() for helper in helpers] == [0] * len(helpers)
    assert outcome["params_hash"] == undisturbed_hash(run_dir)
    assert verify_directory(run_dir, (), lambda version, of: None).sound
    assert outcome["updates"] == 8 and outcome["episodes"] >= 8 * 64
    assert [update["version"] for update in updates(run_dir)] == sorted(
        update["version"] for update in updates(run_dir)
    )


def test_sigterm_and_a_full_disk_let_workers_wait_for_the_next_life(tmp_path: Path) -> None:
    """The disk of the second life is full: no file may grow beyond a bound that its log soon
    reaches. A third one has a free disk."""
    run_dir = tmp_path / "run"
    with (
        host(*RUN, run_dir=run_dir) as (leader, url),
        worker(url, tmp_path / "home") as helper,
    ):
        await_updates(run_dir, 2)
        leader.signal(signal.SIGTERM)
        assert leader.await_end() == 0, leader.lines
        leader.await_line(f"host --resume {run_dir}")
        helper.await_line("paused")
        with resumed(run_dir) as second:
            await_updates(run_dir, logged(run_dir) + 1)
            size = max(file.stat().st_size for file in run_dir.iterdir() if file.is_file())
            resource.prlimit(second.process.pid, resource.RLIMIT_FSIZE, (size, size))
            assert second.await_end() == 2, second.lines
        error = next(line for line in second.lines if line.startswith("error: "))
        assert "free the disk" in error and f"--resume {run_dir}" in error, error
        assert not [line for line in second.lines if "Traceback" in line]
        helper.await_line("free the disk")
        with resumed(run_dir) as third:
            assert third.await_end() == 0, third.lines
            assert third.last_json()["params_hash"] == undisturbed_hash(run_dir)
        assert helper.await_end() == 0


def test_two_hosts_never_lead_one_directory(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    with host(*RUN, run_dir=run_dir) as (leader, _):
        with resumed(run_dir) as second:
            assert second.await_end() == 2
            assert "is led by another process" in second.lines[-1]
        os.kill(leader.process.pid, 0)
