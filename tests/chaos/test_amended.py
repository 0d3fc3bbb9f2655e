"""A run whose batch and target are set while it goes on: its host killed, its workers and who joins
late in step, and its end that of the new target."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from coordinator.history.past import opened
from coordinator.history.settings import settings
from coordinator.history.verify import verify_directory
from tests.chaos.processes import (
    DEADLINE,
    ROOT,
    assert_orderly,
    await_updates,
    host,
    resumed,
    updates,
    worker,
)

RUN = ("CartPole-v1", "--seed", "5", "--normalize", "--policy", "linear", "--population", "16")
RUN += (
    "--set",
    "stop.target=1e9",
    "--set",
    "environment.max_steps=20",
    "--set",
    "stop.updates=9999",
)
RUN += ("--set", "centre.episodes=4", "--set", "centre.screening=2", "--pool", "quorum")
SNAPSHOT = 64
"""The first version that a snapshot is made of."""


def set_(run_dir: Path, *assignments: str) -> str:
    """What `shoal set` says, which must be no error."""
    command = [sys.executable, "-m", "shoal", "set", str(run_dir), *assignments]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def await_amended(run_dir: Path) -> int:
    """The version that the first update with amendments led to, once there is one."""
    until = time.monotonic() + DEADLINE
    while True:
        found = [line["version"] for line in updates(run_dir) if "amendments" in line]
        if found:
            return int(found[0])
        assert time.monotonic() < until, "no update carries what was set"
        time.sleep(0.02)  # between looks at a file; nothing depends on its length


def test_batch_and_target_are_set_while_a_run_goes_on(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    with ExitStack() as stack:
        leader, url = stack.enter_context(host(*RUN, run_dir=run_dir))
        first = stack.enter_context(worker(url, tmp_path / "first"))
        await_updates(run_dir, 3)
        assert "heeds it within seconds" in set_(run_dir, "strategy.population=28")
        changed = await_amended(run_dir)
        leader.signal(signal.SIGKILL)
        leader.process.wait()
        leader = stack.enter_context(resumed(run_dir))
        leader.await_line("resumed run ")
        await_updates(run_dir, SNAPSHOT + 2)
        late = stack.enter_context(worker(url, tmp_path / "late"))
        late.await_line("accepted")
        set_(run_dir, "stop.target=1")
        assert leader.await_end() == 0, leader.lines
        assert (first.await_end(), late.await_end()) == (0, 0)
        outcome = leader.last_json()
    assert outcome["solved"] and outcome["centre_return"] >= 1
    assert_orderly(first, late, leader)
    verdict = verify_directory(run_dir, (), lambda version, of: None)
    assert verdict.sound and verdict.reached == outcome["updates"], verdict
    with opened(run_dir) as past:
        assert (past.spec.strategy.population, past.spec.stop.target) == (16, 1e9)
        made = [update for _, update in past.updates(0)]
        now = {each.field: each.value for each in settings(past)[1]}
    told = [update.amendments for update in made if update.amendments]
    assert told == [{"strategy.population": 28.0}, {"stop.target": 1.0}]
    first_of = {update.version: update.cohorts[-1].first for update in made if update.cohorts}
    assert first_of[changed + 1] >= 8 * (changed + 1), "the old batches end where the new begin"
    assert (now["strategy.population"], now["stop.target"]) == (28.0, 1.0)
