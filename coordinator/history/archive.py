"""Moves old updates out of a run's log into a file of their own, behind a snapshot that stays."""

from __future__ import annotations

from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from coordinator.directory import RunDirectory
from coordinator.history.past import Advance, HistoryError, Past, archive_of, opened
from coordinator.log import BASE_DIGEST, CHARTERS, ROOT, LogReader, UpdateLog, UpdateRow
from protocol.disk import sync_directory
from protocol.snapshot import state_digest
from protocol.state import State

_GROUP = 256
"""Updates that are written to the archive at once."""


@dataclass(frozen=True, slots=True)
class Archived:
    """What an archiving came to: the updates from version `first` to `end` lie in `file`."""

    first: int
    end: int
    file: Path
    snapshot: Path
    bytes_before: int
    """of the log"""
    bytes_after: int


def archive(path: Path, before: int, to: Path | None, advance: Advance) -> Archived:
    """Move the updates before version `before` of the run in this directory to a new file.

    All of them are replayed first. Raises `ShoalError` where somebody leads the run, where the log
    is damaged, where the file exists, or where a coordinator needs some of these updates.
    """
    with closing(RunDirectory.open(path)) as directory:
        with opened(path) as past:
            first, run = past.log.base, past.run
            _require_old(past, before)
            file = to if to is not None else path / f"archive-{first}-{before}.sqlite"
            if file.exists():
                raise HistoryError(f"{file} exists: give another --to")
            state = _proved(past, before, advance)
            frozen = directory.snapshots.freeze(state)
            sync_directory(frozen.path.parent)
            _write(past, before, file)
        bytes_before = directory.log_path.stat().st_size
        with closing(UpdateLog(directory.log_path, run)) as log:
            log.begin_at(before, state_digest(state), str(file.absolute()))
        after = directory.log_path.stat().st_size
    return Archived(first, before, file, frozen.path, bytes_before, after)


def _require_old(past: Past, before: int) -> None:
    latest = past.version - past.spec.versions_kept
    if not past.log.base < before <= latest:
        if latest <= past.log.base:
            raise HistoryError(
                f"the run in {past.directory} has {past.version - past.log.base} updates in its "
                f"log, of which a coordinator needs the last {past.spec.versions_kept}: there is "
                "nothing to archive yet"
            )
        raise HistoryError(
            f"--before {before}: give a version from {past.log.base + 1} to {latest} (the log of "
            f"{past.directory} begins at {past.log.base}, and a coordinator needs its last "
            f"{past.spec.versions_kept} updates)"
        )


def _proved(past: Past, version: int, advance: Advance) -> State:
    """The state of a version, by replaying all that is about to be moved."""
    state = past.beginning()
    first = state.version
    for reached, _ in past.states(state, version):
        state = reached
        advance(state.version - first, version - first)
    return state


def _write(past: Past, end: int, file: Path) -> None:
    """The updates before version `end`, in a file that is there whole or not at all."""
    part = file.with_name(f".{file.name}.part")
    try:
        part.unlink(missing_ok=True)
        file.parent.mkdir(parents=True, exist_ok=True)
        with closing(UpdateLog(part, past.run)) as log:
            _copy(past.log, log, end)
        part.replace(file)
        sync_directory(file.parent)
    except OSError as error:
        raise HistoryError(
            f"{file} can't be written ({error.strerror or error}): give another --to"
        ) from None
    finally:
        with suppress(OSError):
            for name in (part.name, f"{part.name}-wal", f"{part.name}-shm"):
                part.with_name(name).unlink(missing_ok=True)


def _copy(source: LogReader, target: UpdateLog, end: int) -> None:
    if source.base:
        digest = source.noted_octets(BASE_DIGEST)
        target.begin_at(source.base, digest, archive_of(source))
    for key in (ROOT, CHARTERS):
        value = source.noted(key)
        if value is not None:
            target.note(key, value)
    group: list[UpdateRow] = []
    for row in source.rows(end=end):
        group.append(row)
        if len(group) == _GROUP:
            target.extend(group)
            group.clear()
    target.extend(group)
    for evaluation in source.evaluations():
        if evaluation.version < end:
            target.record_evaluation(evaluation)
