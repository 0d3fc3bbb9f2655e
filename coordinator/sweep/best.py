"""The spec of a sweep's best point, as a run file that says where it comes from."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

import msgspec

from coordinator.directory import spec_in
from coordinator.sweep.file import SweepError
from coordinator.sweep.report import Row
from coordinator.sweep.trained import has_begun
from protocol import spec as run_spec
from protocol.figures import shown

if TYPE_CHECKING:
    from coordinator.sweep.sweep import Sweep


def spec_of(sweep: Sweep, named: str | None) -> str:
    """The run file of the best point that is over, or of that with a name. Raises `ShoalError`."""
    rows = sweep.rows()
    if named is None:
        row = next((row for row in rows if row.state == "finished" and row.summary.count), None)
        if row is None:
            raise SweepError(
                f"no point of {sweep.directory} is finished: wait, or name one with --point"
            )
    else:
        row = next((row for row in rows if row.point == named), None)
        if row is None:
            raise SweepError(
                f"--point {named[:60]!r}: {sweep.directory} has no such point; shoal sweep status "
                "lists them"
            )
    runs = (sweep.directory_of(row.point, seed) for seed in row.seeds)
    begun = next((run for run in runs if has_begun(run)), None)
    if begun is None:
        raise SweepError(f"point {row.point} was not begun ({row.why or row.state}): take another")
    spec = msgspec.structs.replace(spec_in(begun), name=sweep.said.name)
    text = run_spec.to_toml(spec)
    if spec.policy.kind == "module":  # its first parameters are made anew
        text = re.sub(r"^initial(isation|_digest) = .*\n", "", text, flags=re.MULTILINE)
    return "".join(f"# {line}\n" for line in _about(sweep, row)) + text


def _about(sweep: Sweep, row: Row) -> list[str]:
    """Where the spec comes from, and what it was worth."""
    found = row.summary
    worth = f"{sweep.aim.metric} {shown(found.mean)}" if found.count else row.state
    if math.isfinite(found.half):
        worth += f" (95 % interval {shown(found.low)} to {shown(found.high)})"
    seeds = f"{found.count} of {len(row.seeds)} seeds"
    return [f"Point {row.point} of the sweep {sweep.said.name}: {worth}, {seeds}.", row.label]
