"""Runs of real processes come to the same parameters, whoever works and whoever dies."""

import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.chaos.processes import Running, await_updates, host, undisturbed_hash, updates, worker

RUN = ("CartPole-v1", "--seed", "5", "--updates", "6", "--normalize", "--set", "stop.target=1e9")
SYNCHRONOUS = ("--quorum", "1", "--max-staleness", "0")
SMALL_TASKS = ("--set", "pool.task_seconds=0.01", "--set", "pool.minimum_task_seconds=0")


def finish(leader: Running) -> str:
    """The hash that the run returns."""
    assert leader.await_end() == 0, leader.lines
    outcome = leader.last_json()
    assert outcome["updates"] == 6
    return str(outcome["params_hash"])


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The hash of the run with one worker and nothing happening."""
    return undisturbed_hash(tmp_path_factory.mktemp("undisturbed"), *RUN, *SYNCHRONOUS)


def test_three_workers_and_small_tasks_give_the_same_parameters(
    undisturbed: str, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        leader, url = stack.enter_context(
            host(*RUN, *SYNCHRONOUS, *SMALL_TASKS, run_dir=tmp_path / "run")
        )
        for index in range(3):
            stack.enter_context(worker(url, tmp_path / f"home-{index}"))
        assert finish(leader) == undisturbed


def test_a_killed_worker_and_a_late_one_change_nothing(undisturbed: str, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    with (
        host(*RUN, *SYNCHRONOUS, *SMALL_TASKS, run_dir=run_dir) as (leader, url),
        worker(url, tmp_path / "victim") as victim,
    ):
        await_updates(run_dir, 2)
        victim.signal(signal.SIGKILL)
        leader.await_line("gone: its connection broke")
        with worker(url, tmp_path / "newcomer") as newcomer:
            assert finish(leader) == undisturbed
            assert newcomer.await_end() == 0


def test_sigterm_hands_back_at_once(undisturbed: str, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    with (
        host(*RUN, *SYNCHRONOUS, *SMALL_TASKS, run_dir=run_dir) as (leader, url),
        worker(url, tmp_path / "first") as first,
    ):
        await_updates(run_dir, 1)
        first.signal(signal.SIGTERM)
        assert first.await_end() == 0
        leader.await_line("): left")
        with worker(url, tmp_path / "second"):
            assert finish(leader) == undisturbed


def test_a_stopped_worker_holds_nothing_up(undisturbed: str, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    with (
        host(*RUN, *SYNCHRONOUS, *SMALL_TASKS, run_dir=run_dir) as (leader, url),
        worker(url, tmp_path / "sleeper") as sleeper,
        worker(url, tmp_path / "other"),
    ):
        leader.await_line("joined", 2)
        await_updates(run_dir, 1)
        sleeper.signal(signal.SIGSTOP)
        assert finish(leader) == undisturbed
        sleeper.signal(signal.SIGCONT)
        assert sleeper.await_end() == 0


def test_interrupted_worker_finishes_its_task_first(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    with (
        host(*RUN, *SYNCHRONOUS, run_dir=run_dir) as (leader, url),
        worker(url, tmp_path / "first") as first,
    ):
        await_updates(run_dir, 1)
        first.signal(signal.SIGINT)
        assert first.await_end() == 0
        leader.await_line("): left")
        assert not [line for line in leader.lines if "ran out" in line]


def test_stopped_host_ends_orderly_and_tells_its_workers(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    endless = ("CartPole-v1", "--seed", "5", "--set", "stop.target=1e9")
    with (
        host(*endless, run_dir=run_dir) as (leader, url),
        worker(url, tmp_path / "first") as first,
    ):
        await_updates(run_dir, 2)
        leader.signal(signal.SIGINT)
        assert leader.await_end() == 0
        assert leader.last_json()["solved"] is False
        assert first.await_end() == 0
        hashes = [update["params_hash"] for update in updates(run_dir)]
        assert leader.last_json()["params_hash"] in hashes


def test_leaving_stragglers_behind_still_uses_every_direction_once(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    asynchronous = ("--quorum", "0.7", "--max-staleness", "2")
    with ExitStack() as stack:
        leader, url = stack.enter_context(host(*RUN, *asynchronous, *SMALL_TASKS, run_dir=run_dir))
        for index in range(3):
            stack.enter_context(worker(url, tmp_path / f"home-{index}"))
        finish(leader)
    assert sum(update["members"] for update in updates(run_dir)) <= 6 * 64 + 64
