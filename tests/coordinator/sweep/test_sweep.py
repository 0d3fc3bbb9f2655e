"""A sweep in its directory: which points it draws, tries again, and gives the best of."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from coordinator import host
from coordinator.directory import BrokerChoice
from coordinator.sweep.best import spec_of
from coordinator.sweep.file import SweepError
from coordinator.sweep.leading import Led
from coordinator.sweep.measures import Evaluation
from coordinator.sweep.planning import Turn
from coordinator.sweep.runner import Asked, Runner
from coordinator.sweep.store import STORE, Store
from coordinator.sweep.sweep import Sweep
from protocol import spec as run_spec
from tests.coordinator.history.conftest import lead

GRID = """
base = "CartPole-v1"
seeds = 2
[grid]
strategy.sigma = [0.1, 0.2]
[budget]
updates = 2
"""
WRONG = """
base = "CartPole-v1"
seeds = 1
sampler = "tpe"
points = 6
[random]
strategy.sigma = { uniform = [-2.0, -1.0] }
[budget]
updates = 2
"""


HALVING = """
base = "CartPole-v1"
seeds = 1
[set]
centre.evaluate_every = 5
[grid]
strategy.sigma = [0.1, 0.2]
[budget]
updates = 20
[stop]
rule = "halving"
rungs = 1
"""
NOBODY: Any = None
"""In the place of what leads runs, where none is led."""


def silent(line: str) -> None:
    """Nobody listens."""


@pytest.fixture
def begun(tmp_path: Path) -> Iterator[Callable[[str], Sweep]]:
    """Begins sweeps."""
    sweeps: list[Sweep] = []

    def begin(text: str) -> Sweep:
        file = tmp_path / "sweep.toml"
        file.write_text(text)
        sweeps.append(Sweep.begin(file, tmp_path / "sweep", (), silent))
        return sweeps[-1]

    yield begin
    for sweep in sweeps:
        sweep.close()


def test_points_that_cannot_be_trained_do_not_end_what_is_drawn(
    begun: Callable[[str], Sweep],
) -> None:
    sweep = begun(WRONG)
    runner = Runner(sweep, Asked(BrokerChoice()), silent, silent)
    asyncio.run(runner._see_through(NOBODY))
    assert [row.state for row in sweep.rows()] == ["failed"] * 6 and sweep.over


def test_it_goes_on_by_what_runs_came_to_before_their_host_was_killed(
    begun: Callable[[str], Sweep],
) -> None:
    sweep = begun(HALVING)
    for each in sweep.tried:
        (run,) = each.runs
        spec = sweep.specs.of(each.point, run.seed).spec
        led = host.prepare(spec, sweep.directory_of(each.point.name, run.seed))
        lead(led, 12)
        led.directory.close()
        sweep.begun(Turn(each, run, 10), led.id)
    assert [verdict.stopped for verdict in sweep.verdicts()] == [None, None]
    runner = Runner(sweep, Asked(BrokerChoice()), silent, silent)
    runner.pause("so that none is led")
    asyncio.run(runner._see_through(NOBODY))
    assert [verdict.stopped for verdict in sweep.verdicts()] == [None, 0]


async def test_whoever_interrupts_it_twice_does_not_wait(begun: Callable[[str], Sweep]) -> None:
    sweep = begun(GRID)
    runner = Runner(sweep, Asked(BrokerChoice()), silent, silent)
    turn = Turn(sweep.tried[0], sweep.tried[0].runs[0], None)
    hangs = asyncio.create_task(asyncio.sleep(1000.0))
    runner._led[hangs] = Led(NOBODY, turn, silent, lambda: None)
    seeing = asyncio.create_task(runner._see_through(NOBODY))
    runner.pause("paused by the host (SIGINT)")
    done, _ = await asyncio.wait({seeing}, timeout=0.2)
    assert not done
    runner.pause("paused by the host (SIGINT)")
    await asyncio.wait_for(seeing, 10.0)


def test_the_best_is_that_of_whichever_seed_has_begun(begun: Callable[[str], Sweep]) -> None:
    sweep = begun(GRID)
    first, second = sweep.tried
    with pytest.raises(SweepError, match="is finished: wait, or name"):
        spec_of(sweep, None)
    with pytest.raises(SweepError, match="was not begun"):
        spec_of(sweep, first.point.name)
    for run in second.runs:
        run.state = "failed"
    run = second.runs[1]
    run.state, run.curve = "finished", (Evaluation(2, 9.0, 1.0, 10, True, 64),)
    where = sweep.directory_of(second.point.name, run.seed)
    where.mkdir(parents=True)
    spec = sweep.specs.of(second.point, run.seed).spec
    (where / "spec.toml").write_text(run_spec.to_toml(spec))
    best = run_spec.parse(tomllib.loads(spec_of(sweep, None)))
    assert best == replace(spec, name="sweep") and best.strategy.sigma == 0.2


def test_what_failed_or_was_stopped_is_tried_again(begun: Callable[[str], Sweep]) -> None:
    sweep = begun(GRID)
    states = ("failed", "stopped", "finished", "running")
    runs = [(each.number, run) for each in sweep.tried for run in each.runs]
    for state, (number, run) in zip(states, runs, strict=True):
        run.state, run.why = state, "why"  # type: ignore[assignment]
        sweep._store.keep(number, run)
    assert sweep.try_again() == 2
    kept = [run.state for each in sweep._store.points() for run in each.runs]
    assert kept == ["pending", "pending", "finished", "running"]


@pytest.mark.parametrize("change", ["DELETE FROM meta", "UPDATE meta SET value = '{'"])
def test_a_damaged_file_is_told_in_a_line(begun: Callable[[str], Sweep], change: str) -> None:
    directory = begun(GRID).directory
    with contextlib.closing(sqlite3.connect(directory / STORE)) as connection, connection:
        connection.execute(f"{change} WHERE key = 'target'")
    with pytest.raises(SweepError, match="backup"):
        Sweep(Store.read(directory))
