"""The update log on disk: SQLite in WAL mode, every update synced before anybody hears of it."""

from __future__ import annotations

import sqlite3
import threading
import time
from array import array
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from protocol.errors import ShoalError

SCHEMA = 1
_TABLES = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)",
    """
    CREATE TABLE updates (
        version INTEGER PRIMARY KEY,  -- the update leads from this version to the next
        payload BLOB NOT NULL,        -- the signed message, exactly as it was published
        made_at REAL NOT NULL,        -- Unix time, for people
        members INTEGER NOT NULL,
        late INTEGER NOT NULL
    )
    """,
    """
    CREATE TABLE evaluations (
        version INTEGER PRIMARY KEY,
        episodes INTEGER NOT NULL,
        mean REAL NOT NULL,
        deviation REAL NOT NULL,
        complete INTEGER NOT NULL     -- whether it went beyond the screening
    )
    """,
)


class LogError(ShoalError):
    """The log can't be read or written; nothing that it could not keep was published."""


class UpdateLog:
    """The updates of one run, in order and without a gap, with what is worth knowing of each.

    `PRAGMA synchronous = FULL`: when `append` returns, the update has reached the disk. Methods may
    be called from any thread; they wait for each other.
    """

    def __init__(self, path: Path, run: str) -> None:
        """Open the log, or make it for this run. Raises `LogError`."""
        self._path = path
        self._lock = threading.Lock()
        self._ends = array("Q", [0])
        opening = self._explained("can't be opened", "give a --run-dir on a working disk")
        with opening, ExitStack() as undo:
            # Without isolation level each statement is a transaction, synced when it returns.
            self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            undo.callback(self._connection.close)
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            self._prepare(run)
            undo.pop_all()

    @property
    def version(self) -> int:
        """The version that the last update leads to."""
        return len(self._ends) - 1

    def append(self, version: int, payload: bytes, members: int, late: int) -> None:
        """Keep the update version -> version + 1 for good. Raises `LogError`."""
        row = (version, payload, time.time(), members, late)
        problem = f"can't keep update {version}, which is not published"
        with self._lock, self._explained(problem, "free the disk and start anew"):
            if version != self.version:
                raise LogError(f"{self._path} {problem}: it ends at version {self.version}")
            self._connection.execute("INSERT INTO updates VALUES (?, ?, ?, ?, ?)", row)
            self._ends.append(self._ends[-1] + len(payload))

    def record_evaluation(
        self, version: int, episodes: int, mean: float, deviation: float, complete: bool
    ) -> None:
        """Keep a centre evaluation. Raises `LogError`."""
        row = (version, episodes, mean, deviation, complete)
        problem = f"can't keep the evaluation of version {version}"
        with self._lock, self._explained(problem, "free the disk and start anew"):
            self._connection.execute(
                "INSERT OR REPLACE INTO evaluations VALUES (?, ?, ?, ?, ?)", row
            )

    def updates(self, first: int, end: int) -> list[bytes]:
        """The signed updates that lead from version `first` to `end`, in order. Raises `LogError`.

        They may be large: see `size` first.
        """
        with self._lock, self._explained("can't be read", "see to the disk"):
            rows = self._connection.execute(
                "SELECT payload FROM updates WHERE version >= ? AND version < ? ORDER BY version",
                (first, end),
            )
            return [payload for (payload,) in rows]

    def size(self, first: int, end: int) -> int:
        """Bytes of the updates that lead from version `first` to `end`, neither beyond the log.

        Cheap: nothing is read.
        """
        return self._ends[end] - self._ends[first] if first < end else 0

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._connection.close()

    def _prepare(self, run: str) -> None:
        found = self._connection.execute("PRAGMA user_version").fetchone()[0]
        if found == 0:
            self._connection.execute("BEGIN IMMEDIATE")  # who closes halfway leaves no trace
            for table in _TABLES:
                self._connection.execute(table)
            self._connection.execute("INSERT INTO meta VALUES ('run', ?)", (run,))
            self._connection.execute(f"PRAGMA user_version = {SCHEMA}")
            self._connection.execute("COMMIT")
            return
        if found > SCHEMA:
            raise LogError(
                f"{self._path} has format {found}, this version knows up to {SCHEMA}: upgrade Shoal"
            )
        (owner,) = self._connection.execute("SELECT value FROM meta WHERE key = 'run'").fetchone()
        if owner != run:
            raise LogError(
                f"{self._path} belongs to the run {owner}, not to {run}: give another --run-dir"
            )
        for (size,) in self._connection.execute(
            "SELECT LENGTH(payload) FROM updates ORDER BY version"
        ):
            self._ends.append(self._ends[-1] + size)

    @contextmanager
    def _explained(self, problem: str, remedy: str) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise LogError(f"the log {self._path} {problem} ({error}): {remedy}") from None
