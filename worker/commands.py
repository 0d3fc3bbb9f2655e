"""What a session wants done: by the daemon that runs it, one after the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from protocol.spec import RunSpec
from worker.evaluation.jobs import EvaluationJob
from worker.replica import Apply, Begin, Forget, Restore
from worker.serving import Discard, Freeze, Keep

if TYPE_CHECKING:
    from worker.following import Point


@dataclass(frozen=True, slots=True)
class Send:
    """Publish a payload."""

    topic: str
    payload: bytes
    qos: int


@dataclass(frozen=True, slots=True)
class StartEvaluation:
    """Start the evaluation processes; answered by `can_evaluate` or `cannot_evaluate`."""

    spec: RunSpec


@dataclass(frozen=True, slots=True, eq=False)
class Evaluate:
    """Evaluate a task; answered by `evaluated`, where it takes long once for each part, or by
    `evaluation_failed` for the rest of it."""

    task: int
    job: EvaluationJob
    point: Point


@dataclass(frozen=True, slots=True)
class Abandon:
    """Stop evaluating a task; answered by `evaluated` with what is finished of it, if anything,
    and then by `abandoned`."""

    task: int


@dataclass(frozen=True, slots=True)
class Say:
    """A line for the volunteer; a warning is shown even to who wants quiet."""

    text: str
    warning: bool = False


@dataclass(frozen=True, slots=True)
class CompareClocks:
    """Tell the volunteer how this machine's clock compares with the host's, in seconds since
    1970."""

    theirs: int


@dataclass(frozen=True, slots=True)
class Leave:
    """End the process with this exit code, after what was sent has left."""

    code: int
    text: str


Command = (
    Send
    | StartEvaluation
    | Evaluate
    | Abandon
    | Say
    | CompareClocks
    | Leave
    | Begin
    | Apply
    | Restore
    | Forget
    | Freeze
    | Keep
    | Discard
)
