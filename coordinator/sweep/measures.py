"""What a run and a point are worth, by the evaluations of the centre; pure."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from coordinator.pool.confidence import lowest, margin, merit
from coordinator.sweep.file import TO_TARGET, Metric


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One of a run's centre, as its log has it.

    Attributes:
        mean, deviation: of the returns.
        episodes: that it took.
        full: whether all were asked for.
        used: members' episodes that counted until this version.
    """

    version: int
    mean: float
    deviation: float
    episodes: int
    full: bool
    used: int


Curve = Sequence[Evaluation]
"""In the order of versions."""


@dataclass(frozen=True, slots=True)
class Aim:
    """What runs are measured by: the metric, and the target with its confidence, if there is one;
    see `StopSpec`."""

    metric: Metric
    target: float | None = None
    confidence: float = 0.0

    @property
    def less_is_better(self) -> bool:
        """Whether the metric counts what something took."""
        return self.metric in TO_TARGET


@dataclass(frozen=True, slots=True)
class Summary:
    """Some seeds together.

    Attributes:
        count: of seeds that have a value.
        mean: of these; NaN where there is none.
        half: half the width of the 95 % interval of the mean over seeds; infinite for one seed.
    """

    count: int
    mean: float
    half: float

    @property
    def low(self) -> float:
        """Where the interval begins."""
        return self.mean - self.half

    @property
    def high(self) -> float:
        """Where it ends."""
        return self.mean + self.half


def worth(curve: Curve, aim: Aim) -> float | None:
    """What a run that is over is worth by the metric; None where it has not come to that."""
    if not curve:
        return None
    match aim.metric:
        case "final":
            return curve[-1].mean
        case "best":
            return _best(curve).mean
        case "updates-to-target":
            reached = _reached(curve, aim)
            return None if reached is None else float(reached.version)
        case "episodes-to-target":
            reached = _reached(curve, aim)
            return None if reached is None else float(reached.used)


def so_far(curve: Curve, version: int, aim: Aim, over: bool) -> float | None:
    """What a run is worth at a version, more is better: the mean return of its centre there, or
    before that where it was `over` by then; of the metric `best` the best so far.

    None where the run has not been there.
    """
    count = bisect_right(curve, version, key=lambda each: each.version)
    there = over or (bool(curve) and curve[-1].version >= version)
    if not there or not count:
        return None
    return _best(curve[:count]).mean if aim.metric == "best" else curve[count - 1].mean


def summary(values: Sequence[float]) -> Summary:
    """Some seeds together."""
    if not values:
        return Summary(0, math.nan, math.nan)
    deviation = stdev(values) if len(values) > 1 else 0.0
    return Summary(len(values), fmean(values), margin(deviation, len(values)))


def _best(curve: Curve) -> Evaluation:
    """That by which `best.safetensors` is chosen, too; of equals the first."""
    return max(curve, key=lambda each: merit(each.mean, each.deviation, each.episodes))


def _reached(curve: Curve, aim: Aim) -> Evaluation | None:
    """The first that meets the target."""
    if aim.target is None:
        return None
    for each in curve:
        low = lowest(each.mean, each.deviation, each.episodes, aim.confidence)
        if each.full and low >= aim.target:
            return each
    return None
