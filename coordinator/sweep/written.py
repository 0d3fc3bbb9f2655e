"""What a sweep leaves for its reader: the table in CSV and JSON, and pictures."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from coordinator.sweep import pictures, report
from coordinator.sweep.file import SweepError
from protocol.disk import write_whole

if TYPE_CHECKING:
    from coordinator.sweep.sweep import Sweep

CSV, JSON, PLOTS = "report.csv", "report.json", "plots"


def told(sweep: Sweep) -> dict[str, Any]:
    """The sweep for programs; nothing in it depends on when or by whom it was trained."""
    return {
        "name": sweep.said.name,
        "base": sweep.said.base,
        "metric": sweep.aim.metric,
        "target": sweep.aim.target,
        "less_is_better": sweep.aim.less_is_better,
        "over": sweep.over,
        "points": [row.to_json() for row in sweep.rows()],
    }


def write(sweep: Sweep) -> list[str]:
    """Write all of it into the sweep's directory; lines that say where it is, or what it lacks.

    Raises `SweepError`.
    """
    directory, rows = sweep.directory, sweep.rows()
    try:
        write_whole(directory / CSV, report.to_csv(rows).encode())
        write_whole(directory / JSON, (json.dumps(told(sweep), indent=1) + "\n").encode())
    except OSError as error:
        raise SweepError(
            f"{directory} can't take the report ({error.strerror or error}): see to the disk, then "
            f"shoal sweep status {directory} --csv"
        ) from None
    lines = [f"table in {directory / CSV} and {directory / JSON}"]
    try:
        written = pictures.draw(rows, sweep.aim, directory / PLOTS, "png")
    except SweepError as error:
        return [*lines, str(error)]
    return [*lines, f"{len(written)} pictures in {directory / PLOTS}"]
