"""What a worker has for its peers, and whose turn it is: snapshots and signed updates. Pure.

Anybody may ask for anything, any number of times. So a joiner has one request outstanding, of which
only the last counts; joiners are served in turn; there are few at a time; and all together get no
more than the volunteer grants.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from protocol.allowance import Allowance
from protocol.envelope import plain
from protocol.messages import CHUNK, CatchUp, Chunk, ChunkRequest, Holding, Latest, Reached

if TYPE_CHECKING:
    from protocol.frozen import Frozen
    from protocol.state import State
    from worker.replica import Followed, Restored

WINDOW = 8
"""Chunks that one request gets at most."""
KEPT = 2
"""Snapshots that are held at least; older ones until nobody asks for them any more."""
KEEP_FOR = 60.0
"""Seconds after its last request after which an older snapshot is let go."""
MOST_HELD = 4
"""Snapshots that are held at most, whatever is asked for; of the older ones those of whom
somebody has asked last."""
MOST_WISHES = 4
"""Versions to come that the coordinator wants us to hold."""
UPDATES_KEPT = 64
UPDATES_BYTES = 4 << 20
"""Signed updates that are kept: the last ones, within both bounds."""
MOST_JOINERS = 16
"""Joiners that are served at a time, where the limit gives each of them a chunk in good time."""
CHUNK_WITHIN = 2.0
"""Seconds within which every joiner must get its next chunk: patience ends soon after."""
MOST_REPLIES = 8
"""Questions for our version whose answer is still to be said."""
REPLY_WITHIN = 0.3
"""Seconds over which peers spread their answers to such a question, which all of them hear."""
REPLIES_PER_SECOND = 4.0


@dataclass(frozen=True, slots=True, eq=False)
class Freeze:
    """Keep a state as a snapshot on disk; answered by `held`, or by `not_held`."""

    state: State


@dataclass(frozen=True, slots=True, eq=False)
class Keep:
    """Keep the bytes of a state, likewise."""

    version: int
    data: bytes | memoryview


@dataclass(frozen=True, slots=True)
class Discard:
    """Let go of a snapshot on disk."""

    version: int


@dataclass(frozen=True, slots=True)
class Answer:
    """Tell a peer."""

    joiner: str
    message: Reached


Deed = Freeze | Keep | Discard | Answer | Holding


@dataclass(frozen=True, slots=True, eq=False)
class ChunkTurn:
    """A joiner gets a chunk of a snapshot."""

    joiner: str
    frozen: Frozen
    index: int

    def payload(self) -> bytes:
        """What it gets, read from disk. Raises `FrozenError`."""
        return plain(Chunk(self.frozen.version, self.index, self.frozen.chunk(self.index)))


@dataclass(frozen=True, slots=True, eq=False)
class UpdateTurn:
    """A joiner gets a signed update."""

    joiner: str
    update: bytes

    def payload(self) -> bytes:
        """What it gets."""
        return self.update


Turn = ChunkTurn | UpdateTurn


@dataclass(slots=True)
class _Held:
    frozen: Frozen
    asked_at: float = float("-inf")


@dataclass(slots=True)
class _Order:
    """What a joiner still gets: chunks of `frozen`, or else updates, `next` up to `end`."""

    frozen: Frozen | None
    next: int
    end: int
    since: float
    """when the joiner began to wait for its turn"""


class Serving:
    """What we have for others.

    Attributes:
        limit: bytes per second for everybody together; 0: nobody gets anything.
        given: bytes that peers got so far.
    """

    def __init__(self, limit: float, random: Random) -> None:
        self.limit = limit
        self._random = random
        self._allowance = Allowance(limit, max(limit, CHUNK))
        self._answers = Allowance(REPLIES_PER_SECOND, REPLIES_PER_SECOND)
        self._most_joiners = max(1, min(MOST_JOINERS, int(limit * CHUNK_WITHIN / CHUNK)))
        self._held: dict[int, _Held] = {}
        self._wishes: set[int] = set()
        self._freezing = False
        self._void = False
        self._updates: dict[int, bytes] = {}
        self._updates_bytes = 0
        self._epoch = 0
        self._orders: dict[str, _Order] = {}
        self._replies: dict[str, tuple[float, int]] = {}
        self.given = 0

    @property
    def holdings(self) -> list[Holding]:
        """What to tell a coordinator that may not know."""
        return [Holding(version) for version in self._held]

    # What we come to have.

    def wish(self, version: int, state: State | None) -> list[Deed]:
        """The coordinator wants us to hold a version; `state` is where we are.

        One that is passed can't be had any more, and one that comes by a snapshot is held anyway.
        """
        if not self.limit:
            return []
        if version in self._held:
            return [Holding(version)]
        if state is not None and state.version == version:
            return self._freeze(state)
        if state is None or version > state.version:
            self._wishes.add(version)
            if len(self._wishes) > MOST_WISHES:
                self._wishes.remove(min(self._wishes))
        return []

    def followed(self, step: Followed) -> list[Deed]:
        """A signed update brought us to a version."""
        if not self.limit:
            return []
        reached = step.state.version
        if reached - 2 not in self._updates:
            self._forget_updates()
        self._updates[reached - 1] = step.payload
        self._updates_bytes += len(step.payload)
        self._epoch = step.update.epoch
        while len(self._updates) > UPDATES_KEPT or self._updates_bytes > UPDATES_BYTES:
            self._updates_bytes -= len(self._updates.pop(min(self._updates)))
        wished = reached in self._wishes
        self._wishes = {version for version in self._wishes if version > reached}
        return self._freeze(step.state) if wished else []

    def restored(self, step: Restored) -> list[Deed]:
        """A snapshot brought us to a version: who got it can pass it on."""
        self._wishes = {version for version in self._wishes if version > step.version}
        if not self.limit or self._freezing:
            return []
        self._freezing = True
        return [Keep(step.version, step.data)]

    def held(self, frozen: Frozen, now: float) -> list[Deed]:
        """A snapshot is on disk."""
        void, self._freezing, self._void = self._void, False, False
        if void:
            return [Discard(frozen.version)]
        self._held[frozen.version] = _Held(frozen)
        return [*self._retire(now), Holding(frozen.version)]

    def not_held(self) -> None:
        """The disk would not take it."""
        self._freezing = self._void = False

    def dropped(self) -> list[Deed]:
        """Our state was not the run's: nothing that we have can be relied on."""
        self._forget_updates()
        self._orders.clear()
        self._void = self._freezing
        old, self._held = self._held, {}
        return [Discard(version) for version in old]

    # Who wants it.

    def asked(self, joiner: str, request: ChunkRequest | CatchUp | Latest, now: float) -> None:
        """A peer, or whoever says so, wants something."""
        if not self.limit:
            return
        if isinstance(request, Latest):
            self._ask_latest(joiner, request.version, now)
            return
        order = self._order(request, now)
        if order is None:
            return
        before = self._orders.get(joiner)
        if before is not None:
            order.since = before.since
        elif len(self._orders) >= self._most_joiners or self._is_slow(now):
            return
        self._orders[joiner] = order

    def tick(self, now: float) -> list[Deed]:
        """Time passed: answers that are due, snapshots that are not wanted any more."""
        deeds = self._retire(now)
        reached = max(self._updates, default=-1) + 1
        for joiner, (due, version) in list(self._replies.items()):
            if now >= due:
                del self._replies[joiner]
                if reached > version:
                    deeds.append(Answer(joiner, Reached(reached, self._epoch)))
        return deeds

    def delay(self, now: float) -> float | None:
        """Seconds until somebody may get something; None: nobody waits."""
        return self._allowance.delay(now) if self._orders else None

    def turn(self, now: float) -> Turn | None:
        """What the joiner that waits for longest gets now."""
        while self._orders and not self._allowance.delay(now):
            joiner = next(iter(self._orders))
            order = self._orders.pop(joiner)
            turn = self._next(joiner, order)
            if turn is None:
                continue
            if order.next < order.end:
                order.since = now
                self._orders[joiner] = order
            size = CHUNK if isinstance(turn, ChunkTurn) else len(turn.update)
            self._allowance.overdraw(size)
            self.given += size
            return turn
        return None

    def _order(self, request: ChunkRequest | CatchUp, now: float) -> _Order | None:
        if isinstance(request, CatchUp):
            newest = max(self._updates, default=-1)
            if request.version not in self._updates:
                return None
            end = min(request.version + UPDATES_KEPT, newest + 1)
            return _Order(None, request.version, end, now)
        held = self._held.get(request.version)
        if held is None or request.first >= held.frozen.chunks:
            return None
        held.asked_at = now
        end = min(request.first + min(request.count, WINDOW), held.frozen.chunks)
        return _Order(held.frozen, request.first, end, now)

    def _is_slow(self, now: float) -> bool:
        """Whether our line can't serve those who wait already: one more would help nobody."""
        longest = next(iter(self._orders.values()), None)
        return longest is not None and now - longest.since > CHUNK_WITHIN

    def _next(self, joiner: str, order: _Order) -> Turn | None:
        at = order.next
        order.next += 1
        if order.frozen is not None:
            return ChunkTurn(joiner, order.frozen, at)
        update = self._updates.get(at)
        return None if update is None else UpdateTurn(joiner, update)

    def _ask_latest(self, joiner: str, version: int, now: float) -> None:
        if version > max(self._updates, default=-1) or len(self._replies) >= MOST_REPLIES:
            return
        if joiner in self._replies or not self._answers.take(1.0, now):
            return
        self._replies[joiner] = now + REPLY_WITHIN * self._random.random(), version

    def _freeze(self, state: State) -> list[Deed]:
        if self._freezing:
            return []
        self._freezing = True
        return [Freeze(state)]

    def _retire(self, now: float) -> list[Deed]:
        """Let go of older snapshots: when nobody asks, and at once of those beyond the bound."""
        old = sorted(sorted(self._held)[:-KEPT], key=lambda version: self._held[version].asked_at)
        surplus = len(self._held) - MOST_HELD
        gone = [
            version
            for place, version in enumerate(old)
            if place < surplus or now - self._held[version].asked_at > KEEP_FOR
        ]
        for version in gone:
            del self._held[version]
        return [Discard(version) for version in gone]

    def _forget_updates(self) -> None:
        self._updates.clear()
        self._updates_bytes = 0
