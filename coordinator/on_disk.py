"""How the runs in directories of this machine stand, whoever leads them meanwhile."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from coordinator import log as update_log
from coordinator.directory import known_spec
from coordinator.holder import holder
from coordinator.log import LogReader, UpdateRow
from coordinator.metrics_file import amended, latest_update
from coordinator.report import Report, pace, state_of
from protocol.envelope import peek_signed
from protocol.errors import ShoalError
from protocol.messages import Update
from protocol.packing import WireError
from protocol.topics import RUN_PATTERN

RECENT = 20
"""Updates whose pace is told."""
MOST_RUNS = 1000
"""Directories that are looked into."""


def look(directory: Path, now: float) -> Report:
    """The run in a directory; `now`: Unix time. Raises `ShoalError` where it holds none, or its log
    can't be read."""
    run = _named(directory)
    if run is None:
        raise ShoalError(
            f"{directory} holds no run: give the directory of one, such as runs/<name>"
        )
    process, size = holder(directory), _size(directory)
    if not (directory / "log.sqlite").exists():
        return Report(run, "not begun", process=process, bytes=size)
    with LogReader(directory / "log.sqlite") as log:
        if not log.begun:
            return Report(run, "not begun", process=process, bytes=size)
        spec = known_spec(directory, log)
        ended, noted = log.noted(update_log.ENDED), log.noted(update_log.STATE)
        epoch, version = log.noted(update_log.EPOCH), log.version
        rows = list(log.rows(max(log.base, version - RECENT)))
        evaluations = log.evaluations()
    state = state_of(noted, ended, process)
    last = rows[-1] if rows else None
    judged = evaluations[-1] if evaluations else None
    update = None if last is None else _read(last)
    made = [(row.version, row.seconds) for row in rows]
    held = amended(directory)
    return Report(
        run=run,
        state=state,
        why=str(ended) if state == "ended" else "",
        environment=spec.environment.id,
        process=process,
        epoch=epoch if isinstance(epoch, int) else None,
        version=version,
        target=held.get("stop.target", spec.stop.target),
        centre=None if judged is None else judged.mean,
        centre_deviation=None if judged is None else judged.deviation,
        centre_version=None if judged is None else judged.version,
        centre_episodes=None if judged is None else judged.episodes,
        members_mean=_members_mean(directory),
        population=int(held.get("strategy.population", spec.strategy.population)),
        workers=None if last is None else last.workers,
        learning_rate=None if update is None else update.learning_rate,
        updates_per_minute=pace(made) if state == "running" else None,
        update_age=None if last is None else max(0.0, now - last.made_at),
        seconds=None if last is None else last.seconds,
        bytes=size,
    )


def runs_in(directory: Path, now: float) -> list[tuple[Path, Report]]:
    """All runs in a directory, and it itself where it is the directory of one; those that can't be
    read say why. Raises `ShoalError` where there is no such directory."""
    try:
        inside = sorted(path for path in directory.iterdir() if path.is_dir())
    except OSError as error:
        raise ShoalError(
            f"{directory} can't be looked into ({error.strerror or error}): give a directory with "
            "runs in it, or the address of a broker"
        ) from None
    found = []
    for path in [directory, *inside][: MOST_RUNS + 1]:
        run = _named(path)
        if run is not None:
            try:
                found.append((path, look(path, now)))
            except ShoalError as error:
                found.append((path, Report(run, "interrupted", why=str(error))))
    return found


def go_on_with(directory: Path, report: Report) -> str:
    """The command that goes on with a run, empty where none would."""
    if report.why and report.state == "interrupted":
        return ""
    match report.state:
        case "running":
            return f"shoal stop {directory}"
        case "ended":
            return f"shoal fork {directory} --version {report.version}"
        case "not begun":
            return f"shoal host --resume {directory}" if (directory / "spec.toml").exists() else ""
    return f"shoal host --resume {directory}"


def _named(directory: Path) -> str | None:
    """The run that a directory is of."""
    with contextlib.suppress(OSError), (directory / "run").open(errors="replace") as file:
        run = file.read(100).strip()
        return run if RUN_PATTERN.fullmatch(run) else None
    return None


def _size(directory: Path) -> int:
    """Bytes of all files in it."""
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(OSError):
                total += (Path(folder) / name).lstat().st_size
    return total


def _read(row: UpdateRow) -> Update | None:
    with contextlib.suppress(WireError):
        update = peek_signed(row.payload)
        return update if isinstance(update, Update) else None
    return None


def _members_mean(directory: Path) -> float | None:
    mean = latest_update(directory).get("mean_return")
    return float(mean) if isinstance(mean, int | float) else None
