"""A run of a sweep in its directory: begun, found again, and what its log tells of its centre."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from coordinator.host import EndedError, Run, prepare, resume
from coordinator.log import LogReader
from coordinator.sweep.measures import Evaluation

if TYPE_CHECKING:
    from coordinator.composing import Composed
    from protocol.spec import RunSpec


def has_begun(where: Path) -> bool:
    """Whether a run is there to go on with: the spec is the last that a new directory gets."""
    return (where / "spec.toml").exists()


def begin(where: Path, composed: Composed, key: Path) -> Run:
    """A new run in this directory, whatever a host that died at once left there.

    `key`: the sweep's. Nobody else has it, and no two runs of a sweep have one name, so nobody has
    led a run of this name. Raises `ShoalError`.
    """
    shutil.rmtree(where, ignore_errors=True)
    run = prepare(composed.spec, where, key, first=composed.first)
    return replace(run, reuses_key=False)


def go_on(where: Path) -> Run | None:
    """The run in this directory, to go on with it; None where it has ended. Raises `ShoalError`."""
    try:
        return resume(where)
    except EndedError:
        return None


def told(where: Path, spec: RunSpec) -> tuple[Evaluation, ...]:
    """The evaluations of the centre that the log of a run has, in order. Raises `LogError`."""
    path = where / "log.sqlite"
    if not path.exists():
        return ()
    with LogReader(path) as log:
        if not log.begun:
            return ()
        evaluations = log.evaluations()
        used, total = {0: 0}, 0
        for row in log.rows():
            total += row.members * spec.environment.episodes
            used[row.version + 1] = total
    return tuple(
        Evaluation(
            version=row.version,
            mean=row.mean,
            deviation=row.deviation,
            episodes=row.episodes,
            full=row.full,
            used=used.get(row.version, total),
        )
        for row in evaluations
    )
