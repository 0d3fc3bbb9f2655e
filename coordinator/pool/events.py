"""What happens to the pool (events) and what it wants done (commands)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Kind = Literal["members", "centre"]


@dataclass(frozen=True, slots=True)
class SessionId:
    """One connection life of a worker: trust belongs to `worker`, leases to the whole."""

    worker: str
    session: str

    def __str__(self) -> str:
        return f"{self.worker}/{self.session}"


@dataclass(frozen=True, slots=True)
class Joined:
    """A session was welcomed; `speed` is declared, in environment steps per second, 0 unknown."""

    session: SessionId
    credit: int
    speed: float


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

    `returns` (count, 2) float64 and `lengths` (count, 2) int64 for members, +sigma first; (count,)
    for the centre. NaN returns mark the directions in `failed`.
    """

    session: SessionId
    task: int
    kind: Kind
    version: int
    first: int
    returns: NDArray[np.float64]
    lengths: NDArray[np.int64]
    observed: bytes = b""
    failed: tuple[tuple[int, str], ...] = ()

    @property
    def count(self) -> int:
        """Directions, or episodes of the centre."""
        return len(self.returns)


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


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed; leases and silence are judged."""


@dataclass(frozen=True, slots=True)
class StopAsked:
    """The host wants the run to end now."""

    reason: str


Event = Joined | Left | Heard | Arrived | Refused | Updated | Tick | StopAsked


@dataclass(frozen=True, slots=True, eq=False)
class Contribution:
    """Returns that count in an update: whole directions, both mirrors, evaluated at `version`."""

    session: SessionId
    version: int
    first: int
    returns: NDArray[np.float64]
    lengths: NDArray[np.int64]
    observed: bytes


@dataclass(frozen=True, slots=True)
class SendTask:
    """Lease this range to this session; `acknowledged` results ride along."""

    session: SessionId
    task: int
    kind: Kind
    version: int
    first: int
    count: int
    acknowledged: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SendAcknowledge:
    """Answer for results that no task carries the answer to."""

    session: SessionId
    tasks: tuple[int, ...]
    outcome: Literal["accepted", "late", "duplicate", "refused"]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class CloseBatch:
    """Make the update version -> version + 1 of exactly these contributions."""

    version: int
    contributions: tuple[Contribution, ...]
    dropped: tuple[int, ...]
    """directions given up because their episodes failed twice"""


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


Command = SendTask | SendAcknowledge | CloseBatch | CentreJudged | EndRun | Happened


@dataclass(slots=True)
class Lease:
    """A range that a session evaluates until `deadline`; durations as the pool predicts them."""

    task: int
    session: SessionId
    kind: Kind
    version: int
    first: int
    count: int
    issued: float
    predicted_end: float
    deadline: float
    duplicated: bool = False
    """another session was given the same range because this one is overdue"""


@dataclass(slots=True)
class Session:
    """What the pool knows of a session; only figures that the coordinator measured itself."""

    id: SessionId
    credit: int
    speed: float
    """environment steps per second from lease to result; declared until the first result"""
    heard: float
    joined: float
    limit: int = 64
    """credit granted: halved by each lease not returned, regained one by one"""
    leases: dict[int, Lease] = field(default_factory=dict)
    last_result: float = 0.0
    measured: int = 0
    """results that the speed rests on"""
    unacknowledged: list[int] = field(default_factory=list)
    rests_until: float = 0.0
    """no task before this time: it failed one just now"""
    failures: int = 0
    """consecutive own failures"""
    members: int = 0
    """members that counted"""

    @property
    def spare(self) -> int:
        """Tasks that it can take now."""
        return min(self.credit, self.limit) - len(self.leases)
