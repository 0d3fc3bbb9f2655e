"""What the volunteer sees of a session at one moment, as plain figures."""

from __future__ import annotations

from dataclasses import dataclass


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
    given: int = 0
    """bytes that peers got from us"""
    idle_because: str = ""
