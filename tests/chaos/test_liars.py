"""A worker that lies in a run of real processes: found, undone, banned, and let in again."""

from __future__ import annotations

import json
import re
import signal
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import shoal
from protocol.command import run as command
from tests.chaos.processes import (
    DEADLINE,
    assert_orderly,
    assert_sound,
    await_updates,
    host,
    resumed,
    running,
    updates,
    worker,
)

RUN = (
    *("CartPole-v1", "--seed", "5", "--population", "32", "--pool", "sync", "--updates", "100000"),
    *("--learning-rate", "1e-6", "--sigma", "1", "--policy", "linear"),
    *("--set", "environment.max_steps=60", "--set", "stop.target=1e9"),
    *("--set", "centre.evaluate_every=50", "--set", "centre.episodes=2"),
    *("--set", "centre.screening=2", "--set", "pool.audit_share=0.5"),
    *("--set", "pool.task_seconds=0.005", "--set", "pool.minimum_task_seconds=0"),
)
"""Mirrors differ in most directions, and go on to."""
PACE = ("--nice", "0", "--cpu-share", "10%")


def test_a_liar_is_found_and_undone_and_stays_out_until_a_person_lets_it_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir, lies = tmp_path / "run", tmp_path / "lies"
    monkeypatch.setenv("SHOAL_TEST_LIES", str(lies))

    def bid(*words: str) -> None:
        name, *rest = words
        assert command(shoal.app, ["pool", name, str(run_dir), *rest]) == 0
        capsys.readouterr()

    def told() -> dict[str, dict[str, Any]]:
        """What `shoal pool workers` says, by worker."""
        assert command(shoal.app, ["pool", "workers", str(run_dir), "--json"]) == 0
        return {line["worker"]: line for line in json.loads(capsys.readouterr().out)}

    with ExitStack() as stack:
        leader, url = stack.enter_context(host(*RUN, run_dir=run_dir))
        honest = stack.enter_context(worker(url, tmp_path / "honest", *PACE))
        known = _worker(leader.await_line("): joined"))
        bid("trust", known)
        leader.await_line(f"{known} is trusted")
        liar = stack.enter_context(
            running("tests.chaos.lying", url, "--home", str(tmp_path / "liar"), *PACE)
        )
        false = _worker(leader.await_line("): joined", 2))
        leader.await_line(f"{false} is established")
        lies.touch()
        line = leader.await_line(f"{false} is quarantined")
        assert re.search(r"its returns for direction \d+ of version \d+ are not what 1 other", line)
        assert re.search(r"; \d+ directions of it are evaluated again", line)
        leader.await_line(f"{false} is banned")
        until = time.monotonic() + DEADLINE
        while told()[false]["standing"] != "banned":
            assert time.monotonic() < until, told()[false]
            time.sleep(0.02)  # between looks at the log; nothing depends on its length
        leader.signal(signal.SIGKILL)
        leader.process.wait()

        leader = stack.enter_context(resumed(run_dir))
        leader.await_line("): joined", 2)
        lies.unlink()  # what it has begun is refused: it is banned
        await_updates(run_dir, len(updates(run_dir)) + 3)
        assert told()[false]["standing"] == "banned"
        assert "are not what 1 other got" in told()[false]["reason"]
        assert told()[known]["trusted"]
        bid("unban", false)
        leader.await_line(f"{false} may work again")
        leader.await_line(f"{false} is established")
        leader.signal(signal.SIGINT)
        assert [leader.await_end(), honest.await_end(), liar.await_end()] == [0, 0, 0]
    assert told()[false]["standing"] == "established"
    assert_sound(run_dir, leader.last_json()["updates"])
    assert_orderly(leader, honest, liar)


def test_three_workers_whom_nobody_trusts_find_the_fourth_that_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir, lies = tmp_path / "run", tmp_path / "lies"
    monkeypatch.setenv("SHOAL_TEST_LIES", str(lies))
    lies.touch()
    with ExitStack() as stack:
        leader, url = stack.enter_context(host(*RUN, run_dir=run_dir))
        liar = stack.enter_context(
            running("tests.chaos.lying", url, "--home", str(tmp_path / "liar"), *PACE)
        )
        false = _worker(leader.await_line("): joined"))
        honest = [
            stack.enter_context(worker(url, tmp_path / f"honest{number}", *PACE))
            for number in range(3)
        ]
        line = leader.await_line("is quarantined")
        assert line.partition(" is quarantined")[0].endswith(false), line
        assert re.search(r"are not what [23] others got", line)
        leader.await_line("is established", 3)
        leader.signal(signal.SIGINT)
        assert [process.await_end() for process in (leader, *honest, liar)] == [0] * 5
        condemned = [
            line for line in leader.lines if "is quarantined" in line or "is banned" in line
        ]
        assert all(false in line for line in condemned), condemned
        established = [line for line in leader.lines if "is established" in line]
        assert not any(false in line for line in established), established
    assert_sound(run_dir, leader.last_json()["updates"])
    assert_orderly(leader, *honest, liar)


def _worker(line: str) -> str:
    """The name of the worker that a line is of."""
    found = re.search(r"([a-z2-7]{16})/[a-z2-7]{6}", line)
    assert found is not None, line
    return found[1]
