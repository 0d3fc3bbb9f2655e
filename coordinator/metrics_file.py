"""Reads what `metrics.jsonl` of a run told last, whoever writes it meanwhile."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from protocol.kept_json import DamagedJson, read_json

MOST_BYTES = 4 << 20


def last_lines(directory: Path, most: int = MOST_BYTES) -> list[dict[str, Any]]:
    """The lines in the last so many bytes, in order; damaged ones, and a file that is not there,
    are left out."""
    try:
        with (directory / "metrics.jsonl").open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - most))
            data = file.read(most)
    except OSError:
        return []
    lines = data.splitlines()
    if size > most:
        del lines[:1]
    found = []
    for line in lines:
        try:
            found.append(read_json(line, dict[str, Any]))
        except DamagedJson:  # the last one, of a host that was killed
            continue
    return found


def amended(directory: Path) -> dict[str, float]:
    """The settings that hold otherwise than the run spec says, as the lines tell that were written
    when they changed."""
    held: dict[str, float] = {}
    try:
        with (directory / "metrics.jsonl").open("rb") as file:
            for line in file:
                if b'"amendments"' in line:
                    with contextlib.suppress(DamagedJson):
                        held.update(read_json(line, _Amending).amendments)
    except OSError:
        return held
    return held


@dataclass(frozen=True)
class _Amending:
    """A line that tells of changed settings."""

    amendments: dict[str, float]
