"""Every message between peers, declared once: the declaration encodes and checks it."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from protocol.packing import (
    WireError,
    pack,
    pack_integers,
    pack_reals,
    unpack,
    unpack_integers,
    unpack_reals,
)

MAX_TASK_DIRECTIONS = 4096
"""Directions of a task at most, so that every result fits one message."""
MAX_LANES = 65_536
"""Episodes at once that a worker can declare."""
MAX_DIRECTION = 2**47
"""Directions stay below this: an episode index is direction * 65536 + episode, below 2^63."""
CHUNK = 192 * 1024
"""Bytes of a snapshot chunk."""
MAX_REASON = 500
"""Characters of a reason."""
MAX_FAILURES = 256
"""Directions that a result can tell to have failed."""
MAX_FAILURE_REASON = 200
"""Characters of why one of them did."""
MAX_UNABLE = 200
"""Characters of why a worker can't take part."""
LONGEST_MISTAKE = 200
"""Characters of what is wrong with a message, which may repeat what a stranger wrote."""

Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Version = Annotated[int, msgspec.Meta(ge=0, le=2**40)]
Direction = Annotated[int, msgspec.Meta(ge=0, lt=MAX_DIRECTION)]
TaskId = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
Digest = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
Token = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
Key = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
Nonce = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
Label = Annotated[str, msgspec.Meta(max_length=64)]
Reason = Annotated[str, msgspec.Meta(max_length=MAX_REASON)]
Packed = Annotated[bytes, msgspec.Meta(max_length=250_000)]
EpochNumber = Annotated[int, msgspec.Meta(ge=1, le=2**30)]
Priority = Annotated[float, msgspec.Meta(ge=0.01, le=100.0)]
Rank = Annotated[int, msgspec.Meta(ge=0, le=8)]
"""0: the run key; 1 to 8: a delegate, who steps in first has 1."""
DelegateKey = Annotated[bytes, msgspec.Meta(max_length=32)]
"""A public key of 32 bytes; empty: the run key that is in charge."""
PeerName = Annotated[str, msgspec.Meta(max_length=23)]
"""`<worker>-<session>`, as in topics."""

RunState = Literal["running", "paused", "finished", "stopped"]
Phase = Literal["open", "updating", "paused", "finished", "lost"]
"""What a run is doing; `lost` is what the broker says for a coordinator that is gone."""
TaskKind = Literal["members", "centre"]
Cause = Literal["handed-back", "gone", "worker", "spec"]
"""Why a lease is given back: unasked, its version is not to be had, this machine, or the run."""
Wanted = Literal["either", "updates", "snapshot"]
Outcome = Literal["accepted", "late", "duplicate", "refused"]
TriedKind = Literal["results", "status"]
"""Topics that a session tries with empty messages before it says hello."""
WorkerState = Literal["idle", "busy", "paused", "catching-up"]


LONGEST = 2**40
"""Steps of a member's episodes together at most."""
_NO_LENGTH = "an episode has at least one step"
LARGEST_RETURN = 1e150
"""Bound of a return's magnitude, so that means and deviations of returns stay finite."""


class Message(msgspec.Struct, frozen=True, array_like=True, kw_only=False):
    """Base of all messages: a msgpack array whose first element is the type's number.

    Fields are positional on the wire: later versions append fields with defaults, which older
    peers ignore.
    """


class Part(Message, frozen=True):
    """Where a result lies in its lease, when it is only a part of it."""

    before: Annotated[int, msgspec.Meta(ge=0, le=MAX_TASK_DIRECTIONS)]
    """units of the lease before it; names the part"""
    after: Annotated[int, msgspec.Meta(ge=0, le=MAX_TASK_DIRECTIONS)]
    """units of the lease after it"""


ResultName = TaskId | Annotated[tuple[TaskId, ...], msgspec.Meta(min_length=2, max_length=2)]
"""What a result of a session is called: its task, or (task, `Part.before`) where it is a part.

A tuple of a fixed form would break msgspec 0.23, which mixes up the bounds of such a union."""


class Cohort(Message, frozen=True):
    """Part of an update: consecutive directions evaluated at one version, and their weights."""

    first: Direction
    version: Version
    multiplier: Annotated[int, msgspec.Meta(ge=1, le=60)]
    weights: Packed
    """packed integers, one per direction"""


class Observed(Message, frozen=True):
    """Merged observation sums measured with one version's shift and exponent."""

    version: Version
    sums: Packed


class Judged(Message, frozen=True):
    """An evaluation of the centre that is over."""

    version: Version
    episodes: Count
    mean: float
    deviation: float
    steps: Count
    full: bool
    """whether it went beyond the screening"""


class Held(Message, frozen=True):
    """A lease that a worker can still answer: the fields of its task."""

    task: TaskId
    kind: TaskKind
    version: Version
    first: Direction
    count: Annotated[int, msgspec.Meta(ge=1, le=MAX_TASK_DIRECTIONS)]
    episodes: Annotated[int, msgspec.Meta(ge=1, le=1024)]
    token: Token


class Epoch(Message, frozen=True, tag=1):
    """The coordinator's incarnation: retained, signed by who leads; all that a newcomer needs."""

    protocol: Annotated[int, msgspec.Meta(ge=1, le=1000)]
    run: Label
    host_key: Key
    """the key that the run's name was made from"""
    number: EpochNumber
    rank: Rank
    spec: Packed
    state: RunState
    version: Version
    digest: Digest
    minimum_client: Label = "0"
    reason: Reason = ""
    leader: DelegateKey = b""
    """who leads"""
    charters: Annotated[
        tuple[Annotated[bytes, msgspec.Meta(max_length=1024)], ...], msgspec.Meta(max_length=64)
    ] = ()
    """signed charters, in order: who may lead"""
    judged: Annotated[tuple[Judged, ...], msgspec.Meta(max_length=64)] = ()
    """evaluations of the centre that no update tells of yet, or any more"""


class Beat(Message, frozen=True, tag=2):
    """Every 2 s or less: shows gaps and a dead coordinator. Unsigned: a hint, no authority."""

    epoch: Count
    version: Version
    digest: Digest
    phase: Phase


class Update(Message, frozen=True, tag=3):
    """version -> version + 1, signed by who led then: all that a replica needs to follow."""

    epoch: Count
    version: Version
    cohorts: Annotated[tuple[Cohort, ...], msgspec.Meta(max_length=4096)]
    scale: float
    learning_rate: float
    sigma: float
    observed: Annotated[tuple[Observed, ...], msgspec.Meta(max_length=64)]
    episodes: Count
    steps: Count
    digest_before: Digest
    digest_after: Digest
    late: Count = 0
    """members of earlier versions that counted"""
    dropped: Annotated[tuple[Direction, ...], msgspec.Meta(max_length=4096)] = ()
    """directions given up, with weight 0"""
    state_digest: Annotated[bytes, msgspec.Meta(max_length=16)] = b""
    """16 bytes: the digest of the full state after this update, at snapshot versions"""
    amendments: Annotated[dict[Label, float], msgspec.Meta(max_length=64)] = {}
    signer: DelegateKey = b""
    """who signed"""
    judged: Annotated[tuple[Judged, ...], msgspec.Meta(max_length=64)] = ()
    """evaluations of the centre that ended since the last update"""
    seconds: Annotated[float, msgspec.Meta(ge=0.0, le=1e12)] = 0.0
    """that the run had been led for, by whomever"""
    workers: Count = 0
    """whose returns count"""
    squares: Annotated[tuple[Packed, ...], msgspec.Meta(max_length=4096)] = ()
    """weights of the squares of the noise, as many as each cohort has; none unless the strategy of
    the run uses them"""
    scalars: Annotated[tuple[float, ...], msgspec.Meta(max_length=16)] = ()
    """what else the strategy of the run needs"""
    reverts: bool = False
    """it restores the accepted version, since its own is a candidate that is no better"""


class Hello(Message, frozen=True, tag=4):
    """A worker introduces a session; signed with its identity key."""

    protocol: Annotated[int, msgspec.Meta(ge=1, le=1000)]
    client: Label
    worker_key: Key
    exchange_key: Key
    nonce: Nonce
    name: Label
    device: Label
    credit: Annotated[int, msgspec.Meta(ge=0, le=64)]
    speed: Annotated[float, msgspec.Meta(ge=0.0, le=1e12)]
    """declared environment steps per second; sizes the first task only"""
    numeric_class: Annotated[bytes, msgspec.Meta(max_length=32)] = b""
    version: Version = 0
    """that the worker has reached"""
    held: Annotated[tuple[Held, ...], msgspec.Meta(max_length=64)] = ()
    """leases of this session, of whatever epoch, that it works on or has unanswered results of"""
    lanes: Annotated[int, msgspec.Meta(ge=0, le=MAX_LANES)] = 0
    """episodes that take about as long together as a few of them alone; 0: it has no such number"""
    life: Count = 0
    """the session's connection to the broker that this is said over: each has a higher number"""
    invite: Annotated[bytes, msgspec.Meta(max_length=96)] = b""
    """public key of an invite and its signature for this run and worker; empty: none"""
    unable: Annotated[str, msgspec.Meta(max_length=MAX_UNABLE)] = ""
    """why it can't take part in the run, and is gone with this word; empty: it can"""


class Welcome(Message, frozen=True, tag=5):
    """The signed answer to a hello; both sides now share a session key, or the reason why not."""

    nonce: Nonce
    exchange_key: Key
    epoch: Count
    version: Version
    digest: Digest
    refused: Reason = ""
    heard: Annotated[tuple[TriedKind, ...], msgspec.Meta(max_length=2)] | None = None
    """kinds of topics, beside that of the hello, on which the session was heard trying; None where
    the leader doesn't look"""
    clock: Annotated[int, msgspec.Meta(ge=0, le=2**40)] = 0
    """seconds since 1970 by the leader's clock, for people to compare: nothing goes by it; 0: it
    does not say"""


class Task(Message, frozen=True, tag=6):
    """What a worker evaluates under a lease; MAC under the session key."""

    task: TaskId
    kind: TaskKind
    version: Version
    digest: Digest
    first: Direction
    """first direction; for the centre the first episode"""
    count: Annotated[int, msgspec.Meta(ge=1, le=MAX_TASK_DIRECTIONS)]
    episodes: Annotated[int, msgspec.Meta(ge=1, le=1024)]
    token: Token
    acknowledged: Annotated[tuple[ResultName, ...], msgspec.Meta(max_length=256)] = ()
    """results of this session that the coordinator now answers for"""

    @property
    def lease(self) -> Held:
        """What is lent with it."""
        return Held(
            self.task,
            self.kind,
            self.version,
            self.first,
            self.count,
            self.episodes,
            self.token,
        )


class Result(Message, frozen=True, tag=7):
    """Returns, lengths and observation sums of a task or a part of it; MAC under the session key.

    The token is that of the whole lease, `[first - part.before, first + count + part.after)`.

    `returns` and `lengths`: (count, members per direction) reals and integers, +sigma first, each
    averaged (returns) or summed (lengths) over the member's episodes; centre: (count,). A direction
    whose episode failed has NaN returns and is named in `failed` with the reason.
    """

    task: TaskId
    kind: TaskKind
    version: Version
    first: Direction
    count: Annotated[int, msgspec.Meta(ge=1, le=MAX_TASK_DIRECTIONS)]
    episodes: Annotated[int, msgspec.Meta(ge=1, le=1024)]
    token: Token
    returns: Packed
    lengths: Packed
    observed: Packed = b""
    failed: Annotated[
        tuple[tuple[Direction, Annotated[str, msgspec.Meta(max_length=MAX_FAILURE_REASON)]], ...],
        msgspec.Meta(max_length=MAX_FAILURES),
    ] = ()
    part: Part | None = None
    """None: the whole lease"""

    @property
    def name(self) -> ResultName:
        """What it is called in acknowledgements."""
        return self.task if self.part is None else (self.task, self.part.before)

    @property
    def lease(self) -> Held:
        """The lease that it answers, or a part of which it answers."""
        part = self.part or Part(0, 0)
        return Held(
            self.task,
            self.kind,
            self.version,
            self.first - part.before,
            part.before + self.count + part.after,
            self.episodes,
            self.token,
        )


class Refusal(Message, frozen=True, tag=8):
    """A worker gives a lease back unfinished; whose fault it is decides what the pool does."""

    task: TaskId
    token: Token
    cause: Cause
    reason: Reason


class Acknowledge(Message, frozen=True, tag=9):
    """Results that the coordinator answers for, where no next task carries the news."""

    results: Annotated[tuple[ResultName, ...], msgspec.Meta(max_length=256)]
    outcome: Outcome
    reason: Reason = ""


class Credit(Message, frozen=True, tag=10):
    """How many tasks a worker can hold at once, counting those it has; 0 while it pauses."""

    credit: Annotated[int, msgspec.Meta(ge=0, le=64)]
    version: Version
    number: Annotated[int, msgspec.Meta(ge=1, le=2**53)]
    """higher than that of any before under the same session key: else somebody says it again"""


class CatchUp(Message, frozen=True, tag=11):
    """A worker at `version` asks for what it missed: updates, or a snapshot where that is less."""

    version: Version
    want: Wanted = "either"
    """`updates`: who keeps the log; `snapshot`: who has no state at all"""
    failed: Annotated[tuple[PeerName, ...], msgspec.Meta(max_length=16)] = ()
    """servers of the last offer that did not answer"""


class Manifest(Message, frozen=True, tag=12):
    """A snapshot on offer, signed by who leads: the digest of every chunk, and who serves it."""

    version: Version
    digest: Digest
    total: Annotated[int, msgspec.Meta(ge=1, le=2**34)]
    chunks: Packed
    """16 bytes each"""
    servers: Annotated[tuple[PeerName, ...], msgspec.Meta(max_length=8)] = ()
    """peers that have it; none: the coordinator serves it"""


class ChunkRequest(Message, frozen=True, tag=13):
    """A window of snapshot chunks, please."""

    version: Version
    first: Annotated[int, msgspec.Meta(ge=0, le=2**20)]
    count: Annotated[int, msgspec.Meta(ge=1, le=64)]


class Chunk(Message, frozen=True, tag=14):
    """One chunk of a snapshot; the manifest proves it."""

    version: Version
    index: Annotated[int, msgspec.Meta(ge=0, le=2**20)]
    data: Annotated[bytes, msgspec.Meta(min_length=1, max_length=CHUNK)]


class Status(Message, frozen=True, tag=15):
    """A worker's heartbeat while it has nothing to send."""

    state: WorkerState
    version: Version


class Bye(Message, frozen=True, tag=16):
    """A session ends: said by the worker, or by the broker as its will."""

    reason: Literal["left", "lost"]
    life: Count = 0
    """the connection that ends with it, as in Hello; it says nothing of a later one"""


class Notice(Message, frozen=True, tag=17):
    """A line for the volunteer to read, and what the daemon should do about it."""

    code: Literal["say", "hello-again", "leave", "slow-down"]
    text: Reason
    seconds: Annotated[float, msgspec.Meta(ge=0.0, le=600.0)] = 0.0
    """of `slow-down`: say nothing that can wait for so long"""


class Who(Message, frozen=True, tag=18):
    """Which runs are here?"""


class Here(Message, frozen=True, tag=19):
    """A run is here; the epoch message tells the rest."""

    run: Label
    host_key: Key
    environment: Annotated[str, msgspec.Meta(max_length=128)]
    state: RunState
    priority: Priority = 1.0
    """how much of a worker of several runs its host asks for, where others ask for 1"""


class Charter(Message, frozen=True, tag=20):
    """Who may lead from an epoch on; signed by the run key that was in charge before."""

    epoch: EpochNumber
    key: Key
    """the run key that is in charge from then on"""
    delegates: Annotated[tuple[Digest, ...], msgspec.Meta(max_length=8)]
    """digests of the keys that may take over, the first to step in first"""


class Serve(Message, frozen=True, tag=21):
    """Keep the snapshot of this version, please, and hand it to peers that ask."""

    version: Version


class Holding(Message, frozen=True, tag=22):
    """A worker has the snapshot of this version and serves it."""

    version: Version


class Latest(Message, frozen=True, tag=23):
    """Who has signed updates beyond this version?"""

    version: Version


class Reached(Message, frozen=True, tag=24):
    """The answer to Latest: how far a peer got, and the epoch of its last update."""

    version: Version
    epoch: Count


class Entrust(Message, frozen=True, tag=25):
    """To a delegate: the run's secret, encrypted for its session."""

    box: Annotated[bytes, msgspec.Meta(max_length=256)]


AnyMessage = (
    Epoch
    | Beat
    | Update
    | Hello
    | Welcome
    | Task
    | Result
    | Refusal
    | Acknowledge
    | Credit
    | CatchUp
    | Manifest
    | ChunkRequest
    | Chunk
    | Status
    | Bye
    | Notice
    | Who
    | Here
    | Charter
    | Serve
    | Holding
    | Latest
    | Reached
    | Entrust
)

TYPES: tuple[type[Message], ...] = get_args(AnyMessage)


_NUMBERS: dict[type[Message], Any] = {kind: kind.__struct_config__.tag for kind in TYPES}
_BY_NUMBER: dict[int, Any] = {number: kind for kind, number in _NUMBERS.items()}


def encode(message: Message) -> bytes:
    """The message's bytes; the largest allowed is checked where it is sent."""
    return pack(msgspec.to_builtins(message, builtin_types=(bytes,)))


def decode(data: bytes) -> AnyMessage:
    """The message of bytes from anyone, every field within its bounds. Raises `WireError`."""
    raw = unpack(data)
    if not isinstance(raw, list) or not raw or not isinstance(raw[0], int):
        raise WireError("a message is an array that begins with its type's number")
    kind = _BY_NUMBER.get(raw[0])
    if kind is None:
        raise WireError(f"no message has the number {raw[0]}: a newer peer may have sent it")
    try:
        message: AnyMessage = msgspec.convert(raw, kind, builtin_types=(bytes,))
    except msgspec.ValidationError as error:
        raise WireError(str(error)[:LONGEST_MISTAKE]) from None
    if isinstance(message, Update):
        _check_update(message)
    if isinstance(message, Update | Epoch):
        _check_judged(message.judged)
    if isinstance(message, Task):
        _check_names(message.acknowledged)
    if isinstance(message, Acknowledge):
        _check_names(message.results)
    return message


def _check_update(update: Update) -> None:
    numbers = (update.scale, update.learning_rate, update.sigma, *update.scalars)
    if not all(map(math.isfinite, (*numbers, *update.amendments.values()))):
        raise WireError("scale, learning rate, sigma, scalars and amendments must be finite")
    if len(update.state_digest) not in (0, 16):
        raise WireError("the digest of a state has 16 bytes")


def _check_names(names: tuple[ResultName, ...]) -> None:
    if any(isinstance(name, tuple) and name[1] > MAX_TASK_DIRECTIONS for name in names):
        raise WireError(f"a part begins within the {MAX_TASK_DIRECTIONS} units of a lease at most")


def _check_judged(judged: tuple[Judged, ...]) -> None:
    if not all(math.isfinite(value) for e in judged for value in (e.mean, e.deviation)):
        raise WireError("mean and deviation of an evaluation must be finite")


def result_arrays(
    result: Result, members_per_direction: int = 2
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Checked returns and lengths of a result: (count, members_per_direction), (count,) for the
    centre.

    A return is finite, except NaN for the directions named in `failed`. Raises `WireError`.
    """
    members = result.kind == "members"
    shape = (result.count, members_per_direction) if members else (result.count,)
    expected = math.prod(shape)
    returns = unpack_reals(result.returns, expected)
    lengths = unpack_integers(result.lengths, expected)
    if returns.size != expected or lengths.size != expected:
        sizes = f"{returns.size} returns and {lengths.size} lengths"
        raise WireError(f"{sizes} where {expected} were asked for")
    returns, lengths = returns.reshape(shape), lengths.reshape(shape)
    if not result.failed:
        _check_arrays(returns, lengths)
        return returns, lengths
    missing = np.zeros(result.count, dtype=bool)
    for direction, _ in result.failed:
        if not result.first <= direction < result.first + result.count:
            raise WireError(f"failed direction {direction} is not of the task")
        missing[direction - result.first] = True
    if not np.all(np.isnan(returns[missing])):
        raise WireError("a failed direction carries a return")
    if lengths.min() < 0 or lengths.max() > LONGEST:
        raise WireError(_NO_LENGTH)
    if not missing.all():
        _check_arrays(returns[~missing], lengths[~missing])
    return returns, lengths


def _check_arrays(returns: NDArray[np.float64], lengths: NDArray[np.int64]) -> None:
    """Those of episodes that did not fail, some at least. Raises `WireError`."""
    if not np.abs(returns).max() <= LARGEST_RETURN:  # NaN is the largest, and not below anything
        raise WireError(f"a return is NaN or infinite, or beyond +-{LARGEST_RETURN:g}")
    if lengths.min() < 1 or lengths.max() > LONGEST:
        raise WireError(_NO_LENGTH)


def pack_returns(returns: NDArray[np.float64], lengths: NDArray[np.int64]) -> tuple[bytes, bytes]:
    """The `returns` and `lengths` fields of a result, row by row: +, -, +, - where members are
    mirrored."""
    return pack_reals(returns.ravel()), pack_integers(lengths.ravel())
