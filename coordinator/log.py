"""The update log on disk: SQLite in WAL mode, every update synced before anybody hears of it."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import tempfile
import threading
import time
from array import array
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from protocol.envelope import peek_signed
from protocol.errors import ShoalError
from protocol.messages import TaskKind, Update
from protocol.packing import WireError

SCHEMA = 2

RUN = "run"
ROOT = "root"
CHARTERS = "charters"
BASE = "base"
BASE_DIGEST = "base-digest"
ARCHIVE = "archive"
EPOCH = "epoch"
SECONDS = "seconds"
ENDED = "ended"
"""Keys of `noted`: the run's id; the public key that its name was made from, in hexadecimal digits;
msgpack list of the signed charters, in order; first version whose update is here; digest of the
full state of that version, in hexadecimal digits; file that has the updates before it; number of
the epoch that we led last; seconds that the run has been led for; why the run ended, if it did."""

Value = str | int | float | bytes

_UPDATES = """
    version INTEGER PRIMARY KEY,  -- the update leads from this version to the next
    payload BLOB NOT NULL,        -- the signed message, exactly as it was published
    made_at REAL NOT NULL,        -- Unix time, for people
    members INTEGER NOT NULL,
    late INTEGER NOT NULL
"""
_EVALUATIONS = """
    version INTEGER PRIMARY KEY,
    episodes INTEGER NOT NULL,
    mean REAL NOT NULL,
    deviation REAL NOT NULL,
    complete INTEGER NOT NULL     -- whether it went beyond the screening
"""
_SCHEMA_1 = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)",
    f"CREATE TABLE updates ({_UPDATES})",
    f"CREATE TABLE evaluations ({_EVALUATIONS})",
)
_TO_SCHEMA_2 = (
    # Without a type of its own a value comes back as what it was.
    "ALTER TABLE meta RENAME TO meta_1",
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value NOT NULL)",
    "INSERT INTO meta SELECT key, value FROM meta_1",
    "DROP TABLE meta_1",
    "ALTER TABLE updates ADD COLUMN seconds REAL NOT NULL DEFAULT 0",  # of the run, until then
    "ALTER TABLE updates ADD COLUMN workers INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE evaluations ADD COLUMN steps INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE evaluations ADD COLUMN judged_at REAL NOT NULL DEFAULT 0",
    "ALTER TABLE evaluations ADD COLUMN seconds REAL NOT NULL DEFAULT 0",
    """
    CREATE TABLE results (
        arrival INTEGER PRIMARY KEY,
        worker TEXT NOT NULL,
        session TEXT NOT NULL,
        task INTEGER NOT NULL,
        kind TEXT NOT NULL,
        version INTEGER NOT NULL,     -- that was evaluated
        until INTEGER NOT NULL,       -- the last update that may use it, for members
        payload BLOB NOT NULL,        -- the Result message
        UNIQUE (worker, task, until)
    )
    """,
    """
    CREATE TABLE aside (
        number INTEGER PRIMARY KEY,
        version INTEGER NOT NULL,
        epoch INTEGER NOT NULL,
        payload BLOB NOT NULL,
        made_at REAL NOT NULL,
        members INTEGER NOT NULL,
        late INTEGER NOT NULL,
        seconds REAL NOT NULL,
        workers INTEGER NOT NULL,
        set_aside_at REAL NOT NULL,
        why TEXT NOT NULL
    )
    """,
)
_SCHEMA_1_AS_2 = (
    """CREATE TEMP VIEW updates AS
    SELECT version, payload, made_at, members, late, 0.0 AS seconds, 0 AS workers
    FROM main.updates""",
    """CREATE TEMP VIEW evaluations AS
    SELECT version, episodes, mean, deviation, 0 AS steps, complete, 0.0 AS judged_at,
           0.0 AS seconds
    FROM main.evaluations""",
    _TO_SCHEMA_2[-2].replace("CREATE TABLE", "CREATE TEMP TABLE"),
    _TO_SCHEMA_2[-1].replace("CREATE TABLE", "CREATE TEMP TABLE"),
)
"""A log of schema 1 that may not be written, as one of schema 2."""

_UPDATE_COLUMNS = "version, payload, made_at, members, late, seconds, workers"
_EVALUATION_COLUMNS = "version, episodes, mean, deviation, steps, complete, judged_at, seconds"
_RESULT_COLUMNS = "worker, session, task, kind, version, until, payload"
_ASIDE_COLUMNS = f"{_UPDATE_COLUMNS}, epoch, set_aside_at, why"
_UPDATE_TYPES = (int, bytes, float, int, int, float, int)
_EVALUATION_TYPES = (int, int, float, float, int, int, float, float)
_RESULT_TYPES = (str, str, int, str, int, int, bytes)
_ASIDE_TYPES = (*_UPDATE_TYPES, int, float, str)

PAGE_BYTES = 4096
"""Of the file's pages, whatever SQLite's own default is."""
_PAGE_ROWS = 64
"""Updates that a reader has in memory at once."""
_CHECKPOINT_PAGES = 64
"""Pages after which SQLite moves what is in the WAL to the file."""
_WAL_BYTES = 1 << 18
"""What a WAL that grew beyond this is cut to."""
_AGAIN = "do it again"
_OF_THE_DISK = (
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_BUSY,
)


class LogError(ShoalError):
    """The log can't be read or written; nothing that it could not keep was published."""


class DamagedError(LogError):
    """The log is damaged at `version`: the update that leads from it can't be read, or is gone."""

    def __init__(self, message: str, version: int) -> None:
        super().__init__(message)
        self.version = version


@dataclass(frozen=True, slots=True)
class UpdateRow:
    """An update, and what is worth knowing of it."""

    version: int
    """it leads from this version to the next"""
    payload: bytes = field(repr=False)
    """the signed message, exactly as it was published"""
    made_at: float
    """Unix time"""
    members: int
    """that counted"""
    late: int
    """of them, those evaluated at earlier versions"""
    seconds: float
    """for which the run had been led by then, in all its epochs"""
    workers: int
    """sessions whose results counted"""


@dataclass(frozen=True, slots=True)
class EvaluationRow:
    """An evaluation of the centre that is over."""

    version: int
    episodes: int
    mean: float
    deviation: float
    steps: int
    full: bool
    """whether it went beyond the screening"""
    judged_at: float
    """Unix time"""
    seconds: float
    """for which the run had been led by then"""


@dataclass(frozen=True, slots=True)
class ResultRow:
    """A result that we answer for, though no update or evaluation has it yet."""

    worker: str
    session: str
    task: int
    kind: TaskKind
    version: int
    """that was evaluated"""
    until: int
    """of members: the last update that may use it"""
    payload: bytes = field(repr=False)
    """the encoded Result message"""


@dataclass(frozen=True, slots=True)
class AsideRow:
    """An update of ours that the run went without."""

    update: UpdateRow
    epoch: int
    set_aside_at: float
    """Unix time"""
    why: str


class LogReader:
    """Reads the log of a run, whoever leads it meanwhile, and never writes.

    Methods may be called from any thread; they wait for each other. Every failure is a `LogError`.
    """

    def __init__(self, path: Path) -> None:
        """Open the log. Raises `LogError`.

        Neither a WAL nor write access to the directory is needed.
        """
        self._path = path
        self._lock = threading.Lock()
        self._closing = ExitStack()
        with self._explained("can't be opened"), ExitStack() as undo:
            if not path.is_file():
                raise LogError(
                    f"there is no log {path}: restore it from a backup, or give the directory of a "
                    "run that was led"
                )
            self._connection = undo.enter_context(contextlib.closing(_opened_to_read(path, undo)))
            if self._format() == 1:
                for statement in _SCHEMA_1_AS_2:
                    self._connection.execute(statement)
            self._closing = undo.pop_all()

    @property
    def path(self) -> Path:
        """Where it lies."""
        return self._path

    @property
    def begun(self) -> bool:
        """Whether it holds anything: who is killed while the log is made leaves an empty file."""
        with self._lock, self._explained("can't be read"):
            return self._format() > 0

    @property
    def run(self) -> str:
        """The run that it belongs to."""
        return str(self.noted(RUN) or "")

    @property
    def base(self) -> int:
        """The first version whose update is here: later than 0 once updates were archived."""
        base = self.noted(BASE)
        return base if isinstance(base, int) else 0

    @property
    def version(self) -> int:
        """The version that the last update leads to."""
        with self._lock, self._explained("can't be read"):
            (last,) = self._connection.execute("SELECT MAX(version) FROM updates").fetchone()
        return self.base if last is None else int(last) + 1

    def noted(self, key: str) -> Value | None:
        """What `note` kept under this key."""
        with self._lock, self._explained("can't be read"):
            query = "SELECT value FROM meta WHERE key = ?"
            found = self._connection.execute(query, (key,)).fetchone()
        return None if found is None else found[0]

    def rows(self, first: int | None = None, end: int | None = None) -> Iterator[UpdateRow]:
        """The updates from version `first` (by default `base`) to `end` (by default the last one),
        in order; a few at a time are in memory, and the log is not locked in between.

        Raises `DamagedError` at the first that is gone or can't be read.
        """
        version = self.base if first is None else first
        while end is None or version < end:
            count = _PAGE_ROWS if end is None else min(_PAGE_ROWS, end - version)
            page = self._page(version, count)
            for row in page:
                if row.version != version:
                    raise self._damage(version, "it is gone, though later ones are here")
                yield row
                version += 1
            if not page:
                return

    def updates(self, first: int, end: int) -> list[bytes]:
        """The signed updates that lead from version `first` to `end`, in order.

        They may be large: see `UpdateLog.size` first.
        """
        with self._lock, self._explained("can't be read"):
            query = (
                "SELECT payload FROM updates WHERE version >= ? AND version < ? ORDER BY version"
            )
            return [payload for (payload,) in self._connection.execute(query, (first, end))]

    def evaluations(self) -> list[EvaluationRow]:
        """All evaluations of the centre, in the order of versions."""
        query = f"SELECT {_EVALUATION_COLUMNS} FROM evaluations ORDER BY version"
        rows = [EvaluationRow(*row) for row in self._all(query, (), _EVALUATION_TYPES)]
        return [replace(row, full=bool(row.full)) for row in rows]

    def results(self) -> list[ResultRow]:
        """The results that no update and no evaluation has used yet, in order of arrival."""
        query = f"""
            SELECT {_RESULT_COLUMNS} FROM results
            WHERE (kind = 'members' AND until >= ?)
               OR (kind = 'centre' AND version NOT IN (SELECT version FROM evaluations))
            ORDER BY arrival
        """
        return [ResultRow(*row) for row in self._all(query, (self.version,), _RESULT_TYPES)]

    def aside_rows(self) -> list[AsideRow]:
        """Our updates that the run went without, in the order in which they were set aside."""
        query = f"SELECT {_ASIDE_COLUMNS} FROM aside ORDER BY number"
        return [
            AsideRow(UpdateRow(*row[:7]), *row[7:]) for row in self._all(query, (), _ASIDE_TYPES)
        ]

    def notes(self) -> dict[str, Value]:
        """All that `note` kept."""
        with self._lock, self._explained("can't be read"):
            return dict(self._connection.execute("SELECT key, value FROM meta"))

    def damage(self) -> str:
        """What is wrong with the file as such, in SQLite's words; empty where nothing is."""
        with self._lock, self._explained("can't be read"):
            (found,) = self._connection.execute("PRAGMA integrity_check(1)").fetchone()
        return "" if found == "ok" else " ".join(str(found).split())

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._closing.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _directory(self) -> Path:
        return self._path.parent

    def _format(self) -> int:
        """The schema of the file. Raises `LogError` for one that this version does not know."""
        found = int(self._connection.execute("PRAGMA user_version").fetchone()[0])
        if found > SCHEMA:
            raise LogError(
                f"{self._path} has format {found}, this version knows up to {SCHEMA}: upgrade Shoal"
            )
        return found

    def _all(self, query: str, values: tuple[Value, ...], types: tuple[type, ...]) -> list[Any]:
        """All rows of a query, each value of the type that its column has."""
        with self._lock, self._explained("can't be read"):
            rows = self._connection.execute(query, values).fetchall()
            if not all(isinstance(v, t) for row in rows for v, t in zip(row, types, strict=True)):
                raise sqlite3.DatabaseError("a value of another type than its column's")
        return rows

    def _page(self, version: int, count: int) -> list[UpdateRow]:
        """Up to so many updates from this version on, fewer where one of them is damaged.

        Raises `DamagedError` where that is the first.
        """
        query = f"SELECT {_UPDATE_COLUMNS} FROM updates WHERE version >= ? ORDER BY version LIMIT ?"
        rows: list[UpdateRow] = []
        with self._lock:
            cursor: Iterator[Any] = iter(())
            try:
                cursor = self._connection.execute(query, (version, count))
                for row in cursor:
                    if not all(map(isinstance, row, _UPDATE_TYPES)):
                        raise sqlite3.DatabaseError("a value of another type than its column's")
                    rows.append(UpdateRow(*row))
            except sqlite3.ProgrammingError as error:
                raise LogError(f"the log {self._path} can't be read ({error})") from None
            except sqlite3.Error as error:
                if not rows and count == 1:
                    raise self._damage(version, str(error)) from None
        # Python asks for the row after the one that it returns.
        return rows if rows or count == 1 else self._page(version, 1)

    def _damage(self, version: int, what: str) -> DamagedError:
        return DamagedError(
            f"the log {self._path} is damaged at update {version} ({what}): "
            f"keep what is before it with `shoal repair {self._directory}`",
            version,
        )

    @contextmanager
    def _explained(self, problem: str, remedy: str = "") -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            if not remedy and _is_of_the_disk(error):
                remedy = "free the disk, or see to it"
            remedy = remedy or f"run `shoal repair {self._directory}`"
            raise LogError(f"the log {self._path} {problem} ({error}): {remedy}") from None


class UpdateLog(LogReader):
    """The updates of one run, in order and without a gap, with what is worth knowing of each; and
    what a coordinator that goes on from here needs beside them.

    `PRAGMA synchronous = FULL`: when a method that writes returns, it has reached the disk. Only
    one process may write, see `coordinator.directory`.
    """

    def __init__(self, path: Path, run: str, *, keep_returns: bool = False) -> None:
        """Open the log, or make it for this run. Raises `LogError`.

        `keep_returns` keeps results that were used, for whoever wants to look at them.
        """
        self._path = path
        self._lock = threading.Lock()
        self._keep_returns = keep_returns
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
                f"INSERT INTO results ({_RESULT_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?) "
                "ON CONFLICT (worker, task, until) DO UPDATE SET session = excluded.session, "
                "kind = excluded.kind, version = excluded.version, payload = excluded.payload",
                [
                    (r.worker, r.session, r.task, r.kind, r.version, r.until, r.payload)
                    for r in rows
                ],
            )

    def record_evaluation(self, row: EvaluationRow) -> None:
        """Keep an evaluation of the centre, in place of an earlier one of that version, and let go
        of the results that it was made of. Raises `LogError`."""
        with self._lock, self._writing(f"can't keep the evaluation of version {row.version}"):
            self._connection.execute(
                f"INSERT OR REPLACE INTO evaluations ({_EVALUATION_COLUMNS}) "
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

    def _insert(self, rows: Sequence[UpdateRow], problem: str) -> None:
        if [row.version for row in rows] != list(range(self.version, self.version + len(rows))):
            raise LogError(f"{self._path} {problem}: it ends at version {self.version}")
        self._connection.executemany(
            f"INSERT INTO updates ({_UPDATE_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)",
            [_values(row) for row in rows],
        )

    def _grow(self, rows: Sequence[UpdateRow]) -> None:
        for row in rows:
            self._ends.append(self._ends[-1] + len(row.payload))

    def _insert_aside(self, rows: Sequence[AsideRow]) -> None:
        self._connection.executemany(
            f"INSERT INTO aside ({_ASIDE_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [(*_values(row.update), row.epoch, row.set_aside_at, row.why) for row in rows],
        )

    def _prepare(self, run: str) -> None:
        found = self._format()
        if found < SCHEMA:
            steps = _TO_SCHEMA_2 if found else (*_SCHEMA_1, *_TO_SCHEMA_2)
            with self._transaction():  # who is stopped halfway leaves no trace
                for step in steps:
                    self._connection.execute(step)
                if not found:
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
        then = then or f"go on with `shoal host --resume {self._directory}`"
        with self._explained(problem, f"free the disk, then {then}"), self._transaction():
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


def _is_of_the_disk(error: sqlite3.Error | OSError) -> bool:
    """Whether the disk is at fault, not what was written there."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    return isinstance(error, OSError) or code in _OF_THE_DISK


def _opened_to_read(path: Path, undo: ExitStack) -> sqlite3.Connection:
    """A connection that never writes, to the file or to a copy of it.

    SQLite reads a log in WAL mode only beside a file of shared memory, which it may have to make;
    where it can't, that is left out if there is no WAL, else a copy of both is read.
    """
    try:
        return _connected(path)
    except sqlite3.OperationalError:
        wal = path.with_name(f"{path.name}-wal")
        if not wal.exists() or not wal.stat().st_size:
            return _connected(path, "&immutable=1")
        copies = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="shoal-log-")))
        for file in (path, wal):
            shutil.copyfile(file, copies / file.name)
        return _connected(copies / path.name)


def _connected(path: Path, options: str = "") -> sqlite3.Connection:
    address = f"file:{quote(str(path.absolute()))}?mode=ro{options}"
    connection = sqlite3.connect(address, uri=True, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


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


def _epoch_of(payload: bytes) -> int:
    """The epoch that an update names, 0 where it can't be read."""
    with contextlib.suppress(WireError):
        update = peek_signed(payload)
        if isinstance(update, Update):
            return update.epoch
    return 0
