"""The update log on disk: SQLite in WAL mode, every update synced before anybody hears of it."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

from protocol.errors import ShoalError

SCHEMA = 1
_TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE updates (
    version INTEGER PRIMARY KEY,  -- the update leads from this version to the next
    payload BLOB NOT NULL,        -- the signed message, exactly as it was published
    made_at REAL NOT NULL,        -- Unix time, for people
    members INTEGER NOT NULL,
    late INTEGER NOT NULL
);
CREATE TABLE evaluations (
    version INTEGER PRIMARY KEY,
    episodes INTEGER NOT NULL,
    mean REAL NOT NULL,
    deviation REAL NOT NULL,
    complete INTEGER NOT NULL     -- whether it went beyond the screening
);
"""


class LogError(ShoalError):
    """The log can't be read or written; nothing that it could not keep was published."""


class UpdateLog:
    """The updates of one run, in order, with what is worth knowing of each.

    `PRAGMA synchronous = FULL`: when `append` returns, the update has reached the disk. Methods may
    be called from any one thread at a time.
    """

    def __init__(self, path: Path, run: str) -> None:
        self._path = path
        try:
            self._connection = sqlite3.connect(path, check_same_thread=False)
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            self._prepare(run)
        except sqlite3.Error as error:
            raise LogError(f"the log {path} can't be opened ({error}): see the disk") from None

    def append(self, version: int, payload: bytes, members: int, late: int) -> None:
        """Keep the update version -> version + 1 for good. Raises `LogError`."""
        row = (version, payload, time.time(), members, late)
        try:
            with self._connection:
                self._connection.execute("INSERT INTO updates VALUES (?, ?, ?, ?, ?)", row)
        except sqlite3.Error as error:
            raise LogError(
                f"update {version} can't be written to {self._path} ({error}): "
                "the run stops before publishing it; free the disk"
            ) from None

    def record_evaluation(
        self, version: int, episodes: int, mean: float, deviation: float, complete: bool
    ) -> None:
        """Keep a centre evaluation. Raises `LogError`."""
        row = (version, episodes, mean, deviation, complete)
        try:
            with self._connection:
                self._connection.execute(
                    "INSERT OR REPLACE INTO evaluations VALUES (?, ?, ?, ?, ?)", row
                )
        except sqlite3.Error as error:
            raise LogError(f"{self._path} can't be written ({error}): free the disk") from None

    def payloads(self, first: int, end: int) -> Iterator[bytes]:
        """The signed updates of versions `[first, end)`, in order."""
        rows = self._connection.execute(
            "SELECT payload FROM updates WHERE version >= ? AND version < ? ORDER BY version",
            (first, end),
        )
        for (payload,) in rows:
            yield payload

    def size(self, first: int, end: int) -> int:
        """Bytes of `payloads(first, end)` together."""
        row = self._connection.execute(
            "SELECT COALESCE(SUM(LENGTH(payload)), 0) FROM updates"
            " WHERE version >= ? AND version < ?",
            (first, end),
        ).fetchone()
        return int(row[0])

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def _prepare(self, run: str) -> None:
        found = self._connection.execute("PRAGMA user_version").fetchone()[0]
        if found == 0:
            with self._connection:
                self._connection.executescript(_TABLES)
                self._connection.execute("INSERT INTO meta VALUES ('run', ?)", (run,))
                self._connection.execute(f"PRAGMA user_version = {SCHEMA}")
            return
        if found > SCHEMA:
            raise LogError(
                f"{self._path} has format {found}, this version knows up to {SCHEMA}: upgrade Shoal"
            )
        (owner,) = self._connection.execute("SELECT value FROM meta WHERE key = 'run'").fetchone()
        if owner != run:
            raise LogError(f"{self._path} belongs to the run {owner}, not to {run}")
