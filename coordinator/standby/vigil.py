"""Whether a run's leader lives, and when it is our turn to lead in its place; pure."""

from __future__ import annotations

from protocol.messages import Beat

STEP = 2.0
"""Seconds between the turns of two ranks: enough for the first to announce itself."""
HEAD_START = 1.0
"""Seconds by which the run key's turn comes before the first delegate's."""
LAPSE = 1.0
"""Seconds between two ticks after which we must have been asleep ourselves."""
PROOF_PATIENCES = 6.0
"""Beats are unsigned: for so many patiences they count as life without anything signed."""

_LAST_WORDS = ("lost", "finished")


class Vigil:
    """Waits for a silence that lasts. It counts only while we could have heard something."""

    def __init__(self, patience: float) -> None:
        """`patience`: seconds without a beat after which the first delegate steps in."""
        self._patience = patience
        self._epoch = 0
        self._beat_at: float | None = None
        self._proof_at = 0.0
        self._ticked_at: float | None = None

    def connected(self, now: float) -> None:
        """We can hear the run from now on."""
        self._beat_at = self._proof_at = now

    def disconnected(self) -> None:
        """We can't."""
        self._beat_at = None

    def tick(self, now: float) -> None:
        """We are awake; to be called often."""
        slept = self._ticked_at is not None and now - self._ticked_at > LAPSE
        if slept and self._beat_at is not None:
            self.connected(now)
        self._ticked_at = now

    def outdone(self, epoch: int) -> None:
        """Whoever led an epoch before this one leads no more."""
        self._epoch = max(self._epoch, epoch)

    def proved(self, epoch: int, now: float) -> None:
        """Whoever leads that epoch signed something new."""
        if epoch >= self._epoch and self._beat_at is not None:
            self._epoch = epoch
            self._beat_at = self._proof_at = now

    def beat(self, beat: Beat, now: float) -> bool:
        """Whether this beat is a sign of life. One of an earlier epoch is none."""
        if beat.epoch < self._epoch or beat.phase in _LAST_WORDS or self._beat_at is None:
            return False
        if now - self._proof_at > PROOF_PATIENCES * self._patience:
            return False
        self._beat_at = now
        return True

    def wants_proof(self, now: float) -> bool:
        """Whether only beats were heard for so long that the leader should be asked."""
        return self._beat_at is not None and now - self._proof_at > 2.0 * self._patience

    def silence(self, now: float) -> float:
        """Seconds since the last sign of life that we could have heard; 0 while we can't."""
        return 0.0 if self._beat_at is None else now - self._beat_at

    def turn(self, rank: int, now: float) -> bool:
        """Whether the leader has been silent until it is this rank's turn."""
        return self.silence(now) > turn_after(rank, self._patience)


def turn_after(rank: int, patience: float) -> float:
    """Seconds of silence after which it is a rank's turn: 0 the run key, 1 the first delegate."""
    return patience + STEP * (rank - 1) if rank > 0 else max(patience - HEAD_START, 0.5 * patience)
