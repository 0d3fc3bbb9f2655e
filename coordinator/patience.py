"""How much a session may say before it is not listened to for a moment; pure."""

from __future__ import annotations

from coordinator.pool.events import SessionId
from protocol.allowance import Allowance

PER_SECOND, AT_ONCE = 1_000.0, 5_000.0
"""Messages of one session: the fastest honest workers with the smallest tasks say some hundreds."""
REFUSED = 20.0
"""As so many messages counts a result that is refused: it costs more, and is seldom
of an honest worker."""
TOLD_EVERY = 60.0
"""Seconds between two lines about one session."""
MOST = 20_000
"""Sessions that are remembered: as many as there can be, here and gone."""


class Patience:
    """Counts what sessions said that was proved to be theirs.

    What others say in a session's name is not counted: else whoever may write there, at a broker
    without rules, would have the session overheard. It is counted by session and not by key: who
    comes anew for it gains nothing over who forges, which costs us two thirds as much and is at
    nobody's cost, and keys are free. What bounds all is the broker and the line.
    """

    def __init__(self) -> None:
        self._allowances: dict[SessionId, Allowance] = {}
        self._told: dict[SessionId, float] = {}

    def listens(self, id: SessionId, now: float) -> bool:
        """Whether to look at what comes on a session's topic."""
        found = self._allowances.get(id)
        return found is None or not found.delay(now)

    def heard(self, id: SessionId, now: float, cost: float = 1.0) -> bool:
        """The session said something; whether to tell people that it says too much."""
        found = self._allowances.get(id)
        if found is None:
            if len(self._allowances) >= MOST:
                oldest = next(iter(self._allowances))
                del self._allowances[oldest]
                self._told.pop(oldest, None)
            found = self._allowances[id] = Allowance(PER_SECOND, AT_ONCE)
            found.delay(now)
        found.overdraw(cost)
        if not found.delay(now) or now - self._told.get(id, -TOLD_EVERY) < TOLD_EVERY:
            return False
        self._told[id] = now
        return True
