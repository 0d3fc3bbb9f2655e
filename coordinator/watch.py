"""Watches how well the coordinator keeps up, and has less asked of it where it does not."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from itertools import count

from coordinator.peers import Peers
from coordinator.pool.events import Event, Relaxed, SessionId, Strained
from coordinator.progress import Progress
from coordinator.strain import Load, SlowDown, Strain
from coordinator.turns import Turns
from coordinator.voice import Voice
from protocol.clock import now
from protocol.link import Link

WATCH_SECONDS = 0.5
"""Between two looks."""
PING_EVERY = 4
"""Looks between two questions to the broker, which tell how slow it is."""


class Watch:
    """Looks at the figures, tells pool and host what they mean, and asks workers to slow down.

    Attributes:
        late: seconds that a timer was late at most since the last look.
        unkept: accepted results that are not on disk yet.
    """

    def __init__(
        self,
        link: Link,
        turns: Turns,
        sessions: Iterable[SessionId],
        peers: Peers,
        voice: Voice,
        progress: Progress,
        decide: Callable[[Event], None],
        say: Callable[[str], None],
    ) -> None:
        """`sessions` are the pool's, to which `decide` passes events."""
        self.late = 0.0
        self.unkept = 0
        self._strain = Strain()
        self._slow_down = SlowDown(random.Random())
        self._link = link
        self._turns = turns
        self._sessions = sessions
        self._peers = peers
        self._voice = voice
        self._progress = progress
        self._decide = decide
        self._say = say

    async def run(self) -> None:
        """Watch for ever."""
        for number in count():
            await asyncio.sleep(WATCH_SECONDS)
            if number % PING_EVERY == 0:
                self._link.ping()
            self._look()
            if self._strain.asks:
                self._ask()

    def _look(self) -> None:
        strain, was_busy, held = self._strain, self._strain.busy, self._strain.holds
        load = Load(
            self.late,
            max(0.0, self._link.answers_after - self.late),  # else it may be us who were late
            self._link.unsent,
            self.unkept,
            len(self._turns),
        )
        strain.look(load, now())
        self.late = 0.0
        self._progress.busy = strain.busy
        if bool(strain.holds) != bool(held):
            self._decide(Strained(strain.holds) if strain.holds else Relaxed())
        if strain.busy and not was_busy:
            self._say(f"busy: {strain.busy}")
        elif was_busy and not strain.busy:
            self._say("no longer busy")

    def _ask(self) -> None:
        for id, seconds in self._slow_down.due(self._sessions, now()):
            peer = self._peers.get(id)
            if peer is not None:
                self._voice.slow_down(peer, seconds, self._strain.busy)
