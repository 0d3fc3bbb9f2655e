"""`shoal set` as a person meets it: what holds, what is asked for, and one error for a mistake."""

from __future__ import annotations

import fcntl
import json
import sqlite3
from pathlib import Path

import pytest

from coordinator import wanted
from coordinator.log import ENDED
from tests.coordinator.history.conftest import UPDATES
from tests.coordinator.history.test_cli import Said

MISTAKES = {
    "strategy.sigma=0.2": "'strategy.sigma' can't change while a run goes on: give one of",
    "strategy.populatoin=4": "'strategy.populatoin' can't change",
    "strategy=4": "'strategy' can't change",
    "strategy.population=7": "strategy.population is 7: must be even",
    "strategy.population=0": "strategy.population is 0: must be at least 2",
    "strategy.population=1e30": "strategy.population is 1",
    "strategy.population=4.5": "strategy.population is 4.5: must be a whole number",
    "strategy.population=many": "strategy.population is 'many': must be a number",
    "stop.target=true": "stop.target is 'True': must be a number",
    "stop.target=nan": "stop.target is nan: must be finite",
    "stop.target=[1]": "must be a number",
    "stop.steps=9007199254740993": "give a rounder one",
    "stop.steps=1" + "0" * 400: "give a rounder one",
    "stop.target": "is not of the form section.field=value",
    "optimizer.learning_rate=-1": "optimizer.learning_rate is -1.0: must be more than 0",
    "pool.quorum=2": "pool.quorum is 2.0: must be at most 1",
}


@pytest.fixture
def shoal_says(capsys: pytest.CaptureFixture[str]) -> Said:
    return Said(capsys)


def test_without_a_change_it_tells_what_holds(run_dir: Path, shoal_says: Said) -> None:
    said = shoal_says("set", run_dir)
    assert f"at version {UPDATES}" in said
    assert "strategy.population        32" in " ".join(said.split("\n"))
    told = json.loads(shoal_says("set", run_dir, "--json"))
    assert told["version"] == UPDATES and told["asked_for"] == {}
    assert {"field": "stop.target", "value": None, "since": 0, "spec": None} in told["settings"]


def test_a_change_waits_where_nobody_leads_the_run(run_dir: Path, shoal_says: Said) -> None:
    said = shoal_says("set", run_dir, "strategy.population=48", "stop.target=-1.5")
    assert "strategy.population: 32 -> 48\nstop.target: none -> -1.5\n" in said
    assert "it waits until somebody leads it" in said and f"host --resume {run_dir}" in said
    assert wanted.read(run_dir / wanted.WANTED) == {
        "strategy.population": 48.0,
        "stop.target": -1.5,
    }
    row = next(r for r in shoal_says("set", run_dir).splitlines() if r.startswith("stop.target"))
    assert row.split() == ["stop.target", "none", "0", "none", "-1.5"]


def test_where_somebody_leads_it_is_heeded_soon(run_dir: Path, shoal_says: Said) -> None:
    with (run_dir / "run").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "heeds this within seconds" in shoal_says("set", run_dir, "stop.updates=100")
        told = json.loads(shoal_says("set", run_dir, "stop.updates=90", "--json"))
    assert told == {"asked_for": {"stop.updates": 90.0}, "led_now": True}


@pytest.mark.parametrize("assignment", MISTAKES)
def test_a_mistake_is_one_line_and_nothing_is_asked_for(
    assignment: str, run_dir: Path, shoal_says: Said
) -> None:
    said = shoal_says("set", run_dir, "stop.updates=100", assignment, code=2)
    assert MISTAKES[assignment] in said, said
    assert not (run_dir / wanted.WANTED).exists()


def test_a_run_that_has_ended_takes_no_change(run_dir: Path, shoal_says: Said) -> None:
    with sqlite3.connect(run_dir / "log.sqlite") as database:
        database.execute("INSERT INTO meta VALUES (?, ?)", (ENDED, "the target is reached"))
    said = shoal_says("set", run_dir, "stop.updates=100", code=2)
    assert "has ended at version 70: the target is reached" in said and "shoal fork" in said


def test_no_run_is_one_line(tmp_path: Path, shoal_says: Said) -> None:
    assert "holds no run" in shoal_says("set", tmp_path, "stop.updates=100", code=2)
