"""Who is here: sessions, their measured share of the pool's speed, and who waits for work."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterator, KeysView
from dataclasses import dataclass, field

from coordinator.pool.events import SessionId
from coordinator.pool.sizing import Pace
from coordinator.pool.work import Lease
from protocol.messages import ResultName

MOST_TASKS = 64
"""Tasks that a session may hold at once, whatever credit it gives."""
ACKNOWLEDGED_AT_ONCE = 256
"""Results that one message acknowledges at most."""
LONGEST_REST = 60.0
"""Seconds that a session which keeps failing is left alone at most."""


@dataclass(slots=True, eq=False)
class Session:
    """What the pool knows of a session."""

    id: SessionId
    credit: int
    """tasks that it wants to hold at once; 0 while it pauses"""
    pace: Pace
    heard: float
    limit: int = MOST_TASKS
    """tasks that it may hold: halved by each lease not returned, regained one by one"""
    leases: dict[int, Lease] = field(default_factory=dict)
    earned: int = 1
    """tasks that it may hold before its speed is measured: as many as it took up again, which it
    was given by who had measured it"""
    last_result: float = 0.0
    unacknowledged: list[ResultName] = field(default_factory=list)
    rests_until: float = 0.0
    """no task before this time: it failed one just now"""
    failures: int = 0
    """consecutive own failures"""
    members: int = 0
    """members that counted"""
    stands_by: bool = False
    """it is no worker"""
    queue: OrderedDict[SessionId, Session] | None = None
    """where it waits for work"""

    @property
    def spare(self) -> int:
        """Tasks that it can take now: as a rule a single one until its speed is measured."""
        limit = self.limit if self.pace.measured else self.earned
        return (limit if limit < self.credit else self.credit) - len(self.leases)

    def take_unacknowledged(self) -> tuple[ResultName, ...]:
        """Take the accepted results that the session is to be told of now."""
        results = tuple(self.unacknowledged[:ACKNOWLEDGED_AT_ONCE])
        del self.unacknowledged[:ACKNOWLEDGED_AT_ONCE]
        return results

    @property
    def room(self) -> int:
        """Tasks beside those it has that it may hold where it is known to have earned them."""
        return min(self.limit, self.credit) - len(self.leases)

    @property
    def speed(self) -> float:
        """Environment steps per second."""
        return self.pace.speed


class Roster:
    """The sessions, and what is summed up over them so that no event has to look at them all."""

    def __init__(self) -> None:
        self.sessions: dict[SessionId, Session] = {}
        self.idle: OrderedDict[SessionId, Session] = OrderedDict()
        """sessions without a task that could take one, who waits longest first"""
        self.roomy: OrderedDict[SessionId, Session] = OrderedDict()
        """sessions with a task and room for another, likewise"""
        self.owed: dict[SessionId, Session] = {}
        """sessions with results that are not acknowledged yet"""
        self.workers = 0
        """sessions of workers"""
        self._eligible: dict[str, int] = {}
        self._takers = 0
        self._weights: dict[SessionId, float] = {}
        self._speed = 0.0
        self._resting: list[tuple[float, int, Session]] = []
        self._rests = 0

    @property
    def eligible(self) -> KeysView[str]:
        """The workers with a session that takes work."""
        return self._eligible.keys()

    def roomy_workers(self) -> frozenset[str]:
        """The workers that could take a task now."""
        return frozenset(id.worker for queue in (self.idle, self.roomy) for id in queue)

    def enter(
        self, id: SessionId, credit: int, speed: float, now: float, stands_by: bool = False
    ) -> Session:
        """A new session that declares its speed."""
        session = self.sessions[id] = Session(id, 0, Pace(speed), now, stands_by=stands_by)
        self.workers += not stands_by
        self.set_credit(session, credit)
        return session

    def leave(self, id: SessionId) -> Session | None:
        """Forget a session: it, or None if it was not here."""
        session = self.sessions.pop(id, None)
        if session is not None:
            self.workers -= not session.stands_by
            self.set_credit(session, 0)
            self._queue(session, None)
            self.owed.pop(id, None)
        return session

    def set_credit(self, session: Session, credit: int) -> None:
        """How many tasks the session wants to hold."""
        change = (credit > 0) - (session.credit > 0)
        session.credit = credit
        if change:
            worker = session.id.worker
            count = self._eligible.get(worker, 0) + change
            if count:
                self._eligible[worker] = count
            else:
                del self._eligible[worker]
            self._takers += change
        self.reweigh(session)

    def reweigh(self, session: Session) -> None:
        """Take a changed speed into account."""
        self._speed -= self._weights.pop(session.id, 0.0)
        if session.credit > 0 and session.pace.measured:
            self._weights[session.id] = session.speed
            self._speed += session.speed
        if not self._weights:
            self._speed = 0.0  # what rounding left

    def share(self, session: Session) -> float:
        """Its part of the speed of all who take work, in 0 .. 1.

        Who was not measured counts as average, whatever speed it declared.
        """
        takers = max(1, self._takers)
        if not session.pace.measured or self._speed <= 0.0:
            return 1.0 / takers
        return min(1.0, session.speed / self._speed * len(self._weights) / takers)

    def rest(self, session: Session, until: float) -> None:
        """No work for the session before that time."""
        session.rests_until = until
        self._queue(session, None)
        self._rests += 1
        heapq.heappush(self._resting, (until, self._rests, session))

    def wake(self, now: float) -> None:
        """Whose rest is over waits for work again; who left has no credit."""
        while self._resting and self._resting[0][0] <= now:
            self.note_room(heapq.heappop(self._resting)[2], now)

    def note_room(self, session: Session, now: float) -> None:
        """Queue the session for work, last, if it has room for it."""
        if session.spare <= 0 or now < session.rests_until:
            self._queue(session, None)
        else:
            self._queue(session, self.roomy if session.leases else self.idle)

    def _queue(self, session: Session, queue: OrderedDict[SessionId, Session] | None) -> None:
        if session.queue is not None and session.queue is not queue:
            del session.queue[session.id]
        session.queue = queue
        if queue is not None:
            queue[session.id] = session
            queue.move_to_end(session.id)

    def silent(self, now: float, seconds: float) -> Iterator[Session]:
        """The sessions not heard for longer than that."""
        return iter([s for s in self.sessions.values() if now - s.heard > seconds])
