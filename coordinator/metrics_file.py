"""Reads what `metrics.jsonl` of a run has told, whoever writes it meanwhile."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from protocol.kept_json import DamagedJson, read_json

METRICS = "metrics.jsonl"
MOST_BYTES = 4 << 20
LONGEST_LINE = 64 << 10
"""Bytes: so far back the end of the last whole line is looked for."""


def decoded(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """What lines say, in order. Damaged ones are left out: the last one of a host that was killed,
    and what is torn by where one began to read."""
    for line in lines:
        with contextlib.suppress(DamagedJson):
            yield read_json(line, dict[str, Any])


def all_lines(directory: Path) -> Iterator[dict[str, Any]]:
    """All of a run's directory, in order. Raises `OSError`."""
    with (directory / METRICS).open("rb") as file:
        yield from decoded(file)


def last_lines(directory: Path, most: int = MOST_BYTES) -> list[dict[str, Any]]:
    """The lines in the last so many bytes, in order; none of a file that is not there."""
    with contextlib.suppress(OSError):
        return list(decoded(tail(directory / METRICS, most).splitlines()))
    return []


def latest_update(directory: Path) -> dict[str, Any]:
    """The last line about an update; empty where there is none."""
    lines = reversed(last_lines(directory, LONGEST_LINE))
    return next((line for line in lines if line.get("kind") == "update"), {})


def amended(directory: Path) -> dict[str, float]:
    """The settings that hold otherwise than the run spec says, as the lines tell that were written
    when they changed."""
    held: dict[str, float] = {}
    with contextlib.suppress(OSError), (directory / METRICS).open("rb") as file:
        for line in file:
            if b'"amendments"' in line:
                with contextlib.suppress(DamagedJson):
                    held.update(read_json(line, _Amending).amendments)
    return held


def mend(directory: Path) -> None:
    """Take away the end of a line that its writer did not live to finish. Raises `OSError`."""
    file = directory / METRICS
    with contextlib.suppress(FileNotFoundError):
        last = tail(file, LONGEST_LINE)
        if torn := len(last) - last.rfind(b"\n") - 1:
            os.truncate(file, file.stat().st_size - torn)


def tail(file: Path, most: int) -> bytes:
    """The last so many bytes. Raises `OSError`."""
    with file.open("rb") as opened:
        opened.seek(max(0, opened.seek(0, os.SEEK_END) - most))
        return opened.read(most)


@dataclass(frozen=True)
class _Amending:
    """A line that tells of changed settings."""

    amendments: dict[str, float]
