"""What a sweep knows, on disk: its file, points, runs and their curves, in one SQLite file."""

from __future__ import annotations

import contextlib
import fcntl
import json
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

from coordinator.sweep.file import SweepError
from coordinator.sweep.measures import Evaluation
from coordinator.sweep.planning import Trained, Tried
from coordinator.sweep.points import Point
from protocol.disk import sync_directory

STORE = "sweep.sqlite"
LOCK = "sweep.lock"
FORMAT = 1
_TABLES = """
    CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
    CREATE TABLE points (
        number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, settings TEXT NOT NULL,
        rungs TEXT NOT NULL
    );
    CREATE TABLE runs (
        point INTEGER NOT NULL, place INTEGER NOT NULL, seed INTEGER NOT NULL, state TEXT NOT NULL,
        why TEXT NOT NULL, run TEXT NOT NULL, PRIMARY KEY (point, seed)
    );
    CREATE TABLE curves (
        point INTEGER NOT NULL, seed INTEGER NOT NULL, version INTEGER NOT NULL, mean REAL NOT NULL,
        deviation REAL NOT NULL, episodes INTEGER NOT NULL, whole INTEGER NOT NULL,
        used INTEGER NOT NULL, PRIMARY KEY (point, seed, version)
    );
"""
_STATES = ("pending", "running", "finished", "stopped", "failed")


class Store:
    """The sweep in a directory. What a method has written has reached the disk when it returns.

    Methods may be called from any thread. Every failure is a `SweepError`.
    """

    def __init__(self, directory: Path, connection: sqlite3.Connection, closing: ExitStack) -> None:
        """See `create`, `open` and `read`."""
        self.directory = directory
        self._connection = connection
        self._closing = closing
        self._lock = threading.Lock()

    @classmethod
    def create(cls, directory: Path, notes: Mapping[str, str], points: Sequence[Tried]) -> Self:
        """A new sweep, which `notes` say all of that its points don't. Raises `SweepError`."""
        with explained(directory), ExitStack() as undo:
            directory.mkdir(parents=True, exist_ok=True)
            if (directory / STORE).exists():
                raise SweepError(
                    f"{directory} has a sweep already: go on with it (shoal sweep resume "
                    f"{directory}), or give another --dir"
                )
            if {path.name for path in directory.iterdir()} - {LOCK, f".{STORE}"}:
                raise SweepError(f"{directory} is not empty: give a new or empty --dir")
            _hold(directory, undo)
            # Under another name until all is in it: who is killed meanwhile leaves no sweep.
            begun = directory / f".{STORE}"
            begun.unlink(missing_ok=True)
            with contextlib.closing(_connected(begun, "rwc")) as connection:
                connection.executescript(_TABLES)
                connection.execute("BEGIN IMMEDIATE")
                connection.executemany("INSERT INTO meta VALUES (?, ?)", notes.items())
                _insert(connection, points)
                connection.execute(f"PRAGMA user_version = {FORMAT}")
                connection.execute("COMMIT")
            begun.chmod(0o600)
            begun.rename(directory / STORE)
            sync_directory(directory)
            return cls._of(directory, undo)

    @classmethod
    def open(cls, directory: Path) -> Self:
        """One that is to go on. Raises `SweepError`, also where another process leads it."""
        with explained(directory), ExitStack() as undo:
            _is_there(directory)
            _hold(directory, undo)
            return cls._of(directory, undo)

    @classmethod
    def read(cls, directory: Path) -> Self:
        """One to look at, whoever leads it meanwhile. Raises `SweepError`."""
        with explained(directory), ExitStack() as undo:
            _is_there(directory)
            # Able to write: what a host that was killed had half written is undone before.
            return cls._of(directory, undo)

    @classmethod
    def _of(cls, directory: Path, undo: ExitStack) -> Self:
        connection = _connected(directory / STORE, "rw")
        undo.callback(connection.close)
        found = connection.execute("PRAGMA user_version").fetchone()[0]
        if found != FORMAT:
            raise SweepError(
                f"{directory / STORE} has format {found}, this version knows only {FORMAT}: "
                "use the version of Shoal that wrote it"
            )
        return cls(directory, connection, undo.pop_all())

    def noted(self, key: str) -> str:
        """What was noted under this key; empty where nothing was."""
        rows = self._all("SELECT value FROM meta WHERE key = ?", key)
        return str(rows[0][0]) if rows else ""

    def needed(self, key: str) -> str:
        """What every sweep has noted under this key. Raises `SweepError` where this one has not."""
        if text := self.noted(key):
            return text
        raise SweepError(
            f"{self.directory / STORE} lacks its {key}: it is damaged, restore it from a backup"
        )

    def points(self) -> list[Tried]:
        """All points with their runs, in their order."""
        with explained(self.directory):
            found = [
                Tried(number, Point(name, json.loads(settings)), [], json.loads(rungs))
                for number, name, settings, rungs in self._all(
                    "SELECT number, name, settings, rungs FROM points ORDER BY number"
                )
            ]
            by_number = {each.number: each for each in found}
            curves: dict[tuple[int, int], list[Evaluation]] = {}
            for point, seed, *values in self._all("SELECT * FROM curves ORDER BY version"):
                version, mean, deviation, episodes, whole, used = values
                line = Evaluation(version, mean, deviation, episodes, bool(whole), used)
                curves.setdefault((point, seed), []).append(line)
            rows = self._all("SELECT point, seed, state, why, run FROM runs ORDER BY point, place")
            for point, seed, state, why, run in rows:
                if state not in _STATES:
                    raise ValueError(f"no state of a run: {state!r}")
                curve = tuple(curves.get((point, seed), ()))
                by_number[point].runs.append(Trained(seed, state, why, run, curve))
            return found

    def add(self, points: Sequence[Tried]) -> None:
        """More points, with their runs."""
        with self._writing() as connection:
            _insert(connection, points)

    def grow(
        self,
        notes: Mapping[str, str],
        points: Sequence[Tried],
        runs: Mapping[int, Sequence[Trained]],
    ) -> None:
        """More points, and more `runs` of those that are here, by their numbers; other notes."""
        with self._writing() as connection:
            connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", notes.items())
            _insert(connection, points)
            for number, more in runs.items():
                _insert_runs(connection, number, more)

    def keep(self, number: int, run: Trained) -> None:
        """A run of that point is so now."""
        with self._writing() as connection:
            connection.execute(
                "UPDATE runs SET state = ?, why = ?, run = ? WHERE point = ? AND seed = ?",
                (run.state, run.why, run.run, number, run.seed),
            )
            connection.execute(
                "DELETE FROM curves WHERE point = ? AND seed = ?", (number, run.seed)
            )
            connection.executemany(
                "INSERT INTO curves VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    (number, run.seed, e.version, e.mean, e.deviation, e.episodes, e.full, e.used)
                    for e in run.curve
                ],
            )

    def close(self) -> None:
        """Let go of it."""
        with self._lock:
            self._closing.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _all(self, query: str, *values: Any) -> list[Any]:
        with self._lock, explained(self.directory):
            return self._connection.execute(query, values).fetchall()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction."""
        with self._lock, explained(self.directory):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
                raise


def _insert(connection: sqlite3.Connection, points: Sequence[Tried]) -> None:
    for each in points:
        settings = json.dumps(each.point.settings, default=str)
        connection.execute(
            "INSERT INTO points VALUES (?, ?, ?, ?)",
            (each.number, each.point.name, settings, json.dumps(list(each.rungs))),
        )
        _insert_runs(connection, each.number, each.runs)


def _insert_runs(connection: sqlite3.Connection, number: int, runs: Sequence[Trained]) -> None:
    """After those that the point has."""
    query = "SELECT COUNT(*) FROM runs WHERE point = ?"
    (there,) = connection.execute(query, (number,)).fetchone()
    connection.executemany(
        "INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?)",
        [
            (number, place, run.seed, run.state, run.why, run.run)
            for place, run in enumerate(runs, there)
        ],
    )


def _connected(path: Path, mode: str) -> sqlite3.Connection:
    address = f"{path.absolute().as_uri()}?mode={mode}"
    connection = sqlite3.connect(address, uri=True, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def _is_there(directory: Path) -> None:
    if not (directory / STORE).is_file():
        raise SweepError(
            f"{directory} holds no sweep: give the directory of one, such as sweeps/<name>"
        )


def _hold(directory: Path, undo: ExitStack) -> None:
    """Keep other processes from leading it, until this one lets go of it or ends."""
    lock = undo.enter_context((directory / LOCK).open("a"))
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise SweepError(
            f"the sweep in {directory} is led by another process: stop that one first"
        ) from None


@contextmanager
def explained(directory: Path) -> Iterator[None]:
    """Make of what a disk, or a damaged file, does there a `SweepError`."""
    try:
        yield
    except (sqlite3.Error, OSError, ValueError, KeyError) as error:
        raise SweepError(
            f"the sweep in {directory} can't be read or written ({error}): see to the disk and "
            "who owns it, or restore it from a backup"
        ) from None
