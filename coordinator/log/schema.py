"""How a log lies in SQLite: its tables and columns, in this format and the one before."""

from __future__ import annotations

SCHEMA = 2

PAGE_BYTES = 4096
"""Of the file's pages, whatever SQLite's own default is."""

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
SCHEMA_1 = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)",
    f"CREATE TABLE updates ({_UPDATES})",
    f"CREATE TABLE evaluations ({_EVALUATIONS})",
)
TO_SCHEMA_2 = (
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
SCHEMA_1_AS_2 = (
    """CREATE TEMP VIEW updates AS
    SELECT version, payload, made_at, members, late, 0.0 AS seconds, 0 AS workers
    FROM main.updates""",
    """CREATE TEMP VIEW evaluations AS
    SELECT version, episodes, mean, deviation, 0 AS steps, complete, 0.0 AS judged_at,
           0.0 AS seconds
    FROM main.evaluations""",
    TO_SCHEMA_2[-2].replace("CREATE TABLE", "CREATE TEMP TABLE"),
    TO_SCHEMA_2[-1].replace("CREATE TABLE", "CREATE TEMP TABLE"),
)
"""A log of schema 1 that may not be written, as one of schema 2."""

UPDATE_COLUMNS = "version, payload, made_at, members, late, seconds, workers"
EVALUATION_COLUMNS = "version, episodes, mean, deviation, steps, complete, judged_at, seconds"
RESULT_COLUMNS = "worker, session, task, kind, version, until, payload"
ASIDE_COLUMNS = f"{UPDATE_COLUMNS}, epoch, set_aside_at, why"
UPDATE_TYPES = (int, bytes, float, int, int, float, int)
EVALUATION_TYPES = (int, int, float, float, int, int, float, float)
RESULT_TYPES = (str, str, int, str, int, int, bytes)
ASIDE_TYPES = (*UPDATE_TYPES, int, float, str)
