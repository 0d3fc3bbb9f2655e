"""The update log on disk: SQLite in WAL mode, every update synced before anybody hears of it."""

from coordinator.log.reading import LogReader
from coordinator.log.rows import (
    ARCHIVE,
    BASE,
    BASE_DIGEST,
    CHARTERS,
    ENDED,
    EPOCH,
    ROOT,
    RUN,
    SECONDS,
    SPEC,
    STATE,
    TRUST,
    AsideRow,
    DamagedError,
    EvaluationRow,
    LogError,
    ResultRow,
    UpdateRow,
    Value,
)
from coordinator.log.schema import PAGE_BYTES, SCHEMA
from coordinator.log.writing import UpdateLog

__all__ = [
    "ARCHIVE",
    "BASE",
    "BASE_DIGEST",
    "CHARTERS",
    "ENDED",
    "EPOCH",
    "PAGE_BYTES",
    "ROOT",
    "RUN",
    "SCHEMA",
    "SECONDS",
    "SPEC",
    "STATE",
    "TRUST",
    "AsideRow",
    "DamagedError",
    "EvaluationRow",
    "LogError",
    "LogReader",
    "ResultRow",
    "UpdateLog",
    "UpdateRow",
    "Value",
]
