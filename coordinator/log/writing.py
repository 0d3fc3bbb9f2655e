"""Writes the log of a run: every update is synced before anybody hears of it."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from array import array
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from coordinator.log.reading import LogReader
from coordinator.log.rows import (
    ARCHIVE,
    BASE,
    BASE_DIGEST,
    RUN,
    AsideRow,
    EvaluationRow,
    LogError,
    ResultRow,
    UpdateRow,
    Value,
)
from coordinator.log.schema import (
    ASIDE_COLUMNS,
    EVALUATION_COLUMNS,
    PAGE_BYTES,
    RESULT_COLUMNS,
    SCHEMA,
    TABLES,
    UPDATE_COLUMNS,
    WHOLE,
)
from protocol.envelope import peek_signed
from protocol.messages import ResultName, Update
from protocol.packing import WireError

_CHECKPOINT_PAGES = 64
"""Pages after which SQLite moves what is in the WAL to the file."""
_WAL_BYTES = 1 << 18
"""What a WAL that grew beyond this is cut to."""
_AGAIN = "do it again"


class UpdateLog(LogReader):
    """The updates of one run, in order and without a gap, with what is worth knowing of each; and
    what a coordinator that goes on from here needs beside them.

    `PRAGMA synchronous = FULL`: when a method that writes returns, it has reached the disk. Only
    one process may write, see `coordinator.directory`.
    """

    def __init__(
        self, path: Path, run: str, *, keep_returns: bool = False, go_on: str = ""
    ) -> None:
        """Open the log, or make it for this run. Raises `LogError`.

        `keep_returns` keeps results that were used, for whoever wants to look at them. `go_on`:
        what to do after a write that failed, where that is not to resume the run from here.
        """
        self._path = path
        self._lock = threading.Lock()
        self._keep_returns = keep_returns
        self._go_on = go_on or f"go on with `shoal host --resume {path.parent}`"
        self._base = 0
        self._ends = array("Q", [0])
        self._closing = ExitStack()
        remedy = "" if path.exists() else "see to the disk, or give a --run-dir on another one"
        with self._explained("can't be opened", remedy), ExitStack() as undo:
            # Without isolation level each statement is a transaction, synced when it returns.
            self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            undo.callback(self._connection.close)
            self._connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
            self._connection.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES}")
            self._prepare(run)
            self._closing = undo.pop_all()

    @property
    def keeps_returns(self) -> bool:
        """Whether results stay that were used."""
        return self._keep_returns

    @property
    def base(self) -> int:
        """The first version whose update is here: later than 0 once updates were archived."""
        return self._base

    @property
    def version(self) -> int:
        """The version that the last update leads to."""
        return self._base + len(self._ends) - 1

    def append(self, row: UpdateRow) -> None:
        """Keep an update for good, and let go of the results that it was the last to use.

        Raises `LogError`.
        """
        problem = f"can't keep update {row.version}, which is not published"
        with self._lock:
            with self._writing(problem):
                self._insert([row], problem)
                if not self._keep_returns:
                    self._connection.execute(
                        "DELETE FROM results WHERE kind = 'members' AND until <= ?", (row.version,)
                    )
            self._grow([row])

    def extend(self, rows: Sequence[UpdateRow]) -> None:
        """Keep updates of the past for good, all or none. Raises `LogError`."""
        problem = "can't take updates"
        with self._lock:
            with self._writing(problem, _AGAIN):
                self._insert(rows, problem)
            self._grow(rows)

    def begin_at(self, base: int, digest: bytes, archive: str) -> None:
        """Let go of the updates before version `base`, whose full state has this digest; the file
        named `archive` has them. On an empty log it says where the log begins.

        Raises `LogError`.
        """
        with self._lock:
            with self._writing(f"can't let go of the updates before {base}", _AGAIN):
                notes = ((BASE, base), (BASE_DIGEST, digest.hex()), (ARCHIVE, archive))
                self._connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", notes)
                self._connection.execute("DELETE FROM updates WHERE version < ?", (base,))
            ends = self._ends[max(0, min(base - self._base, len(self._ends) - 1)) :]
            self._ends = array("Q", [end - ends[0] for end in ends])
            self._base = base
            with self._explained("can't be made smaller"):
                self._connection.execute("VACUUM")

    def keep_results(self, rows: Sequence[ResultRow]) -> None:
        """Keep results for good, all or none; one that came before is replaced.

        Raises `LogError`.
        """
        if not rows:
            return
        with self._lock, self._writing("can't keep results, which are not acknowledged"):
            self._connection.executemany(
                f"INSERT INTO results ({RESULT_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?) "
                "ON CONFLICT (worker, task, part, until) DO UPDATE SET session = excluded.session, "
                "kind = excluded.kind, version = excluded.version, payload = excluded.payload",
                [
                    (r.worker, r.session, *_named(r.name), r.kind, r.version, r.until, r.payload)
                    for r in rows
                ],
            )

    def record_evaluation(self, row: EvaluationRow) -> None:
        """Keep an evaluation of the centre, in place of an earlier one of that version, and let go
        of the results that it was made of. Raises `LogError`."""
        with self._lock, self._writing(f"can't keep the evaluation of version {row.version}"):
            self._connection.execute(
                f"INSERT OR REPLACE INTO evaluations ({EVALUATION_COLUMNS}) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    row.version,
                    row.episodes,
                    row.mean,
                    row.deviation,
                    row.steps,
                    row.full,
                    row.judged_at,
                    row.seconds,
                ),
            )
            if not self._keep_returns:
                self._connection.execute(
                    "DELETE FROM results WHERE kind = 'centre' AND version = ?", (row.version,)
                )

    def set_aside(self, first: int, why: str) -> int:
        """The run went on without our updates from version `first` on: keep them where `aside_rows`
        finds them, and end the log at `first`. Returns how many they were.

        What was evaluated at versions that only those updates lead to goes. Raises `LogError`.
        """
        now = time.time()
        taken = [AsideRow(row, _epoch_of(row.payload), now, why) for row in self.rows(first)]
        with self._lock:
            with self._writing(f"can't set the updates from {first} on aside"):
                self._insert_aside(taken)
                self._connection.execute("DELETE FROM updates WHERE version >= ?", (first,))
                for table in ("evaluations", "results"):
                    self._connection.execute(f"DELETE FROM {table} WHERE version > ?", (first,))
            del self._ends[max(0, first - self._base) + 1 :]
        return len(taken)

    def keep_aside(self, rows: Sequence[AsideRow]) -> None:
        """Keep updates that were set aside, in another copy of this log. Raises `LogError`."""
        with self._lock, self._writing("can't take updates that were set aside", _AGAIN):
            self._insert_aside(rows)

    def note(self, key: str, value: Value) -> None:
        """Keep a value under this key, in place of an earlier one. Raises `LogError`."""
        with self._lock, self._writing(f"can't keep {key!r}"):
            self._connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    def size(self, first: int, end: int) -> int:
        """Bytes of the updates that lead from version `first` to `end`, neither beyond the log.

        Cheap: nothing is read. Raises `LogError` for a `first` before `base`.
        """
        if first >= end:
            return 0
        if first < self._base:
            raise LogError(f"{self._path} begins at version {self._base}: {first} is archived")
        return self._ends[end - self._base] - self._ends[first - self._base]

    def page_end(self, first: int, updates: int, octets: int) -> int:
        """Where a page of updates from version `first` on ends, which is before the log's: at most
        so many of them with so many bytes, though one at least."""
        end = min(self.version, first + updates)
        while end > first + 1 and self.size(first, end) > octets:
            end = (first + end) // 2
        return end

    def _insert(self, rows: Sequence[UpdateRow], problem: str) -> None:
        if [row.version for row in rows] != list(range(self.version, self.version + len(rows))):
            raise LogError(f"{self._path} {problem}: it ends at version {self.version}")
        self._connection.executemany(
            f"INSERT INTO updates ({UPDATE_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)",
            [_values(row) for row in rows],
        )

    def _grow(self, rows: Sequence[UpdateRow]) -> None:
        for row in rows:
            self._ends.append(self._ends[-1] + len(row.payload))

    def _insert_aside(self, rows: Sequence[AsideRow]) -> None:
        self._connection.executemany(
            f"INSERT INTO aside ({ASIDE_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [(*_values(row.update), row.epoch, row.set_aside_at, row.why) for row in rows],
        )

    def _prepare(self, run: str) -> None:
        if not self._format():
            with self._transaction():  # who is stopped halfway leaves no trace
                for table in TABLES:
                    self._connection.execute(table)
                self._connection.execute("INSERT INTO meta VALUES (?, ?)", (RUN, run))
                self._connection.execute(f"PRAGMA user_version = {SCHEMA}")
        owner = super().run
        if owner != run:
            raise LogError(
                f"{self._path} belongs to the run {owner}, not to {run}: give another --run-dir"
            )
        self._base = super().base
        for version, size in self._connection.execute(
            "SELECT version, LENGTH(payload) FROM updates ORDER BY version"
        ):
            if version != self.version:
                raise self._damage(self.version, "it is gone, though later ones are here")
            self._ends.append(self._ends[-1] + (size or 0))

    @contextmanager
    def _writing(self, problem: str, then: str = "") -> Iterator[None]:
        """A transaction: synced when it ends, or it leaves no trace. `then`: what to do once the
        disk is free, where that is not to go on with the run."""
        remedy = f"free the disk, then {then or self._go_on}"
        with self._explained(problem, remedy), self._transaction():
            yield

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:  # SQLite itself ends some that fail
                with contextlib.suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
            raise


def _values(row: UpdateRow) -> tuple[Value, ...]:
    """As `_UPDATE_COLUMNS` names them."""
    return (
        row.version,
        row.payload,
        row.made_at,
        row.members,
        row.late,
        row.seconds,
        row.workers,
    )


def _named(name: ResultName) -> tuple[int, int]:
    """(task, part) of a result."""
    return (name, WHOLE) if isinstance(name, int) else (name[0], name[1])


def _epoch_of(payload: bytes) -> int:
    """The epoch that an update names, 0 where it can't be read."""
    with contextlib.suppress(WireError):
        update = peek_signed(payload)
        if isinstance(update, Update):
            return update.epoch
    return 0
