"""What the volunteer sees of a session at one moment, as plain figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class RunView:
    """One of the runs that a worker serves.

    Attributes:
        wanted: the share of the time that it is to have while all have tasks, 0 to 1.
        had: the share that it had in the last minutes.
        core_seconds: that it had since it was joined.
        done: tasks evaluated of it.
    """

    run: str
    wanted: float
    had: float
    core_seconds: float = 0.0
    done: int = 0
    episodes: int = 0
    version: int = 0
    idle_because: str = ""


@dataclass(frozen=True, slots=True)
class View:
    """Counts since the start; `idle_because` is empty while something is being evaluated."""

    version: int = 0
    running: int = 0
    waiting: int = 0
    done: int = 0
    """tasks evaluated"""
    episodes: int = 0
    steps: int = 0
    accepted: int = 0
    """results that the coordinator took, or took late, or had already, or refused"""
    late: int = 0
    duplicate: int = 0
    refused: int = 0
    unanswered: int = 0
    counted: int = 0
    """updates in which a result of ours counted"""
    share: float = 0.0
    """of the members of all updates since our first task, 0 to 1"""
    given: int = 0
    """bytes that peers got from us"""
    idle_because: str = ""
    paused: str = ""
    """why no tasks are taken, empty while they are"""
    leaving: str = field(default="", compare=False)
    """what is still to be done before we leave, empty while we stay"""
    starting: bool = False
    """whether evaluation has still to begin for the first time"""
    next_in: float | None = field(default=None, compare=False)
    """seconds until the next update, by the pace so far, where it is what we wait for"""
    seconds_left: float | None = field(default=None, compare=False)
    """until the tasks at hand are finished, by the pace so far"""
    runs: tuple[RunView, ...] = field(default=(), compare=False)
    """of a worker that takes part in all it finds; empty where it was told which run to join"""


NOW = ("running", "waiting", "unanswered")
"""What ends with a run."""
SUMS = (
    *NOW,
    "done",
    "episodes",
    "steps",
    "accepted",
    "late",
    "duplicate",
    "refused",
    "counted",
    "given",
)
"""Figures of several runs that add up."""


def added(*views: View) -> dict[str, Any]:
    """The figures that add up, by their names."""
    return {name: sum(getattr(view, name) for view in views) for name in SUMS}


def together(views: Sequence[View]) -> View:
    """Several runs as one: busy where one of them is. What only one can tell is left out."""
    if len(views) == 1:
        return views[0]
    busy = any(view.running for view in views)
    lefts = [view.seconds_left for view in views if view.running]
    known = [left for left in lefts if left is not None]
    return View(
        **added(*views),
        idle_because="" if busy else _common([view.idle_because for view in views]),
        paused=next((view.paused for view in views if view.paused), ""),
        leaving=next((view.leaving for view in views if view.leaving), ""),
        starting=any(view.starting for view in views),
        seconds_left=sum(known) if len(known) == len(lefts) and known else None,
    )


def over(view: View) -> View:
    """What remains of a run that is left."""
    return View(**(added(view) | dict.fromkeys(NOW, 0)))


def _common(reasons: Sequence[str]) -> str:
    """Why nothing is evaluated in any run."""
    different = dict.fromkeys(reasons)
    return next(iter(different), "") if len(different) < 2 else "waiting for a task of any run"
