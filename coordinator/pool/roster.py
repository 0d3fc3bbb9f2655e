"""Who is here: sessions, their measured share of the pool's speed, and who waits for work."""

from __future__ import annotations

import heapq
import math
from collections import OrderedDict
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple, TypeVar

from coordinator.pool.events import SessionId
from coordinator.pool.sizing import Pace
from coordinator.pool.work import Lease
from protocol.messages import ResultName

MOST_TASKS = 64
"""Tasks that a session may hold at once, whatever credit it gives."""
ACKNOWLEDGED_AT_ONCE = 256
"""Results that one message acknowledges at most."""
AMONG = 8
"""Waiting sessions that are compared when a fast one is wanted: bounds what an event costs."""
VOUCHED_FOR_TASKS = 2
"""Tasks at once of who is vouched for, until its speed is measured: the second hides a round
trip."""
LONGEST_REST = 60.0
"""Seconds that a session which keeps failing is left alone at most."""
MOST_LOSSES = 7
"""Losses in a row after which one more makes nothing worse."""
MOST_REMEMBERED = 4096
"""Workers whose bad standing outlives their sessions, at most."""
REMEMBERED_SECONDS = 3600.0
"""For how long it does."""
MOST_MERIT = 16
"""Results that counted which a worker may come back on: whoever is cut off as often between two of
them is new again."""
MOST_VOUCHED_FOR = 10_000
"""Workers whose merit is remembered, at most, for as long as bad standing is."""


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
    """tasks that it may hold before its speed is measured: more than one where it is vouched for,
    or took up as many again, which it was given by who had measured it"""
    last_result: float = 0.0
    overran: int = 0
    """the last task whose lease ran out: the session may still be at it"""
    fed: float = 0.0
    """when it was last given a task, or came"""
    unacknowledged: list[ResultName] = field(default_factory=list)
    rests_until: float = 0.0
    """no task before this time: it failed one just now"""
    rest: float = 0.0
    """seconds that this rest lasts"""
    failures: int = 0
    """consecutive own failures"""
    losses: int = 0
    """tasks in a row that it lost: their leases ran out, or it vanished with them; several at one
    moment are one"""
    lost_at: float = -math.inf
    trouble: str = ""
    """why it failed or lost its last task that did not come back"""
    proven: bool = False
    """it has returned a task, or is vouched for"""
    vouched_for: bool = False
    """it has returned nothing yet; earlier sessions of its worker had"""
    merit: int = 0
    """results of it that counted"""
    weight: float = 0.0
    """its part of the speed that is summed up; 0 while it takes no work or was not measured"""
    unkept: int = 0
    """accepted results of it that may still be lost"""
    stands_by: bool = False
    """it is no worker"""
    numeric: bytes = b""
    """its numeric class; empty: none"""
    lanes: int = 0
    """episodes that take about as long together as a few of them, as it declares; 0: it has none"""
    queue: OrderedDict[SessionId, Session] | None = None
    """where it waits for work"""

    @property
    def spare(self) -> int:
        """Tasks that it can take now: as a rule a single one until its speed is measured."""
        spare = self.limit if self.proven and self.pace.measured else self.earned
        if spare > self.credit:
            spare = self.credit
        if spare > MOST_TASKS - self.unkept:
            spare = MOST_TASKS - self.unkept
        return spare - len(self.leases)

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


class Merit(NamedTuple):
    """What the work of a worker is still worth when it comes back."""

    at: float
    results: int


class Standing(NamedTuple):
    """What outlives the sessions of a worker that failed or lost its tasks."""

    at: float
    rests_until: float
    trouble: str
    limit: int
    failures: int
    losses: int


class Roster:
    """The sessions, and what is summed up over them so that no event has to look at them all."""

    def __init__(self) -> None:
        self.sessions: dict[SessionId, Session] = {}
        self.idle: OrderedDict[SessionId, Session] = OrderedDict()
        """sessions without a task that could take one, who waits longest first"""
        self.newcomers: OrderedDict[SessionId, Session] = OrderedDict()
        """likewise those that have returned nothing yet: however many they are, nobody else waits
        behind them"""
        self.roomy: OrderedDict[SessionId, Session] = OrderedDict()
        """sessions with a task and room for another, likewise"""
        self.owed: dict[SessionId, Session] = {}
        """sessions with results that are not acknowledged yet"""
        self.workers = 0
        """sessions of workers"""
        self._eligible: dict[str, int] = {}
        self.eligible = self._eligible.keys()
        """the workers with a session that takes work"""
        self._takers = 0
        self.trying = 0
        """sessions at their first task, not overdue with it"""
        self.known_takers = 0
        """sessions that take work and have returned some"""
        self._measured = 0
        """sessions with a weight"""
        self._speed = 0.0
        self.typical_speed = 0.0
        """environment steps per second of the average worker; 0 while none is measured"""
        self.speed = 0.0
        """of all who take work, those not measured counted as average; 0 while nobody is"""
        self._resting: list[tuple[float, int, Session]] = []
        self._listening: list[tuple[float, int, Session]] = []
        self._entered = 0
        """what tells entries of one time apart"""
        self._roomy: dict[str, int] = {}
        self.roomy_workers = self._roomy.keys()
        """the workers that could take a task now"""
        self._standings: OrderedDict[str, Standing] = OrderedDict()
        self._merits: OrderedDict[str, Merit] = OrderedDict()
        """of workers that left; a hello costs nothing, so only results that counted are worth
        anything, and each vouches for a single session"""

    @property
    def waits(self) -> bool:
        """Whether anybody could take a task and has none."""
        return bool(self.idle or self.newcomers)

    def enter(
        self, id: SessionId, credit: int, speed: float, now: float, stands_by: bool = False
    ) -> Session:
        """A new session that declares its speed; its worker's standing is what it was."""
        session = self.sessions[id] = Session(id, 0, Pace(speed), now, fed=now, stands_by=stands_by)
        self.workers += not stands_by
        standing = self._standings.get(id.worker)
        if standing is not None and now - standing.at < REMEMBERED_SECONDS:
            session.limit = standing.limit
            session.failures, session.losses = standing.failures, standing.losses
            if standing.rests_until > now:
                self.rest(session, now, standing.rests_until - now, standing.trouble)
        if self._vouch(id.worker, now):
            session.proven = session.vouched_for = True
            session.earned = VOUCHED_FOR_TASKS
        self.set_credit(session, credit)
        self._listen(session)
        return session

    def leave(self, session: Session, now: float) -> None:
        """Forget a session that is here, but neither how its worker stands nor what it did."""
        del self.sessions[session.id]
        self.workers -= not session.stands_by
        self.set_credit(session, 0)
        self._queue(session, None)
        self.owed.pop(session.id, None)
        self._remember(session, now)

    def _remember(self, session: Session, now: float) -> None:
        worker, standings = session.id.worker, self._standings
        if session.failures or session.losses:
            standings[worker] = Standing(
                now,
                session.rests_until,
                session.trouble,
                session.limit,
                session.failures,
                session.losses,
            )
            standings.move_to_end(worker)
        elif session.proven and not session.vouched_for:
            standings.pop(worker, None)
        _forget(standings, MOST_REMEMBERED, now)
        if session.merit:
            merits = self._merits
            results = merits[worker].results if worker in merits else 0
            merits[worker] = Merit(now, min(results + session.merit, MOST_MERIT))
            merits.move_to_end(worker)
            _forget(merits, MOST_VOUCHED_FOR, now)

    def _vouch(self, worker: str, now: float) -> bool:
        """Whether a worker that comes did something before, which vouches for it this once."""
        merit = self._merits.get(worker)
        if merit is None or now - merit.at >= REMEMBERED_SECONDS:
            return False
        if merit.results > 1:
            self._merits[worker] = Merit(merit.at, merit.results - 1)
        else:
            del self._merits[worker]
        return True

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
            self.known_takers += change * session.proven
        self.reweigh(session)

    def reweigh(self, session: Session) -> None:
        """Take a changed speed into account."""
        pace, before = session.pace, session.weight
        weight = session.weight = pace.speed if session.credit > 0 and pace.measured else 0.0
        measured = self._measured
        if not before or not weight:
            measured += (weight > 0.0) - (before > 0.0)
            self._measured = measured
        if measured:
            self._speed = speed = self._speed + (weight - before)
            self.typical_speed = speed / measured
        else:
            self._speed = self.typical_speed = 0.0  # and not what rounding left
        known = self.known_takers
        self.speed = self.typical_speed * (known + self.trying if known else self._takers)

    def share(self, session: Session) -> float:
        """Its part of the speed of all who take work, in 0 .. 1: of newcomers only those at work
        are counted, where others are here.

        Who was not measured counts as average, whatever speed it declared.
        """
        pace, known = session.pace, self.known_takers
        takers = (known + self.trying if known else self._takers) or 1
        if not pace.measured or self._speed <= 0.0:
            return 1.0 / takers
        share = pace.speed / self._speed * self._measured / takers
        return share if share < 1.0 else 1.0

    def fastest_waiting(self, session: Session) -> Session:
        """The fastest of this session and the first that wait without a task."""
        fastest = session
        for waiting in islice(self.idle.values(), AMONG):
            if waiting.pace.measured and waiting.speed > fastest.speed:
                fastest = waiting
        return fastest

    def failed(self, session: Session, reason: str, now: float) -> None:
        """The session failed a task: it rests, twice as long each time."""
        session.failures += 1
        self.rest(session, now, min(LONGEST_REST, 2.0 ** min(session.failures, 16)), reason)

    def lost(self, session: Session, reason: str, now: float) -> None:
        """The session lost tasks at this moment: from the second time on it rests, as one does that
        fails."""
        if session.lost_at == now:
            return
        session.lost_at = now
        session.losses = min(session.losses + 1, MOST_LOSSES)
        if session.losses > 1:
            self.rest(session, now, min(LONGEST_REST, 2.0 ** (session.losses - 1)), reason)

    def returned(self, session: Session, known: bool = True) -> None:
        """The session returned a task: it earns back what it lost, one by one. Unless its worker is
        `known`, it stays among the newcomers."""
        session.vouched_for = False
        if known and not session.proven:
            session.proven = True
            self.known_takers += session.credit > 0
        if session.limit < MOST_TASKS:
            session.limit += 1
        session.failures = 0
        if session.losses:
            self.found(session)

    def distrust(self, session: Session) -> None:
        """The session is among the newcomers again."""
        session.vouched_for = False
        if session.proven:
            session.proven = False
            self.known_takers -= session.credit > 0
            self._queue(session, None)
            self.reweigh(session)
        self._merits.pop(session.id.worker, None)
        session.merit = 0

    def found(self, session: Session) -> None:
        """What the session lost last is not lost."""
        session.losses = max(0, session.losses - 1)

    def rest(self, session: Session, now: float, seconds: float, why: str) -> None:
        """No work for the session for so long, or longer where it rests already."""
        if now + seconds <= session.rests_until:
            return
        session.rests_until, session.rest, session.trouble = now + seconds, seconds, why
        self._queue(session, None)
        self._entered += 1
        heapq.heappush(self._resting, (session.rests_until, self._entered, session))

    def wake(self, now: float) -> None:
        """Whose rest is over waits for work again; who left has no credit."""
        while self._resting and self._resting[0][0] <= now:
            self.note_room(heapq.heappop(self._resting)[2], now)

    def note_room(self, session: Session, now: float) -> None:
        """Queue the session for work, last, if it has room for it."""
        self.note_spare(session, session.spare, now)

    def note_spare(self, session: Session, spare: int, now: float) -> None:
        """Likewise, where it is known how many tasks it can take."""
        if spare <= 0 or now < session.rests_until:
            if session.queue is not None:
                self._queue(session, None)
            return
        waiting = self.idle if session.proven else self.newcomers
        queue = self.roomy if session.leases else waiting
        if queue is session.queue:
            queue.move_to_end(session.id)
        else:
            self._queue(session, queue)

    def _queue(self, session: Session, queue: OrderedDict[SessionId, Session] | None) -> None:
        """Let the session wait elsewhere, last, or nowhere."""
        id, before = session.id, session.queue
        session.queue = queue
        if before is not None:
            del before[id]
        if queue is not None:
            queue[id] = session
        if (before is None) != (queue is None):
            worker = id.worker
            count = self._roomy.get(worker, 0) + (1 if before is None else -1)
            if count:
                self._roomy[worker] = count
            else:
                del self._roomy[worker]

    def _listen(self, session: Session) -> None:
        self._entered += 1
        heapq.heappush(self._listening, (session.heard, self._entered, session))

    def silent(self, now: float, seconds: float) -> list[Session]:
        """The sessions not heard for longer than that, each told once."""
        found = []
        while self._listening and now - self._listening[0][0] > seconds:
            session = heapq.heappop(self._listening)[2]
            if self.sessions.get(session.id) is not session:
                continue
            if now - session.heard > seconds:
                found.append(session)
            else:
                self._listen(session)
        return found


Remembered = TypeVar("Remembered", Merit, Standing)


def _forget(remembered: OrderedDict[str, Remembered], most: int, now: float) -> None:
    """Keep the latest, at most so many and for so long."""
    while remembered and (
        len(remembered) > most or now - next(iter(remembered.values())).at >= REMEMBERED_SECONDS
    ):
        remembered.popitem(last=False)
