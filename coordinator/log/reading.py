"""Reads the log of a run, beside whoever writes it, and where nothing can be written."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from coordinator.log.rows import (
    BASE,
    RUN,
    AsideRow,
    DamagedError,
    EvaluationRow,
    LogError,
    ResultRow,
    UpdateRow,
    Value,
)
from coordinator.log.schema import (
    ASIDE_COLUMNS,
    ASIDE_TYPES,
    EVALUATION_COLUMNS,
    EVALUATION_TYPES,
    RESULT_COLUMNS,
    RESULT_TYPES,
    SCHEMA,
    UPDATE_COLUMNS,
    UPDATE_TYPES,
    WHOLE,
)

_PAGE_ROWS = 64
"""Updates that a reader has in memory at once."""
_UNREADABLE = (sqlite3.Error, OSError, MemoryError, UnicodeError)
"""What comes of a file that can't be read, or is damaged: a length that lies, or a name in SQLite's
own words that is no text any more."""
_OF_THE_DISK = (
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_BUSY,
)


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
            self._format()
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

    def noted_octets(self, key: str) -> bytes:
        """What `note` kept under this key as hexadecimal digits, empty where it kept nothing."""
        noted = self.noted(key)
        if noted is None:
            return b""
        try:
            if isinstance(noted, str):
                return bytes.fromhex(noted)
        except ValueError:
            pass
        raise LogError(
            f"the log {self._path} is damaged (its note {key!r} is none): "
            f"run `shoal repair {self._directory}`"
        )

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
        query = "SELECT payload FROM updates WHERE version >= ? AND version < ? ORDER BY version"
        return [payload for (payload,) in self._all(query, (first, end), (bytes,))]

    def evaluations(self) -> list[EvaluationRow]:
        """All evaluations of the centre, in the order of versions."""
        query = f"SELECT {EVALUATION_COLUMNS} FROM evaluations ORDER BY version"
        rows = [EvaluationRow(*row) for row in self._all(query, (), EVALUATION_TYPES)]
        return [replace(row, full=bool(row.full)) for row in rows]

    def results(self) -> list[ResultRow]:
        """The results that no update and no evaluation has used yet, in order of arrival."""
        query = f"""
            SELECT {RESULT_COLUMNS} FROM results
            WHERE (kind = 'members' AND until >= ?)
               OR (kind = 'centre' AND version NOT IN (SELECT version FROM evaluations))
            ORDER BY arrival
        """
        return [
            ResultRow(worker, session, task if part == WHOLE else (task, part), *rest)
            for worker, session, task, part, *rest in self._all(
                query, (self.version,), RESULT_TYPES
            )
        ]

    def aside_rows(self) -> list[AsideRow]:
        """Our updates that the run went without, in the order in which they were set aside."""
        query = f"SELECT {ASIDE_COLUMNS} FROM aside ORDER BY number"
        return [
            AsideRow(UpdateRow(*row[:7]), *row[7:]) for row in self._all(query, (), ASIDE_TYPES)
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
        """The schema of the file, 0 where nothing is in it yet. Raises `LogError` for one that this
        version does not know."""
        found = int(self._connection.execute("PRAGMA user_version").fetchone()[0])
        if found not in (0, SCHEMA):
            remedy = "upgrade Shoal"
            if found < SCHEMA:
                remedy = "use the version of Shoal that wrote it, or begin the run anew"
            raise LogError(
                f"{self._path} has format {found}, this version knows only {SCHEMA}: {remedy}"
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
        query = f"SELECT {UPDATE_COLUMNS} FROM updates WHERE version >= ? ORDER BY version LIMIT ?"
        rows: list[UpdateRow] = []
        with self._lock:
            cursor: Iterator[Any] = iter(())
            try:
                cursor = self._connection.execute(query, (version, count))
                for row in cursor:
                    if not all(map(isinstance, row, UPDATE_TYPES)):
                        raise sqlite3.DatabaseError("a value of another type than its column's")
                    rows.append(UpdateRow(*row))
            except sqlite3.ProgrammingError as error:
                raise LogError(f"the log {self._path} can't be read ({error})") from None
            except _UNREADABLE as error:
                if not rows and count == 1:
                    raise self._damage(version, _words(error)) from None
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
        except _UNREADABLE as error:
            if not remedy and _is_of_the_disk(error):
                remedy = "free the disk, or see to it"
            remedy = remedy or f"run `shoal repair {self._directory}`"
            raise LogError(f"the log {self._path} {problem} ({_words(error)}): {remedy}") from None


def _words(error: Exception) -> str:
    return str(error) or "a value is said to be longer than any memory"


def _is_of_the_disk(error: Exception) -> bool:
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
