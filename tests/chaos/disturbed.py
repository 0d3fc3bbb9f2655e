"""The run that is disturbed, how its workers work, and what they and its host say of themselves."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.chaos.processes import DEADLINE, Running, assert_sound
from tests.chaos.proxy import Faults

UPDATES = 30
RUN: tuple[str, ...] = ("CartPole-v1", "--seed", "5", "--updates", str(UPDATES), "--normalize")
RUN += ("--set", "stop.target=1e9", "--set", "environment.max_steps=60")
RUN += ("--learning-rate", "0.01")  # returns stay different, so that what counts has a weight
SMALL_TASKS: tuple[str, ...] = (
    "--set",
    "pool.task_seconds=0.5",
    "--set",
    "pool.minimum_task_seconds=0",
)
SMALL_TASKS += ("--set", "pool.lease_floor=1")
WORKING = ("--cpu-share", "4%", "--log-format=json")
"""Flags of workers that are in the midst of a task most of the time."""
PACE = Faults(latency=0.2)
"""Of the one way by which all tasks and results go: an update takes two round trips at least, so
that a run outlasts what happens to it, on any machine."""
BLACK_HOLE = Faults(dead=True)


def finish(leader: Running, run_dir: Path) -> str:
    """The hash that the run returns, which has ended with all of its updates, each proved."""
    assert leader.await_end() == 0, leader.lines
    assert_sound(run_dir, UPDATES)
    outcome = leader.last_json()
    assert outcome["updates"] == UPDATES
    return str(outcome["params_hash"])


def statuses(process: Running) -> list[dict[str, Any]]:
    """What a worker has said of itself so far."""
    said = map(json.loads, process.lines)
    return [status for status in said if status["kind"] == "status"]


def await_status(process: Running, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The first status of a worker that is as wanted."""
    until = time.monotonic() + DEADLINE
    while True:
        for status in filter(wanted, statuses(process)):
            return status
        assert time.monotonic() < until, process.lines
        time.sleep(0.05)  # between looks; nothing depends on its length
