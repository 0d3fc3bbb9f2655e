"""How a sweep may grow: by points and by seeds, and by nothing else; pure."""

from __future__ import annotations

from collections.abc import Sequence

from coordinator.sweep.file import SweepError, SweepFile
from coordinator.sweep.planning import Trained, Tried
from coordinator.sweep.points import Point

GROWING = ("grid", "random", "list", "points", "seeds", "sampler")
"""Fields of a sweep file that may say more than before."""


def refuse_other(before: SweepFile, after: SweepFile) -> None:
    """Raises `SweepError` where a file says anything else of the runs that there are."""
    for field in SweepFile.__struct_fields__:
        if field not in GROWING and getattr(before, field) != getattr(after, field):
            raise SweepError(
                f"--file has another `{field}` than the sweep: it grows by points and seeds alone; "
                "give a new sweep another --dir"
            )
    if (before.sampled == "tpe") != (after.sampled == "tpe"):
        raise SweepError(f"--file has sampler = {after.sampled!r}, the sweep {before.sampled!r}")
    if after.sampled == "tpe" and before.random != after.random:
        raise SweepError(
            "--file has another `random` than the sweep, whose sampler = 'tpe' learns from all "
            "that it drew: give it more `points` or seeds, or a new sweep another --dir"
        )
    if gone := [seed for seed in before.all_seeds if seed not in after.all_seeds]:
        raise SweepError(
            f"--file leaves out the seed {gone[0]}, which the sweep has: give it back, and more"
        )


def new_points(points: Sequence[Point], tried: Sequence[Tried]) -> list[Point]:
    """Those that the sweep does not have; what it has and they have not, it keeps."""
    known = {each.point.name for each in tried}
    return [point for point in points if point.name not in known]


def new_runs(seeds: Sequence[int], tried: Tried) -> list[Trained]:
    """Of a point that the sweep has. Where its spec is wrong they fail as the others did."""
    known = {run.seed for run in tried.runs}
    wrong = not any(run.run for run in tried.runs) and all(
        run.state == "failed" for run in tried.runs
    )
    state, why = ("failed", tried.runs[0].why) if wrong else ("pending", "")
    return [Trained(seed, state, why) for seed in seeds if seed not in known]  # type: ignore[arg-type]
