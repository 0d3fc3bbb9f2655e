"""Mends a damaged log: a new one with all before the first damage, the old one kept beside it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from coordinator import recovery
from coordinator.directory import RunDirectory, known_spec
from coordinator.history.carve import Carved, carve
from coordinator.history.past import Advance, HistoryError, Tell, known_keys, opened, unused
from coordinator.history.verify import contradicts, expected_row, verify
from coordinator.log import (
    ARCHIVE,
    BASE,
    BASE_DIGEST,
    CHARTERS,
    ENDED,
    ROOT,
    RUN,
    AsideRow,
    EvaluationRow,
    LogError,
    LogReader,
    ResultRow,
    UpdateLog,
    UpdateRow,
    Value,
)
from protocol import replay
from protocol.authority import Authority
from protocol.disk import sync_directory
from protocol.errors import ShoalError
from protocol.frozen import FrozenError
from protocol.identity import KEY_BYTES
from protocol.messages import Update
from protocol.packing import WireError, unpack
from protocol.replay import MismatchError
from protocol.snapshot import state_digest
from protocol.spec import RunSpec
from protocol.state import DIGEST_BYTES, Arithmetic, State

Row = TypeVar("Row")

_OWN_NOTES = (RUN, BASE, BASE_DIGEST, ARCHIVE, ROOT, CHARTERS)
"""What a new log notes itself."""
_GROUP = 256
"""Updates that are written to the new log at once."""


@dataclass(frozen=True, slots=True)
class Repaired:
    """What mending a run directory came to."""

    version: int
    """that the log leads to now"""
    lost: int | None
    """updates that the old log claimed to have beyond that; None where it can't be told"""
    reason: str
    """why it goes no further; empty where nothing is lost"""
    kept_as: Path
    """the damaged log"""
    moved: tuple[Path, ...]
    """snapshots that hold another state, under their new names"""


@dataclass(frozen=True, slots=True)
class _Beside:
    """What can be read of the tables beside that of the updates."""

    evaluations: Sequence[EvaluationRow] = ()
    results: Sequence[ResultRow] = ()
    aside: Sequence[AsideRow] = ()


def repair(path: Path, tell: Tell, advance: Advance) -> Repaired | None:
    """Mend the log in this run directory; None where nothing is damaged.

    Raises `ShoalError` where somebody leads the run, or nothing can be mended.
    """
    with closing(RunDirectory.open(path)) as directory:
        if _is_sound(path, advance):
            return None
        if not directory.log_path.exists():
            raise HistoryError(
                f"there is no log {directory.log_path} to repair: restore it from a backup"
            )
        with ExitStack() as undo:
            source = _Source(directory.log_path, undo)
            fresh = unused(directory.log_path.with_name("log.repaired-{}.sqlite"))
            undo.callback(_remove, fresh)
            mending = _Mending(directory, _spec(directory), source, tell)
            version, reason = mending.write(fresh, advance)
            kept_as = _exchange(directory.log_path, fresh)
        claimed = source.claimed
        lost = None if claimed is None else max(0, claimed - version)
        return Repaired(version, lost, reason, kept_as, mending.move_wrong_snapshots())


def _spec(directory: RunDirectory) -> RunSpec:
    """The run's spec, by the log where that can still be read. Raises `DirectoryError`."""
    try:
        with LogReader(directory.log_path) as log:
            return known_spec(directory.path, log)
    except LogError:
        return directory.read_spec()


def _is_sound(path: Path, advance: Advance) -> bool:
    try:
        with opened(path) as past:
            return verify(past, advance).sound
    except ShoalError:
        return False


class _Source:
    """The damaged log: through SQLite as long as that can read it, else from its pages."""

    def __init__(self, file: Path, undo: ExitStack) -> None:
        self._file = file
        self._log: LogReader | None = None
        with suppress(ShoalError):
            self._log = undo.enter_context(LogReader(file))

    @cached_property
    def _carved(self) -> Carved:
        try:
            return carve(self._file)
        except OSError as error:
            raise LogError(f"{self._file} can't be read ({error}): see to the disk") from None

    @cached_property
    def claimed(self) -> int | None:
        """The version that the log led to, as far as that can be told."""
        if self._log is not None:
            with suppress(ShoalError):
                return self._log.version
        return max(self._carved.updates, default=-1) + 1 or None

    def rows(self, version: int) -> Iterator[UpdateRow]:
        """What may be the update that leads from that version, the likeliest first."""
        if self._log is not None:
            with suppress(ShoalError):
                yield from self._log.rows(version, version + 1)
        yield from self._carved.updates.get(version, ())

    def noted(self, key: str) -> list[Value]:
        """What may be noted under that key, the likeliest first."""
        if self._log is not None:
            with suppress(ShoalError):
                value = self._log.noted(key)
                return [] if value is None else [value]
        return self._carved.notes.get(key, [])

    def notes(self) -> dict[str, Value]:
        """All that is noted, as far as it can be told."""
        if self._log is not None:
            with suppress(ShoalError):
                return {
                    key: value
                    for key, value in self._log.notes().items()
                    if isinstance(key, str) and value is not None
                }
        return {key: values[0] for key, values in self._carved.notes.items()}

    def beside(self, tell: Tell) -> _Beside:
        """What lies beside the updates; `tell` gets a line about what is lost."""
        log = self._log
        if log is None:
            tell(f"what {self._file} had beside the updates can't be read: it is lost")
            return _Beside()
        return _Beside(
            _readable("evaluations", log.evaluations, tell),
            _readable("results", log.results, tell),
            _readable("updates set aside", log.aside_rows, tell),
        )


def _readable(what: str, read: Callable[[], list[Row]], tell: Tell) -> list[Row]:
    """A table, or none of it where it can't be read."""
    try:
        return read()
    except ShoalError as error:
        tell(f"the {what} are lost: {error}")
        return []


class _Mending:
    """From what can be read of a damaged log to a new one."""

    def __init__(self, directory: RunDirectory, spec: RunSpec, source: _Source, tell: Tell) -> None:
        self._directory = directory
        self._spec = spec
        self._rules: Arithmetic = replay.arithmetic(spec)
        self._source = source
        self._tell = tell
        self._wrong: list[int] = []
        self._authority = self._read_authority()

    def write(self, file: Path, advance: Advance) -> tuple[int, str]:
        """Write the new log; the version that it leads to, and why to no later one."""
        source = self._source
        beside = source.beside(self._tell)
        evaluations = {row.version: row for row in beside.evaluations}
        claimed = source.claimed or 0
        with closing(UpdateLog(file, self._directory.run)) as log:
            state = self._begin(log)
            first = state.version
            group: list[UpdateRow] = []
            while True:
                self._look_at_snapshot(state)
                following = self._following(state)
                if isinstance(following, str):
                    reason = following
                    break
                state, row, update = following
                group.append(row)
                for judged in update.judged:
                    known = evaluations.get(judged.version)
                    if known is None or contradicts(known, judged, row.made_at):
                        evaluations[judged.version] = EvaluationRow.told(
                            judged, row.made_at, row.seconds
                        )
                if len(group) == _GROUP:
                    log.extend(group)
                    group.clear()
                advance(state.version - first, max(claimed, state.version) - first)
            log.extend(group)
            whole = source.claimed is not None and state.version >= claimed
            beside = replace(beside, evaluations=list(evaluations.values()))
            self._write_beside(log, state.version, beside, whole)
        return state.version, "" if whole else reason

    def move_wrong_snapshots(self) -> tuple[Path, ...]:
        """Take snapshots out of the way that hold another state than the log leads to."""
        moved = []
        for version in self._wrong:
            path = self._directory.snapshots.open(version).path
            aside = unused(path.with_name(f"{path.stem}.damaged-{{}}.bin"))
            path.rename(aside)
            moved.append(aside)
        return tuple(moved)

    def _read_authority(self) -> Authority:
        """The longest chain of charters that holds; the root key must be that of the run's name."""
        run = self._directory.run
        roots = [key for v in self._source.noted(ROOT) if (key := _octets(v, KEY_BYTES))]
        chains: list[Sequence[bytes]] = [()]
        for value in self._source.noted(CHARTERS):
            with suppress(WireError, TypeError):
                chains.append(tuple(unpack(value)) if isinstance(value, bytes) else ())
        best: Authority | None = None
        for root in (*roots, *known_keys(self._directory.path)):
            for chain in chains:
                with suppress(WireError, TypeError, ValueError):
                    found = Authority.read(run, root, chain)
                    if best is None or len(found.charters) > len(best.charters):
                        best = found
        if best is None:
            raise HistoryError(
                f"neither the log nor run.key in {self._directory.path} tells the key that the run "
                f"{run} began with, so no update can be proved: restore run.key from a backup "
                "(shoal key restore)"
            )
        return best

    def _begin(self, log: UpdateLog) -> State:
        """The state that the old log begins with, as the new one does from now on."""
        base = next((v for v in self._source.noted(BASE) if isinstance(v, int)), 0)
        if base:
            digests = (_octets(v, DIGEST_BYTES) for v in self._source.noted(BASE_DIGEST))
            digest = next(filter(None, digests), None)
            if digest is None:
                raise HistoryError(
                    f"{self._directory.log_path} begins at version {base}, and does not say with "
                    "which state: restore it from a backup"
                )
            log.begin_at(base, digest, str(next(iter(self._source.noted(ARCHIVE)), "")))
        return recovery.newest_state(
            self._spec,
            self._rules,
            log,
            self._authority,
            self._directory.snapshots,
            base,
            self._tell,
        )

    def _following(self, state: State) -> tuple[State, UpdateRow, Update] | str:
        """The next version with its update; or why there is none."""
        reason = f"update {state.version} is gone"
        for row in self._source.rows(state.version):
            try:
                update = self._authority.open_update(row.payload)
                after = replay.follow(self._spec, self._rules, state, update)
            except (WireError, MismatchError) as error:
                reason = f"update {state.version} is damaged ({error})"
                continue
            return after, expected_row(self._spec, row, update), update
        return reason

    def _look_at_snapshot(self, state: State) -> None:
        snapshots = self._directory.snapshots
        if state.version in snapshots.versions():
            with suppress(FrozenError):
                if snapshots.open(state.version).digest != state_digest(state):
                    self._wrong.append(state.version)

    def _write_beside(self, log: UpdateLog, version: int, beside: _Beside, whole: bool) -> None:
        """What is about versions that the new log leads to, and what the old one said of itself; a
        run whose end is lost has not ended."""
        for evaluation in beside.evaluations:
            if 0 <= evaluation.version <= version:
                log.record_evaluation(evaluation)
        log.keep_results([row for row in beside.results if 0 <= row.version <= version])
        log.keep_aside(beside.aside)
        for key, value in self._source.notes().items():
            if key not in _OWN_NOTES and (whole or key != ENDED):
                log.note(key, value)
        recovery.keep_authority(log, self._authority)
        self._wrong += [v for v in self._directory.snapshots.versions() if v > version]


def _octets(value: Value, size: int) -> bytes | None:
    """So many bytes, of their hexadecimal digits; None for anything else."""
    with suppress(ValueError, TypeError):
        octets = bytes.fromhex(value) if isinstance(value, str) else b""
        return octets if len(octets) == size else None
    return None


def _exchange(log: Path, fresh: Path) -> Path:
    """Put the new log in the place of the old one, which stays under the name that is returned.

    At every moment one of them is there whole; the old one's write-ahead log must be away by the
    time that SQLite could take it for that of the new one.
    """
    kept_as = unused(log.with_name("log.damaged-{}.sqlite"))
    wal = log.with_name(f"{log.name}-wal")
    try:
        os.link(log, kept_as)
        if wal.exists():
            wal.rename(kept_as.with_name(f"{kept_as.name}-wal"))
        log.with_name(f"{log.name}-shm").unlink(missing_ok=True)
        fresh.replace(log)
        sync_directory(log.parent)
    except OSError as error:
        raise HistoryError(
            f"the repaired log can't take the place of {log} ({error.strerror}): see to the disk"
        ) from None
    return kept_as


def _remove(file: Path) -> None:
    for name in (file.name, f"{file.name}-wal", f"{file.name}-shm"):
        file.with_name(name).unlink(missing_ok=True)
