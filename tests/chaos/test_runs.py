"""Runs of real processes come to the same parameters, whoever works and whoever dies."""

import signal
from contextlib import ExitStack
from pathlib import Path

from tests.chaos.processes import (
    Running,
    await_updates,
    host,
    undisturbed_hash,
    updates,
    worker,
)

RUN: tuple[str, ...] = ("CartPole-v1", "--seed", "5", "--normalize", "--set", "stop.target=1e9")
RUN += ("--set", "environment.max_steps=60")
SYNCHRONOUS = ("--updates", "12", "--quorum", "1", "--max-staleness", "0")
SMALL_TASKS = ("--set", "pool.task_seconds=0.01", "--set", "pool.minimum_task_seconds=0")


def test_whoever_ends_sleeps_or_comes_late_changes_nothing(tmp_path: Path) -> None:
    """One after the other: interrupted, asked to end, killed; then one that is stopped, and whose
    work one does that comes late."""
    run_dir = tmp_path / "run"
    with ExitStack() as stack:
        leader, url = stack.enter_context(host(*RUN, *SYNCHRONOUS, *SMALL_TASKS, run_dir=run_dir))

        def joined(name: str) -> Running:
            """A worker that has come and brought the run on."""
            made = len(updates(run_dir))
            helper = stack.enter_context(worker(url, tmp_path / name))
            await_updates(run_dir, made + 1)
            return helper

        interrupted = joined("interrupted")
        interrupted.signal(signal.SIGINT)
        assert interrupted.await_end() == 0
        leader.await_line("): left")
        asked = joined("asked")
        asked.signal(signal.SIGTERM)
        assert asked.await_end() == 0
        leader.await_line("): left", 2)
        assert not [line for line in leader.lines if "ran out" in line], "both gave back their work"
        killed = joined("killed")
        killed.signal(signal.SIGKILL)
        leader.await_line("gone: its connection broke")
        asleep = joined("asleep")
        asleep.signal(signal.SIGSTOP)
        made = len(updates(run_dir))
        assert made < 12, "the run ended before the last one came"
        late = stack.enter_context(worker(url, tmp_path / "late"))
        await_updates(run_dir, made + 2)  # what the sleeper had is with the late one now
        asleep.signal(signal.SIGCONT)
        assert leader.await_end() == 0, leader.lines
        assert [late.await_end(), asleep.await_end()] == [0, 0]
    outcome = leader.last_json()
    assert (outcome["updates"], outcome["params_hash"]) == (12, undisturbed_hash(run_dir))


def test_a_stopped_host_ends_orderly_and_who_left_stragglers_behind_used_every_direction_once(
    tmp_path: Path,
) -> None:
    run_dir = tmp_path / "run"
    asynchronous = ("--quorum", "0.7", "--max-staleness", "2")
    with ExitStack() as stack:
        leader, url = stack.enter_context(host(*RUN, *asynchronous, *SMALL_TASKS, run_dir=run_dir))
        helpers = [
            stack.enter_context(worker(url, tmp_path / f"home-{index}")) for index in range(3)
        ]
        leader.await_line("joined", 3)
        await_updates(run_dir, len(updates(run_dir)) + 6)
        leader.signal(signal.SIGINT)
        assert leader.await_end() == 0
        assert [helper.await_end() for helper in helpers] == [0, 0, 0]
    outcome = leader.last_json()
    assert outcome["solved"] is False
    assert outcome["params_hash"] in [update["params_hash"] for update in updates(run_dir)]
    members = sum(update["members"] for update in updates(run_dir))
    assert members <= (outcome["updates"] + 1) * 64
