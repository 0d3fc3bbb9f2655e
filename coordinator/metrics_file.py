"""Reads what `metrics.jsonl` of a run told last, whoever writes it meanwhile."""

from __future__ import annotations

import os
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
