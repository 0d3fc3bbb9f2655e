"""The return curves of runs, of one or of several seeds together, with intervals; pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from coordinator.pool.confidence import USUAL, margin

AXES: Mapping[str, tuple[str, str]] = {
    "version": ("version", "version"),
    "episodes": ("episodes", "episodes of members"),
    "steps": ("env_steps", "environment steps of members"),
    "time": ("seconds", "seconds since the start"),
}
"""What runs may be compared by: the field of an update's line, and what it is called."""
KINDS = {"members": "update", "centre": "centre"}
"""Whose return may be shown: that of the perturbed policies, or of the unperturbed one."""


@dataclass(frozen=True, eq=False)
class Curve:
    """A run's returns, or the mean of some runs'.

    Attributes:
        x, mean: shape (points,), x not falling.
        half: shape (points,), half the width of the 95 % interval of each mean; NaN where one value
            tells nothing of it.
    """

    x: NDArray[np.float64]
    mean: NDArray[np.float64]
    half: NDArray[np.float64]


def of_run(lines: Sequence[Mapping[str, Any]], what: str, by: str) -> Curve:
    """The curve that a run's lines of metrics tell; empty where they tell none.

    Its interval is that of the mean over members or episodes. A version that was evaluated more
    than once, or made again after a restart, counts as it was told last.

    Args:
        what: one of `KINDS`.
        by: one of `AXES`.
    """
    field, _ = AXES[by]
    places = _places(lines, field)
    counted = {"members": "members", "centre": "episodes"}[what]
    points: dict[int, tuple[float, float, float]] = {}
    for line in lines:
        version, mean = line.get("version"), line.get("mean_return")
        if line.get("kind") != KINDS[what] or version not in places or not _number(mean):
            continue
        deviation, count = line.get("return_deviation"), line.get(counted)
        half = math.nan
        if _number(deviation) and isinstance(count, int) and count > 1:
            half = margin(float(deviation), count, USUAL)
        points[version] = places[version], float(mean), half
    table = np.array([points[version] for version in sorted(points)]).reshape(-1, 3)
    return Curve(*table.T)


def of_seeds(curves: Sequence[Curve]) -> Curve:
    """The mean of runs that differ by their seed alone, with Student's interval over the runs.

    From where the last of them begins to where the first one ends, so that all count everywhere;
    between two points of a run it goes straight.
    """
    curves = [curve for curve in curves if curve.x.size]
    if len(curves) < 2:
        return curves[0] if curves else Curve(*np.empty((3, 0)))
    begin = max(curve.x[0] for curve in curves)
    end = min(curve.x[-1] for curve in curves)
    x = np.unique(np.concatenate([curve.x for curve in curves]))
    x = x[(x >= begin) & (x <= end)]
    values = np.array([np.interp(x, curve.x, curve.mean) for curve in curves])
    deviations = values.std(axis=0, ddof=1)
    half = np.array([margin(float(one), len(curves), USUAL) for one in deviations])
    return Curve(x, values.mean(axis=0), half)


def _places(lines: Sequence[Mapping[str, Any]], field: str) -> dict[int, float]:
    """Where on the axis each version lies: version 0, which no update made, at 0."""
    places = {0: 0.0}
    for line in lines:
        if line.get("kind") == "update" and _number(line.get(field)):
            places[line["version"]] = float(line[field])
    return places


def _number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and math.isfinite(value)
