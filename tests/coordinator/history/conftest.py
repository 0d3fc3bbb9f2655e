"""A run directory with some history, each test with a copy of its own."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from coordinator import host, update
from coordinator.host import Run
from coordinator.log import EvaluationRow, ResultRow, UpdateRow
from coordinator.pool.events import CentreJudged, CloseBatch
from protocol import replay
from protocol.spec import RunSpec
from protocol.state import State
from tests.coordinator import runs

UPDATES = 70


def spec() -> RunSpec:
    """Of the run that the tests here read: with a snapshot on the way, slots and statistics."""
    return runs.spec_of(
        policy={"kind": "mlp", "hidden": [3], "initialisation": "scaled"},
        optimizer={"kind": "adam", "learning_rate": 0.05},
        normalizer={"enabled": True},
        centre={"evaluate_every": 5, "episodes": 4, "screening": 2},
        stop={"updates": UPDATES},
    )


def lead(run: Run, updates: int) -> list[State]:
    """Leave what a coordinator does that leads a run for so many updates; the states of its
    versions.

    One update a second by one worker, every fifth version judged.
    """
    wanted = run.spec
    course = host.load(run, lambda line: None)
    leader = host.enter(run, course, course.epoch + 1)
    run.directory.write_spec(wanted)
    states, rules = [course.recovered.versions.current], replay.arithmetic(wanted)
    if states[0].version == 0:
        run.directory.snapshots.freeze(states[0])
    size, judged = wanted.directions, []
    for version in range(states[0].version, states[0].version + updates):
        closed = CloseBatch(
            version, (runs.contribution(wanted, states[-1], version * size, size),), ()
        )
        seconds = version + 1.0
        made, payload = update.make_signed(
            wanted, rules, leader, states[-1], closed, judged, seconds
        )
        states.append(made.after)
        row = UpdateRow(version, payload, 1.7e9 + version, made.members, 0, seconds, 1)
        course.log.append(row)
        if made.update.state_digest:
            run.directory.snapshots.freeze(made.after)
        judged = []
        if made.after.version % 5 == 0:
            judged = [CentreJudged(version + 1, 4, version / 2, 0.5, 200, True, False)]
            course.log.record_evaluation(
                EvaluationRow(
                    version + 1, 4, version / 2, 0.5, 200, True, 1.7e9 + version, version + 1.0
                )
            )
    reached = states[-1].version
    course.log.keep_results([ResultRow("a" * 16, "b" * 6, 7, "members", reached, reached, b"r")])
    course.log.close()
    run.directory.close()
    return states


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[State]]:
    """A run of 70 updates, not to be changed, and what its versions are."""
    where = tmp_path_factory.mktemp("written") / "run"
    return where, lead(host.prepare(spec(), where), UPDATES)


@pytest.fixture
def states(written: tuple[Path, list[State]]) -> list[State]:
    """What its versions are."""
    return written[1]


@pytest.fixture
def copy(written: tuple[Path, list[State]], tmp_path: Path) -> Callable[[str], Path]:
    """Copies of it, by name."""
    return lambda name: Path(shutil.copytree(written[0], tmp_path / name))


@pytest.fixture
def run_dir(copy: Callable[[str], Path]) -> Path:
    """A copy of it."""
    return copy("run")
