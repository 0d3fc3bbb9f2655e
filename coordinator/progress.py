"""What a person who watches a run wants to know: how it stands, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.pool.events import CentreJudged
from protocol.messages import RunState


@dataclass(slots=True)
class Progress:
    """How a run stands now."""

    version: int = 0
    workers: int = 0
    episodes: int = 0
    """episodes that counted, the centre's included"""
    steps: int = 0
    mean: float = float("nan")
    """of the members of the last update"""
    centre: CentreJudged | None = None
    wire_bytes: int = 0
    """for tasks, results, acknowledgements and updates"""
    busy: str = ""
    """why the coordinator does not keep up; empty while it does"""

    @property
    def wire_bytes_per_episode(self) -> float:
        """Bytes for tasks, results, acknowledgements and updates, per episode that counted."""
        return self.wire_bytes / self.episodes if self.episodes else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """How a run ended, or that it waits, and what it returns."""

    state: RunState
    reached: bool
    reason: str
    version: int
    """that is returned"""
    updates: int
    centre: CentreJudged | None
    """the last evaluation of the returned version"""
    params_hash: str
    progress: Progress
