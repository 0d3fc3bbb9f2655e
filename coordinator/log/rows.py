"""What a log has of a run: its rows, the keys of its notes, and how it can fail."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

from protocol.errors import ShoalError
from protocol.messages import Judged, ResultName, TaskKind

RUN = "run"
ROOT = "root"
CHARTERS = "charters"
BASE = "base"
BASE_DIGEST = "base-digest"
ARCHIVE = "archive"
EPOCH = "epoch"
SECONDS = "seconds"
ENDED = "ended"
STATE = "state"
SPEC = "spec"
TRUST = "trust"
"""Keys of `noted`: the run's id; the public key that its name was made from, in hexadecimal digits;
msgpack list of the signed charters, in order; first version whose update is here; digest of the
full state of that version, in hexadecimal digits; file that has the updates before it; number of
the epoch that we led last; seconds that the run has been led for; why the run ended, if it did; how
whoever led it last left it, a `RunState`: running where they came to no end;
the run spec as it goes over the wire, after
its digest; JSON of what is known of workers."""

Value = str | int | float | bytes


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

    @classmethod
    def told(cls, judged: Judged, judged_at: float, seconds: float) -> Self:
        """As an update tells it."""
        return cls(
            version=judged.version,
            episodes=judged.episodes,
            mean=judged.mean,
            deviation=judged.deviation,
            steps=judged.steps,
            full=judged.full,
            judged_at=judged_at,
            seconds=seconds,
        )


@dataclass(frozen=True, slots=True)
class ResultRow:
    """A result that we answer for, though no update or evaluation has it yet."""

    worker: str
    session: str
    name: ResultName
    """what the session calls it"""
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
