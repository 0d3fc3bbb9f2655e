"""How a log lies in SQLite: its tables and columns."""

from __future__ import annotations

SCHEMA = 3

PAGE_BYTES = 4096
"""Of the file's pages, whatever SQLite's own default is."""
WHOLE = -1
"""What `results.part` says of a result that is no part."""

TABLES = (
    # Without a type of its own a value comes back as what it was.
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value NOT NULL)",
    """
    CREATE TABLE updates (
        version INTEGER PRIMARY KEY,  -- the update leads from this version to the next
        payload BLOB NOT NULL,        -- the signed message, exactly as it was published
        made_at REAL NOT NULL,        -- Unix time, for people
        members INTEGER NOT NULL,
        late INTEGER NOT NULL,
        seconds REAL NOT NULL,        -- of the run, until then
        workers INTEGER NOT NULL
    )
    """,
    """
    CREATE TABLE evaluations (
        version INTEGER PRIMARY KEY,
        episodes INTEGER NOT NULL,
        mean REAL NOT NULL,
        deviation REAL NOT NULL,
        steps INTEGER NOT NULL,
        complete INTEGER NOT NULL,    -- whether it went beyond the screening
        judged_at REAL NOT NULL,
        seconds REAL NOT NULL
    )
    """,
    """
    CREATE TABLE results (
        arrival INTEGER PRIMARY KEY,
        worker TEXT NOT NULL,
        session TEXT NOT NULL,
        task INTEGER NOT NULL,
        part INTEGER NOT NULL,        -- units of its lease before it; -1: it is of all of it
        kind TEXT NOT NULL,
        version INTEGER NOT NULL,     -- that was evaluated
        until INTEGER NOT NULL,       -- the last update that may use it, for members
        payload BLOB NOT NULL,        -- the Result message
        UNIQUE (worker, task, part, until)
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

UPDATE_COLUMNS = "version, payload, made_at, members, late, seconds, workers"
EVALUATION_COLUMNS = "version, episodes, mean, deviation, steps, complete, judged_at, seconds"
RESULT_COLUMNS = "worker, session, task, part, kind, version, until, payload"
ASIDE_COLUMNS = f"{UPDATE_COLUMNS}, epoch, set_aside_at, why"
UPDATE_TYPES = (int, bytes, float, int, int, float, int)
EVALUATION_TYPES = (int, int, float, float, int, int, float, float)
RESULT_TYPES = (str, str, int, int, str, int, int, bytes)
ASIDE_TYPES = (*UPDATE_TYPES, int, float, str)
