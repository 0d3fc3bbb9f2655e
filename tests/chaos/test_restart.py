"""A host that dies and goes on from its directory: the same parameters, nobody else restarts."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import sqlite3
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

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


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The hash of the run when nothing happens."""
    return undisturbed_hash(tmp_path_factory.mktemp("undisturbed"), *RUN)


def test_a_host_killed_twice_comes_to_the_same_end(undisturbed: str, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    with ExitStack() as stack:
        leader, url = stack.enter_context(host(*RUN, *SMALL_TASKS, run_dir=run_dir))
        helpers = [
            stack.enter_context(worker(url, tmp_path / f"home-{index}")) for index in range(2)
        ]
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
    assert outcome["params_hash"] == undisturbed
    assert verify_directory(run_dir, (), lambda version, of: None).sound
    assert outcome["updates"] == 8 and outcome["episodes"] >= 8 * 64
    assert [update["version"] for update in updates(run_dir)] == sorted(
        update["version"] for update in updates(run_dir)
    )


def test_sigterm_lets_workers_wait_for_the_next_life(undisturbed: str, tmp_path: Path) -> None:
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
        with resumed(run_dir) as again:
            assert again.await_end() == 0, again.lines
            assert again.last_json()["params_hash"] == undisturbed
        assert helper.await_end() == 0


def test_a_full_disk_stops_the_run_and_a_free_one_continues_it(
    undisturbed: str, tmp_path: Path
) -> None:
    """No file of the host may grow beyond a bound that its log soon reaches."""
    run_dir = tmp_path / "run"
    with (
        host(*RUN, run_dir=run_dir) as (leader, url),
        worker(url, tmp_path / "home") as helper,
    ):
        await_updates(run_dir, 2)
        size = max(file.stat().st_size for file in run_dir.iterdir() if file.is_file())
        resource.prlimit(leader.process.pid, resource.RLIMIT_FSIZE, (size, size))
        assert leader.await_end() == 2, leader.lines
        error = next(line for line in leader.lines if line.startswith("error: "))
        assert "free the disk" in error and f"--resume {run_dir}" in error, error
        assert not [line for line in leader.lines if "Traceback" in line]
        helper.await_line("free the disk")
        with resumed(run_dir) as again:
            assert again.await_end() == 0, again.lines
            assert again.last_json()["params_hash"] == undisturbed
        assert helper.await_end() == 0


def test_from_the_kill_to_the_next_task_it_takes_no_longer_than_a_start(tmp_path: Path) -> None:
    """A start also asks the environment what it is; on an idle machine both take about a second."""
    run_dir = tmp_path / "run"
    endless = ("CartPole-v1", "--seed", "5", "--set", "stop.target=1e9")
    begun = time.monotonic()
    with host(*endless, run_dir=run_dir) as (leader, url), worker(url, tmp_path / "home"):
        start = time.monotonic() - begun
        await_updates(run_dir, 2)
        leader.signal(signal.SIGKILL)
        killed = time.monotonic()
        leader.process.wait()
        with resumed(run_dir) as again:
            again.await_line("joined")
            took = time.monotonic() - killed
        assert took < 3.0 * start, f"{took:.2f} s, the first start took {start:.2f} s"


def test_two_hosts_never_lead_one_directory(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    with host(*RUN, run_dir=run_dir) as (leader, _):
        with resumed(run_dir) as second:
            assert second.await_end() == 2
            assert "is led by another process" in second.lines[-1]
        os.kill(leader.process.pid, 0)
