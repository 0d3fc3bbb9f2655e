"""What the volunteer sees of a session at one moment, as plain figures."""

from __future__ import annotations

from dataclasses import dataclass, field


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
