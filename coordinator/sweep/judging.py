"""Which points of a sweep go on and which are stopped: functions of their returns alone; pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median as middle

Values = Sequence[float | None]
"""Of a point: what it was worth at each rung, more is better; None: it has not been there. NaN: it
failed, and is compared with nobody."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of a point.

    Attributes:
        goal: the rung that it may go to now, and wait there; the number of rungs: to its end.
        stopped: the rung at which it was found to be among the worst; None: it was not.
    """

    goal: int
    stopped: int | None = None


def halving(points: Sequence[Values], rungs: int, factor: int) -> list[Verdict]:
    """Successive halving: all go to the first rung, the best of each `factor` from there to the
    next, and the best of the last rung to the end. Of equals the first are better.

    Jamieson and Talwalkar, Non-stochastic Best Arm Identification and Hyperparameter Optimization
    (2016).
    """
    verdicts = [Verdict(rungs)] * len(points)
    alive = list(range(len(points)))
    for rung in range(rungs):
        there = [(index, points[index][rung]) for index in alive]
        if any(value is None for _, value in there):
            for index in alive:
                verdicts[index] = Verdict(rung)
            return verdicts
        judged = [(index, value) for index, value in there if not _failed(value)]
        best_first = sorted(judged, key=lambda one: (-_known(one[1]), one[0]))
        kept = {index for index, _ in best_first[: math.ceil(len(best_first) / factor)]}
        for index, _ in judged:
            if index not in kept:
                verdicts[index] = Verdict(rung, stopped=rung)
        alive = sorted(kept)
    return verdicts


def median(points: Sequence[Values], rungs: int, least: int) -> list[Verdict]:
    """The median rule: a point stops at a rung where it is worse than the median of those before
    it, if at least so many of them were there.

    Golovin et al., Google Vizier: A Service for Black-Box Optimization (2017); compared with the
    points before it alone, so that it does not matter who is faster: until all of them have been
    there, or were stopped, nothing is decided.
    """
    verdicts: list[Verdict] = []
    for index, values in enumerate(points):
        stopped = None
        for rung in range(rungs):
            value = values[rung]
            if value is None or _failed(value):
                break
            before = [
                points[other][rung]
                for other in range(index)
                if _was_there(verdicts[other], rung) and not _failed(points[other][rung])
            ]
            if any(other is None for other in before):
                break
            if len(before) >= least and value < middle(map(_known, before)):
                stopped = rung
                break
        verdicts.append(Verdict(rungs if stopped is None else stopped, stopped))
    return verdicts


def rung_versions(rule: str, rungs: int, factor: int, length: int, every: int) -> list[int]:
    """The versions at which a run of `length` updates is compared, whose centre is evaluated
    `every` so many, in their order.

    Of `halving` each is `factor` times as late as the one before, and the end the same after the
    last; of `median` they are as far from one another.
    """
    if rule == "halving":
        shares = [factor ** (rung - rungs) for rung in range(rungs)]
    else:
        shares = [(rung + 1) / (rungs + 1) for rung in range(rungs)]
    return [min(length, every * math.ceil(share * length / every)) for share in shares]


def _was_there(verdict: Verdict, rung: int) -> bool:
    """Whether a point was not stopped before the rung."""
    return verdict.stopped is None or verdict.stopped >= rung


def _failed(value: float | None) -> bool:
    return value is not None and math.isnan(value)


def _known(value: float | None) -> float:
    assert value is not None
    return value
