"""What happens to the pool (events) and what it wants done (commands).

What the pool itself makes for each task and result are structs: those are made many times as fast
as dataclasses or named tuples. None of them can be part of a cycle, and the collector need not look
at them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from protocol.batches import Layout
from protocol.messages import Outcome, Part, ResultName, TaskKind
from protocol.spec import RunSpec


class SessionId(NamedTuple):
    """One connection life of a worker: trust belongs to `worker`, leases to the whole."""

    worker: str
    session: str

    def __str__(self) -> str:
        return f"{self.worker}/{self.session}"


@dataclass(frozen=True, slots=True)
class HeldLease:
    """A lease that a session says it still works on: one that it was really given, in this epoch or
    an earlier one."""

    task: int
    kind: TaskKind
    version: int
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class Joined:
    """A session was welcomed; `speed` is declared, in environment steps per second, 0 unknown.

    Who `stands_by` keeps the run's log, and is no worker.
    """

    session: SessionId
    credit: int
    speed: float
    held: tuple[HeldLease, ...] = ()
    stands_by: bool = False
    lanes: int = 0
    numeric: bytes = b""
    """both as in its hello"""


@dataclass(frozen=True, slots=True)
class Left:
    """A session ended; what it held is free at once."""

    session: SessionId
    reason: str


@dataclass(frozen=True, slots=True)
class Heard:
    """A session is alive; `credit` is how many tasks it can hold, None when it did not say."""

    session: SessionId
    credit: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Arrived:
    """An authentic result: its lease token was ours and its arrays have the right shapes.

    `returns` float64 and `lengths` int64: (count, members per direction), +sigma first; (count,)
    for the centre. NaN returns mark the directions in `failed`.
    """

    session: SessionId
    task: int
    kind: TaskKind
    version: int
    first: int
    returns: NDArray[np.float64]
    lengths: NDArray[np.int64]
    observed: bytes = b""
    failed: tuple[tuple[int, str], ...] = ()
    part: Part | None = None
    """where it lies in its lease; None: it is of all of it"""

    @property
    def count(self) -> int:
        """Directions, or episodes of the centre."""
        return len(self.returns)

    @property
    def name(self) -> ResultName:
        """What its session calls it."""
        return self.task if self.part is None else (self.task, self.part.before)

    @property
    def leased(self) -> tuple[int, int]:
        """(first, count) of the lease that it is the result, or a part of the result, of."""
        if self.part is None:
            return self.first, len(self.returns)
        before, after = self.part.before, self.part.after
        return self.first - before, before + len(self.returns) + after


class Kept(NamedTuple):
    """These results can't be lost any more: they may be acknowledged."""

    results: tuple[tuple[SessionId, ResultName], ...]


@dataclass(frozen=True, slots=True)
class Refused:
    """A worker gave a lease back; `blame` says whether that was its own failure."""

    session: SessionId
    task: int
    blame: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Updated:
    """The update that `CloseBatch` asked for is durable: parameters are now at `version`."""

    version: int
    amended: RunSpec | None = None
    """the spec with the settings that hold from that version on, where the update changed any"""
    layout: Layout | None = None
    """of the batches, in that case"""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed; leases and silence are judged."""


@dataclass(frozen=True, slots=True)
class Deaf:
    """From now on nobody can be heard, and no task reaches anybody: no worker is to blame."""


@dataclass(frozen=True, slots=True)
class Hearing:
    """Who speaks is heard again; since the time `since` nobody was."""

    since: float


@dataclass(frozen=True, slots=True)
class Strained:
    """The coordinator, or its broker, has more to do than it can: nothing new is to be leased."""

    reason: str


@dataclass(frozen=True, slots=True)
class Relaxed:
    """It has caught up."""


@dataclass(frozen=True, slots=True)
class Paused:
    """The host wants nothing new leased; what is out may still come."""

    reason: str


@dataclass(frozen=True, slots=True)
class Resumed:
    """The host lets the run go on."""


@dataclass(frozen=True, slots=True)
class Ban:
    """The host wants nothing of this worker any more."""

    worker: str
    reason: str


@dataclass(frozen=True, slots=True)
class Unban:
    """The host lets a worker that was banned, or quarantined, begin anew."""

    worker: str


@dataclass(frozen=True, slots=True)
class Audit:
    """The host wants to have the next tasks of a worker checked."""

    worker: str


@dataclass(frozen=True, slots=True)
class Rely:
    """The host takes the word of this worker against all others'."""

    worker: str


@dataclass(frozen=True, slots=True)
class StopAsked:
    """The host wants the run to end now."""

    reason: str


Event = (
    Joined
    | Left
    | Heard
    | Arrived
    | Kept
    | Refused
    | Updated
    | Tick
    | Deaf
    | Hearing
    | Strained
    | Relaxed
    | Paused
    | Resumed
    | Ban
    | Unban
    | Audit
    | Rely
    | StopAsked
)


class Contribution(msgspec.Struct, frozen=True, eq=False, gc=False):
    """Returns that count in an update: whole directions, all their members, evaluated at
    `version`."""

    session: SessionId
    version: int
    first: int
    returns: NDArray[np.float64]
    lengths: NDArray[np.int64]
    observed: bytes

    @property
    def valid(self) -> NDArray[np.bool_]:
        """Which directions have returns, shape (count,)."""
        return ~np.isnan(self.returns[:, 0])

    @property
    def steps(self) -> int:
        """Environment steps of the directions that have returns."""
        return int(self.lengths[self.valid].sum())


class SendTask(msgspec.Struct, frozen=True, gc=False):
    """Lease this range to this session; `acknowledged` results ride along."""

    session: SessionId
    task: int
    kind: TaskKind
    version: int
    first: int
    count: int
    acknowledged: tuple[ResultName, ...] = ()


class SendAcknowledge(msgspec.Struct, frozen=True, gc=False):
    """Answer for results that no task carries the answer to."""

    session: SessionId
    results: tuple[ResultName, ...]
    outcome: Outcome
    reason: str = ""


class KeepResult(msgspec.Struct, frozen=True, gc=False):
    """Make an accepted result durable, then say `Kept`: it is not acknowledged before.

    It is needed until update `until` -> `until` + 1 is durable, which uses it; a result of the
    centre until version `until` is judged.
    """

    arrived: Arrived
    until: int


@dataclass(frozen=True, slots=True)
class CloseBatch:
    """Make the update version -> version + 1 of exactly these contributions."""

    version: int
    contributions: tuple[Contribution, ...]
    dropped: tuple[int, ...]
    """directions given up because their episodes failed twice"""
    reverts: bool = False
    """the version is a candidate that is no better: restore the accepted one"""


@dataclass(frozen=True, slots=True)
class CentreJudged:
    """The unperturbed policy of `version`, over `episodes` fresh episodes."""

    version: int
    episodes: int
    mean: float
    deviation: float
    steps: int
    full: bool
    reached: bool


@dataclass(frozen=True, slots=True)
class EndRun:
    """The run is over; `version` is what it returns."""

    version: int
    reached: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Happened:
    """A line for the log: something a person who watches the pool wants to know."""

    what: str
    session: SessionId | None = None


class Sentenced(NamedTuple):
    """The standing of a worker was decided anew: what is known of all is to be kept."""

    worker: str


Command = (
    SendTask
    | SendAcknowledge
    | KeepResult
    | CloseBatch
    | CentreJudged
    | EndRun
    | Happened
    | Sentenced
)
