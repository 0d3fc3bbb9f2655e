"""The words between a worker and the commands `shoal worker`: JSON lines, bounded. Pure.

A client writes one line and gets one line; after that of `policy` come so many raw bytes of a
policy file. Neither side believes the other anything but what these types say.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from protocol.errors import ShoalError
from protocol.kept_json import DamagedJson, read_json
from worker.spans import LONGEST
from worker.view import View

LONGEST_LINE = 64 * 1024
"""Bytes of a request or an answer."""
LONGEST_RUN = 64
"""Characters of a run's name."""
LARGEST_POLICY = 1 << 32
"""Bytes of a policy file."""

Word = Literal["status", "pause", "resume", "finish", "leave", "policy"]
Text = Annotated[str, msgspec.Meta(max_length=1000)]


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a volunteer wants of a running worker; `seconds`: of a pause, None until resumed; `run`:
    whose policy, where it serves several."""

    word: Word
    seconds: Annotated[float, msgspec.Meta(gt=0.0, le=LONGEST)] | None = None
    run: Annotated[str, msgspec.Meta(max_length=LONGEST_RUN)] = ""


class Report(msgspec.Struct, frozen=True):
    """How a worker is: `seconds` since it began, rates as in its live line."""

    name: Text
    pid: int
    worker: Text
    run: Text
    broker: Text
    seconds: float
    view: View
    evaluations_per_second: float = 0.0
    steps_per_second: float = 0.0


class Answer(msgspec.Struct, frozen=True):
    """What a worker says to a request.

    Attributes:
        text: a line for the volunteer.
        error: why not; empty where it was done.
        report: where the status was asked for.
        size: bytes that follow.
    """

    text: Text = ""
    error: Text = ""
    report: Report | None = None
    size: Annotated[int, msgspec.Meta(ge=0, le=LARGEST_POLICY)] = 0


class ControlError(ShoalError):
    """A worker can't be asked, or says no."""


def line_of(message: Request | Answer) -> bytes:
    """A message as it is written."""
    return msgspec.json.encode(message) + b"\n"


def request(line: bytes) -> Request:
    """A request as it was read. Raises `ControlError`."""
    try:
        return read_json(line, Request)
    except DamagedJson as error:
        raise ControlError(f"not a request of `shoal worker`: {error}") from None


def answer(line: bytes) -> Answer:
    """An answer as it was read. Raises `ControlError`."""
    try:
        return read_json(line, Answer)
    except DamagedJson as error:
        raise ControlError(
            f"not an answer of a worker ({error}): is it of the same version as this command?"
        ) from None
