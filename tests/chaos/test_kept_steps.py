"""A host that is killed while a candidate is judged: the same steps are kept, the same reverted."""

from __future__ import annotations

import contextlib
import signal
import sqlite3
import time
from contextlib import ExitStack
from pathlib import Path

from coordinator.history.listing import lines
from coordinator.history.past import opened
from tests.chaos.processes import DEADLINE, host, resumed, worker

RUN = ("CartPole-v1", "--seed", "3", "--updates", "9", "--normalize", "--policy", "linear")
RUN += ("--strategy", "hill-climbing", "--population", "20", "--sigma", "1")
RUN += ("--set", "stop.target=1e9", "--set", "environment.max_steps=60")
RUN += ("--set", "centre.screening=60", "--set", "strategy.sigma_worse=0.7")


def unjudged(run_dir: Path) -> int:
    """The version that the log leads to, where its centre is not judged yet; otherwise 0."""
    with contextlib.closing(sqlite3.connect(run_dir / "log.sqlite")) as database:
        (version,) = database.execute("SELECT COUNT(*) FROM updates").fetchone()
        (judged,) = database.execute("SELECT MAX(version) FROM evaluations").fetchone()
    return 0 if judged == version else int(version)


def test_a_host_killed_while_candidates_are_judged_keeps_the_same_steps(tmp_path: Path) -> None:
    calm_dir, run_dir = tmp_path / "calm", tmp_path / "run"
    with host(*RUN, run_dir=calm_dir) as (calm, url), worker(url, tmp_path / "calm-home"):
        assert calm.await_end() == 0, calm.lines
    with ExitStack() as stack:
        leader, url = stack.enter_context(host(*RUN, run_dir=run_dir))
        helper = stack.enter_context(worker(url, tmp_path / "home"))
        leader.await_line("joined")
        for goal in (1, 5):
            until = time.monotonic() + DEADLINE
            while unjudged(run_dir) < goal:
                assert time.monotonic() < until and leader.process.poll() is None, leader.lines
                time.sleep(0.002)  # between looks: the next look may be too late after longer
            leader.signal(signal.SIGKILL)
            leader.process.wait()
            leader = stack.enter_context(resumed(run_dir))
            leader.await_line("resumed run ")
        assert leader.await_end() == 0, leader.lines
        assert leader.last_json()["params_hash"] == calm.last_json()["params_hash"]
        assert helper.await_end() == 0
    with opened(run_dir) as past, opened(calm_dir) as whole:
        told, expected = ([line.update.digest_after for line in lines(p)] for p in (past, whole))
        reverts = [line.update.reverts for line in lines(past)]
    assert told == expected
    assert any(reverts) and not all(reverts)
