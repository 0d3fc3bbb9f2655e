"""What is to be done next in a sweep, by what its runs have come to; pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from coordinator.sweep.file import Stop
from coordinator.sweep.judging import Verdict, halving, median
from coordinator.sweep.measures import Aim, Curve, so_far
from coordinator.sweep.points import Point

State = Literal["pending", "running", "finished", "stopped", "failed"]
"""Of a run: `running` from its beginning to its end, whoever leads it at the moment; `stopped`:
before its end, because its point was, or by a person. Of a point: as its runs."""


@dataclass(slots=True)
class Trained:
    """A run of a point, as far as it is known.

    Attributes:
        why: it failed, or was stopped.
        run: its id, once it has begun.
        curve: evaluations of its centre.
    """

    seed: int
    state: State = "pending"
    why: str = ""
    run: str = ""
    curve: Curve = ()

    @property
    def over(self) -> bool:
        """Whether it is not gone on with."""
        return self.state in ("finished", "stopped", "failed")


@dataclass(slots=True)
class Tried:
    """A point with its runs, one for each seed, and the versions of its rungs."""

    number: int
    point: Point
    runs: list[Trained]
    rungs: Sequence[int] = ()

    def state(self, verdict: Verdict) -> State:
        """How it stands."""
        states = {run.state for run in self.runs}
        if states == {"failed"}:
            return "failed"
        if verdict.stopped is not None:
            return "stopped"
        if states <= {"finished", "failed"}:
            return "finished"
        if states <= {"finished", "failed", "stopped"}:
            return "stopped"
        return "pending" if states == {"pending"} else "running"

    def why(self, verdict: Verdict) -> str:
        """Why it failed, or was stopped; of several seeds the first."""
        if self.state(verdict) == "stopped" and verdict.stopped is not None:
            return f"worse than others at update {self.rungs[verdict.stopped]:,}"
        return next((run.why for run in self.runs if run.why), "")


@dataclass(frozen=True, slots=True)
class Turn:
    """A run that may go on: until its centre at `until` is judged; None: to its end."""

    tried: Tried
    run: Trained
    until: int | None


def verdicts(tried: Sequence[Tried], stop: Stop | None, aim: Aim) -> list[Verdict]:
    """What becomes of each point."""
    if stop is None:
        return [Verdict(0)] * len(tried)
    values = [[_value(each, version, aim) for version in each.rungs] for each in tried]
    if stop.rule == "halving":
        return halving(values, stop.rungs, stop.factor)
    return median(values, stop.rungs, stop.least)


def turns(tried: Sequence[Tried], judged: Sequence[Verdict]) -> Iterator[Turn]:
    """The runs that may go on now, in the order in which they should."""
    for each, verdict in zip(tried, judged, strict=True):
        if verdict.stopped is not None:
            continue
        until = each.rungs[verdict.goal] if verdict.goal < len(each.rungs) else None
        for run in each.runs:
            if not run.over and not _is_there(run, until):
                yield Turn(each, run, until)


def under_way(tried: Sequence[Tried], judged: Sequence[Verdict]) -> bool:
    """Whether some points are not over."""
    states = {each.state(verdict) for each, verdict in zip(tried, judged, strict=True)}
    return bool(states & {"pending", "running"})


def _is_there(run: Trained, until: int | None) -> bool:
    return until is not None and bool(run.curve) and run.curve[-1].version >= until


def _value(tried: Tried, version: int, aim: Aim) -> float | None:
    """What a point is worth at a version: the mean of its seeds', without those that failed, or
    that a person stopped before it."""
    known = []
    for run in tried.runs:
        if run.state == "failed":
            continue
        value = so_far(run.curve, version, aim, run.state == "finished")
        if value is not None:
            known.append(value)
        elif not run.over:
            return None
    return fmean(known) if known else math.nan
