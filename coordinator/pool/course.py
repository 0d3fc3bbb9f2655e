"""How far the run is, as all parts of the pool see it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Course:
    """The course of a run: `machine` moves it on, the others look."""

    version: int
    """of the parameters that members are evaluated at"""
    updating: bool = False
    """the update of the open batch is being made"""
    reverts: bool = False
    """that update restores the accepted version"""
    closed_at: float = 0.0
    """when the last batch was closed"""
    update_seconds: float = 0.0
    """that the last update took"""
    final: str | None = None
    """why no update is made any more; None while more are to come"""
    ended: bool = False
    deaf: bool = False
    """nobody can be heard"""
    strained: str = ""
    """why nothing new is leased; empty while it is"""
    paused: str = ""
    """why the host wants nothing new leased; empty while it does"""
    gathers_until: float | None = None
    """until when only leases of earlier epochs are taken up; None: no more"""

    def close(self, now: float, *, reverts: bool = False) -> None:
        """The open batch is closed: its update is being made."""
        self.updating = True
        self.reverts = reverts
        self.closed_at = now

    def reach(self, version: int, now: float) -> None:
        """The update is made."""
        self.version = version
        self.updating = False
        self.update_seconds = now - self.closed_at

    def update_in(self, now: float) -> float:
        """Seconds that an update takes, or that the one which is being made still takes, as far as
        the last one tells."""
        done = now - self.closed_at if self.updating else 0.0
        return max(0.0, self.update_seconds - done)

    @property
    def leases(self) -> bool:
        """Whether anything new may be leased."""
        held = self.strained or self.paused
        return not (self.ended or self.deaf or held or self.gathers_until is not None)

    @property
    def open_index(self) -> int:
        """Index of the batch that the next update will close."""
        return self.version + self.updating
