"""A run directory opened to be read, whoever leads the run: its versions, and what proves them."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from coordinator import recovery
from coordinator.directory import SNAPSHOTS, known_spec
from coordinator.log import ARCHIVE, DamagedError, LogReader, UpdateRow
from protocol import replay
from protocol.authority import Authority
from protocol.errors import ShoalError
from protocol.frozen import Snapshots
from protocol.identity import Identity, IdentityError, run_belongs_to
from protocol.messages import Update
from protocol.packing import WireError
from protocol.spec import RunSpec
from protocol.state import Arithmetic, State
from protocol.topics import RUN_PATTERN

Tell = Callable[[str], None]
"""Takes a line for people."""
Advance = Callable[[int, int], None]
"""Takes (versions done, versions in all) now and then."""


class HistoryError(ShoalError):
    """A version or a file of a run that is not to be had here."""


@dataclass(frozen=True, slots=True)
class Past:
    """What a run directory holds of a run.

    Attributes:
        logs: its log, and before it the archives that were given, the oldest first.
    """

    directory: Path
    run: str
    spec: RunSpec
    rules: Arithmetic
    authority: Authority
    logs: tuple[LogReader, ...]
    snapshots: Snapshots

    @property
    def log(self) -> LogReader:
        """The run's own log, without archives."""
        return self.logs[-1]

    @property
    def base(self) -> int:
        """The first version that can be rebuilt."""
        return self.logs[0].base

    @property
    def version(self) -> int:
        """The version that the run has reached."""
        return self.log.version

    def require(self, version: int) -> None:
        """Raise `HistoryError` for a version that can't be rebuilt from what is here."""
        if version > self.version:
            raise HistoryError(
                f"--version {version}: the run in {self.directory} has reached version "
                f"{self.version}, give one up to that"
            )
        if version < self.base:
            where = archive_of(self.logs[0])
            raise HistoryError(
                f"--version {version}: the updates before version {self.base} of the run in "
                f"{self.directory} were archived in {where}: give --archive {where}"
            )

    def beginning(self) -> State:
        """The state of version `base`. Raises `ShoalError`."""
        first = self.logs[0]
        return recovery.newest_state(
            self.spec, self.rules, first, self.authority, self.snapshots, first.base, _nobody
        )

    def nearest(self, version: int, tell: Tell) -> State:
        """The state from which the fewest updates lead to `version`; see `require`.

        Raises `ShoalError`.
        """
        if version < self.log.base:
            return self.beginning()
        return recovery.newest_state(
            self.spec, self.rules, self.log, self.authority, self.snapshots, version, tell
        )

    def states(self, before: State, end: int) -> Iterator[tuple[State, Update]]:
        """The states after `before` up to version `end`, each with the update that led to it.

        Every signature and every hash is checked. Raises `LogError`, mostly `DamagedError` with
        the version that does not follow.
        """
        state = before
        for log, bound in self.pieces(end):
            if state.version < bound:
                following = recovery.replayed(
                    self.spec, self.rules, log, self.authority, state, bound
                )
                for state, update in following:
                    yield state, update
        if state.version < end:
            raise DamagedError(
                f"update {state.version} of the run in {self.directory} is gone", state.version
            )

    def updates(self, first: int) -> Iterator[tuple[UpdateRow, Update]]:
        """The updates from version `first` on, with their signatures checked but not their hashes.

        Raises `LogError`, mostly `DamagedError` with the version that can't be read.
        """
        for log, bound in self.pieces(self.version):
            for row in log.rows(first, bound):
                try:
                    yield row, self.authority.open_update(row.payload)
                except WireError as error:
                    raise DamagedError(
                        f"update {row.version} in {log.path} is damaged ({error}): keep what is "
                        f"before it with `shoal repair {self.directory}`",
                        row.version,
                    ) from None
            first = max(first, bound)

    def pieces(self, end: int) -> Iterator[tuple[LogReader, int]]:
        """Each log with the version up to which its updates count, `end` at most."""
        bounds = (*(after.base for after in self.logs[1:]), end)
        return ((log, min(bound, end)) for log, bound in zip(self.logs, bounds, strict=True))


@contextmanager
def opened(directory: Path, archives: Sequence[Path] = ()) -> Iterator[Past]:
    """What the run directory holds, with these archives of its log. Raises `ShoalError`."""
    run = read_run(directory)
    with ExitStack() as closing:
        log = closing.enter_context(LogReader(directory / "log.sqlite"))
        if log.run != run:
            raise DamagedError(
                f"{log.path} belongs to the run {log.run[:60]!r}, {directory / 'run'} says {run}: "
                f"restore the one that is wrong from a backup, or run `shoal repair {directory}`",
                0,
            )
        spec = known_spec(directory, log)
        yield Past(
            directory=directory,
            run=run,
            spec=spec,
            rules=replay.arithmetic(spec),
            authority=read_authority(directory, log, run),
            logs=_ordered(log, [closing.enter_context(LogReader(file)) for file in archives]),
            snapshots=Snapshots(directory / SNAPSHOTS),
        )


def archive_of(log: LogReader) -> str:
    """The file that has the updates before a log's first, as it was called then."""
    return str(log.noted(ARCHIVE))


def read_run(directory: Path) -> str:
    """The id of the run whose directory it is. Raises `HistoryError`."""
    file = directory / "run"
    try:
        with file.open("rb") as opened_file:
            run = opened_file.read(200).decode(errors="replace").strip()
    except (FileNotFoundError, NotADirectoryError):
        raise HistoryError(
            f"{directory} holds no run: give the directory of one, such as runs/<name>"
        ) from None
    except OSError as error:
        raise HistoryError(f"{file} can't be read ({error.strerror}): see to the disk") from None
    if RUN_PATTERN.fullmatch(run) is None:
        raise HistoryError(
            f"{file} says {run[:60]!r}, which names no run: restore it from a backup"
        )
    return run


def read_authority(directory: Path, log: LogReader, run: str) -> Authority:
    """Who may have led the run: by the log, and where that says nothing by the keys beside it.

    Raises `ShoalError`.
    """
    keys = known_keys(directory)
    root = next((key for key in keys if run_belongs_to(run, key)), b"")
    return recovery.read_authority(log, run, root)


def known_keys(directory: Path) -> list[bytes]:
    """The public keys that lie in a run directory: the run key, and those that it succeeded."""
    keys = []
    for file in sorted(directory.glob("run.key*")):
        with contextlib.suppress(IdentityError):
            keys.append(Identity.load(file).public_key)
    return keys


def unused(pattern: Path) -> Path:
    """The path with the first number in place of `{}` that names no file yet."""
    number = 1
    while pattern.with_name(pattern.name.format(number)).exists():
        number += 1
    return pattern.with_name(pattern.name.format(number))


def _ordered(log: LogReader, archives: Sequence[LogReader]) -> tuple[LogReader, ...]:
    """The logs in the order of their versions; raises `HistoryError` where they leave a gap."""
    logs = (*sorted(archives, key=lambda archive: archive.base), log)
    for before, after in itertools.pairwise(logs):
        if before.run != log.run:
            raise HistoryError(f"{before.path} is an archive of {before.run}, not of {log.run}")
        if before.version < after.base:
            missing = archive_of(after)
            raise HistoryError(
                f"{before.path} ends at version {before.version}, {after.path} begins at "
                f"{after.base}: give --archive {missing} too"
            )
    return logs


def _nobody(line: str) -> None:
    """Nobody needs to know."""
