"""What a daemon and its evaluation processes say to each other, and the frames that carry it.

A frame is its length (4 bytes, little-endian) and a msgpack array whose first element is the
message's number. Both ends are of one installation, so there is nothing to negotiate; what a child
says is bounded and checked all the same, since environments run beside it.
"""

from __future__ import annotations

from typing import Annotated, BinaryIO

import msgspec

from protocol.messages import MAX_FAILURE_REASON, MAX_LANES, TaskKind
from protocol.packing import MAX_MESSAGE, WireError
from protocol.spec import LONGEST_EPISODE, MAX_STATISTICS, RunSpec

HEADER = 4
REQUEST_LIMIT = MAX_MESSAGE + MAX_STATISTICS
"""Bytes of the largest request: a run spec fits a message, statistics fit what they are made of."""

REASON_LENGTH = 1000
"""Characters of why something came to nothing."""

Columns = tuple[bytes, bytes, bytes, bytes]
"""Of `Normalization`."""
Reason = Annotated[str, msgspec.Meta(max_length=REASON_LENGTH)]


class Message(msgspec.Struct, frozen=True, array_like=True):
    """Base of all messages."""


class Configure(Message, frozen=True, tag=1):
    """The run to evaluate, and the modules that may register its environment; first, and again
    where the run that was evaluated is over and the next has the same environment."""

    spec: bytes
    allowed: tuple[str, ...]
    share: float
    """of a core that evaluation may use"""
    device: str = "cpu"
    """as the volunteer asked for it"""
    trial: int = 0
    """which directions are tried out; see `probe`"""
    lanes: int = 0
    """that the volunteer asks for; 0: as many as suit"""
    longest: int = LONGEST_EPISODE
    """steps of an episode that the volunteer lets be played"""
    memory: int = 0
    """bytes that the process may take; 0: as many as there are"""


class Theta(Message, frozen=True, tag=2):
    """Where the parameters of a version lie, to be kept until they are dropped; see `Shared`."""

    version: int
    path: str
    inode: int
    size: int
    """how many"""
    normalization: Columns | None
    """mean, inverse deviation as float32; shift, scale as float64"""


class Drop(Message, frozen=True, tag=3):
    """A version that will not be asked for again."""

    version: int


class Evaluate(Message, frozen=True, tag=4):
    """A job or a part of one, answered by one `Evaluated` after the other until each direction was
    in one, or by `Failed`. Of several that were asked for, each is begun after those before it."""

    part: int
    kind: TaskKind
    version: int
    first: int
    count: int
    episodes: int
    sigma: float
    cap: int
    per_direction: int


class Cancel(Message, frozen=True, tag=5):
    """Stop a part that was asked for: what is finished of it comes, then `Failed`."""

    part: int


class Ready(Message, frozen=True, tag=1):
    """The answer to `Configure`."""

    speed: Annotated[float, msgspec.Meta(ge=0.0)]
    """environment steps per second, measured on a few short episodes, as far as the share goes"""
    numeric_class: Annotated[bytes, msgspec.Meta(max_length=16)]
    """16 bytes, or none where the environment does not repeat itself"""
    remark: Reason = ""
    """a line on how the policy is computed, for people"""
    lanes: Annotated[int, msgspec.Meta(ge=1, le=MAX_LANES)] = 1
    together: bool = False
    """whether few of them take about as long as all"""


class Unavailable(Message, frozen=True, tag=2):
    """The other answer to `Configure`: why this machine can't run the environment."""

    reason: Reason


class Evaluated(Message, frozen=True, tag=3):
    """What the next directions of a part gave; see `Evaluation`. Said about once a second."""

    part: int
    first: int
    """of these directions"""
    returns: bytes
    lengths: bytes
    observed: bytes
    failed: tuple[tuple[int, Annotated[str, msgspec.Meta(max_length=MAX_FAILURE_REASON)]], ...]


class Failed(Message, frozen=True, tag=4):
    """Why a part, or the rest of it, came to nothing."""

    part: int
    reason: Reason


class Alive(Message, frozen=True, tag=5):
    """Said about once a second while nothing is finished, so that a hang shows."""


class Unread(Message, frozen=True, tag=6):
    """The parameters of a version were not where they should be; why is said where they are asked
    for."""

    version: int


Request = Configure | Theta | Drop | Evaluate | Cancel
Reply = Ready | Unavailable | Evaluated | Failed | Alive | Unread

_requests: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
_replies: msgspec.msgpack.Decoder[Reply] = msgspec.msgpack.Decoder(Reply)


def frame(message: Request | Reply) -> bytes:
    """The frame of a message."""
    body = msgspec.msgpack.encode(message)
    return len(body).to_bytes(HEADER, "little") + body


def length(header: bytes, limit: int) -> int:
    """Bytes of the body behind a header. Raises `WireError` above `limit`."""
    size = int.from_bytes(header, "little")
    if size > limit:
        raise WireError(f"a frame of {size:,} bytes where {limit:,} are the most")
    return size


def reply(body: bytes) -> Reply:
    """The reply in a frame. Raises `WireError`."""
    try:
        return _replies.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise WireError(f"not a reply ({error})") from None


def read_request(stream: BinaryIO) -> Request | None:
    """The next request, or None at the end of the stream. Raises `WireError`."""
    header = stream.read(HEADER)
    if len(header) < HEADER:
        return None
    size = length(header, REQUEST_LIMIT)
    body = stream.read(size)
    if len(body) < size:
        return None
    try:
        return _requests.decode(body)
    except msgspec.DecodeError as error:
        raise WireError(f"not a request ({error})") from None


def reply_limit(spec: RunSpec, directions: int) -> int:
    """Bytes of the largest reply: all directions failed, observation sums at their widest."""
    return 4096 + 1024 * directions + 64 * spec.environment.observation.size
