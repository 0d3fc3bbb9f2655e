"""Which snapshots there are, who has them, and whom a joiner is sent to: pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from random import Random

from coordinator.pool.events import SessionId
from protocol import topics
from protocol.frozen import Frozen
from protocol.messages import PeerName
from protocol.proof import Proof

ASKED = 4
"""Sessions that are asked to keep a snapshot."""
NAMED = 8
"""Holders that a joiner is sent to at most."""
MOST_HOLDERS = 64
"""Holders of one snapshot that are remembered."""
WITNESSES = 2
"""Workers that must have found a holder silent or false before it is none any more: one of them may
lie."""
OFFERS_KEPT = 3
"""The newest snapshots: who began to fetch one may finish it."""
MOST_JOINERS = 10_000
"""Joiners of whom it is remembered where they were sent to."""
SHUFFLED_EVERY = 1.0
"""Seconds for which holders are named in the same order: who comes in one moment gets one offer."""
SLOWEST_CHANCE = 0.05
"""What a slow session's chance of being asked is at least, as a part of the fastest one's."""


@dataclass(slots=True, eq=False)
class Offer:
    """The snapshot of one version, and where it is to be had."""

    version: int
    proof: Proof
    frozen: Frozen | None = None
    """the coordinator's own copy"""
    asked: frozenset[SessionId] | None = None
    """who should keep it; None: an earlier epoch asked, so anybody may say that it has it"""
    holders: dict[SessionId, set[str]] = field(default_factory=dict)
    """and the workers that found each of them silent or false"""
    order: tuple[SessionId, ...] = ()
    shuffled_at: float = float("-inf")


@dataclass(slots=True, eq=False)
class _Joiner:
    """What a joiner was told last."""

    version: int
    servers: frozenset[SessionId] = frozenset()
    avoids: set[SessionId] = field(default_factory=set)
    """holders of that version that failed it"""
    deserted: bool = False
    """whether all that it was sent to did"""


class Holders:
    """Knows the newest snapshots and version 0, and the sessions that hand them out.

    Only who was asked to keep a snapshot, or was sent to fetch it, can become its holder, as far as
    we know who was. A holder need not be trusted, for the chunks are proved; one that serves badly
    is told of by joiners.
    """

    def __init__(self, random: Random) -> None:
        """`random` decides who is asked, and in which order holders are named."""
        self._random = random
        self._offers: dict[int, Offer] = {}
        self._joiners: dict[SessionId, _Joiner] = {}
        self._struck: dict[SessionId, int] = {}
        """who served a version badly: it is left alone while that version is offered"""

    # Snapshots come and go.

    def reached(
        self, version: int, proof: Proof, candidates: Sequence[tuple[SessionId, float]]
    ) -> list[SessionId]:
        """The run is about to reach a snapshot version: who of the candidates, each with its speed,
        should keep it."""
        chosen = self._choose(candidates)
        offer = self._offer(version, proof)
        offer.asked = frozenset(chosen)
        return chosen

    def keep(self, frozen: Frozen) -> None:
        """The coordinator has this snapshot on its disk."""
        self._offer(frozen.version, frozen.proof).frozen = frozen

    def lose(self, version: int) -> None:
        """The coordinator's own copy is gone."""
        offer = self._offers.get(version)
        if offer is not None:
            offer.frozen = None

    def own(self, version: int) -> Frozen | None:
        """The coordinator's own copy of a version."""
        offer = self._offers.get(version)
        return None if offer is None else offer.frozen

    # Sessions come and go.

    def add(self, version: int, id: SessionId) -> bool:
        """A session says that it has the snapshot of a version; whether it counts as a holder."""
        offer, joiner = self._offers.get(version), self._joiners.get(id)
        if offer is None or id in self._struck:
            return False
        fetched = joiner is not None and joiner.version == version
        if offer.asked is not None and id not in offer.asked and not fetched:
            return False
        if id not in offer.holders and len(offer.holders) < MOST_HOLDERS:
            offer.holders[id] = set()
            offer.shuffled_at = float("-inf")
        return id in offer.holders

    def leave(self, id: SessionId) -> None:
        """A session is gone."""
        self._joiners.pop(id, None)
        self._struck.pop(id, None)
        self._remove(id)

    def blame(self, id: SessionId, failed: Iterable[PeerName]) -> None:
        """A joiner says which of the holders that it was sent to did not serve it."""
        joiner = self._joiners.get(id)
        if joiner is None or joiner.version not in self._offers:
            return
        holders, names = self._offers[joiner.version].holders, set(failed)
        for server in [server for server in joiner.servers if peer_name(server) in names]:
            joiner.avoids.add(server)
            witnesses = holders.get(server)
            if witnesses is not None:
                witnesses.add(id.worker)
                if len(witnesses) >= WITNESSES:
                    self._struck[server] = joiner.version
                    self._remove(server)
        joiner.deserted |= bool(joiner.servers) and joiner.servers <= joiner.avoids

    # What a joiner gets.

    def find(
        self, id: SessionId, after: int, now: float
    ) -> tuple[Offer, tuple[SessionId, ...]] | None:
        """The newest snapshot later than version `after` that a joiner can have, and who serves it:
        the coordinator alone where that is nobody. None where there is no such snapshot.
        """
        for version in sorted(self._offers, reverse=True):
            if version <= after:
                break
            offer = self._offers[version]
            servers = self._servers(offer, id, now)
            if servers or offer.frozen is not None:
                return offer, servers
        return None

    def send(self, id: SessionId, offer: Offer, servers: tuple[SessionId, ...]) -> None:
        """The joiner is told of this offer."""
        known = self._joiners.pop(id, None)
        joiner = known if known is not None and known.version == offer.version else None
        joiner = joiner or _Joiner(offer.version)
        joiner.servers = frozenset(servers)
        self._joiners[id] = joiner  # last: who asked longest ago is forgotten first
        if len(self._joiners) > MOST_JOINERS:
            del self._joiners[next(iter(self._joiners))]

    def _servers(self, offer: Offer, id: SessionId, now: float) -> tuple[SessionId, ...]:
        if now - offer.shuffled_at >= SHUFFLED_EVERY:
            offer.order = tuple(self._random.sample(list(offer.holders), len(offer.holders)))
            offer.shuffled_at = now
        joiner = self._joiners.get(id)
        avoided = {id}
        if joiner is not None and joiner.version == offer.version:
            if joiner.deserted and offer.frozen is not None:
                return ()
            avoided |= joiner.avoids
        return tuple(server for server in offer.order if server not in avoided)[:NAMED]

    def _offer(self, version: int, proof: Proof) -> Offer:
        """The offer of a version. One with another proof, of a history that was given up, is
        replaced."""
        offer = self._offers.get(version)
        if offer is None or offer.proof != proof:
            offer = self._offers[version] = Offer(version, proof)
            for old in sorted(v for v in self._offers if v > 0)[:-OFFERS_KEPT]:
                del self._offers[old]
            self._struck = {id: v for id, v in self._struck.items() if v in self._offers}
        return offer

    def _choose(self, candidates: Sequence[tuple[SessionId, float]]) -> list[SessionId]:
        """Some of them, the faster the likelier (Efraimidis and Spirakis 2006)."""
        good = [pair for pair in candidates if pair[0] not in self._struck]
        fastest = max((speed for _, speed in good), default=0.0) or 1.0
        drawn = [
            (self._random.random() ** (1.0 / max(speed / fastest, SLOWEST_CHANCE)), id)
            for id, speed in good
        ]
        drawn.sort(reverse=True)
        return [id for _, id in drawn[:ASKED]]

    def _remove(self, id: SessionId) -> None:
        for offer in self._offers.values():
            if offer.holders.pop(id, None) is not None:
                offer.shuffled_at = float("-inf")


def peer_name(id: SessionId) -> PeerName:
    """How the messages name a session."""
    return topics.peer(id.worker, id.session)
