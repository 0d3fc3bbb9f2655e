"""A run whose batch and target are set while it goes on: its host killed, its old updates archived,
its workers and who joins by a snapshot in step, and its end that of the new target."""

from __future__ import annotations

import signal
import subprocess
import sys
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
KEPT = 12
"""Updates that stay in the log of a run that goes on, at least."""


def shoal(*arguments: str) -> str:
    """What a command says, which must be no error."""
    command = [sys.executable, "-m", "shoal", *arguments]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_batch_and_target_are_set_while_a_run_goes_on(tmp_path: Path) -> None:
    run_dir, archive = tmp_path / "run", tmp_path / "old.sqlite"
    with ExitStack() as stack:
        leader, url = stack.enter_context(host(*RUN, run_dir=run_dir))
        # Nobody works yet: so the first update carries it, and the snapshot has to tell it.
        assert "heeds this within" in shoal("set", str(run_dir), "strategy.population=28")
        first = stack.enter_context(worker(url, tmp_path / "first"))
        await_updates(run_dir, SNAPSHOT + KEPT)
        leader.signal(signal.SIGKILL)
        leader.process.wait()
        shoal("archive", str(run_dir), "--before", str(SNAPSHOT), "--to", str(archive))
        leader = stack.enter_context(resumed(run_dir))
        leader.await_line("resumed run ")
        # The updates that lead there are gone: only the snapshot tells what was set before it.
        late = stack.enter_context(worker(url, tmp_path / "late"))
        late.await_line("accepted")
        shoal("set", str(run_dir), "stop.target=1")
        assert leader.await_end() == 0, leader.lines
        assert (first.await_end(), late.await_end()) == (0, 0)
        outcome = leader.last_json()
    assert outcome["solved"] and outcome["centre_return"] >= 1
    assert_orderly(first, late, leader)
    verdict = verify_directory(run_dir, (archive,), lambda version, of: None)
    assert verdict.sound and verdict.reached == outcome["updates"], verdict
    with opened(run_dir) as past:
        now = {each.field: (each.value, each.since) for each in settings(past)[1]}
        assert now["strategy.population"] == (28.0, None) and now["stop.target"][0] == 1.0
    with opened(run_dir, [archive]) as past:
        assert (past.spec.strategy.population, past.spec.stop.target) == (16, 1e9)
        made = [update for _, update in past.updates(0)]
        assert dict(settings(past)[0].values) == {"strategy.population": 28.0, "stop.target": 1.0}
    told = [update.amendments for update in made if update.amendments]
    assert told == [{"strategy.population": 28.0}, {"stop.target": 1.0}]
    assert made[0].amendments, "told before anybody worked, and carried late"
    own = [update for update in made if not update.late]
    assert all(update.episodes <= 16 for update in own if update.version < 2)
    assert 16 < max(update.episodes for update in own) <= 28
