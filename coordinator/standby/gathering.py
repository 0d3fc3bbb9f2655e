"""Before leading over a broker that others use: who of the peers has updates that we lack? Pure."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from protocol.messages import Reached

ANSWERS_WITHIN = 0.6
"""Seconds in which peers tell how far they are; they spread their answers over half a second."""
REPLY_WITHIN = 1.0
"""Seconds without an update after which other peers are asked: a claim proves nothing."""
ASKED_AT_ONCE = 3
LONGEST = 10.0
"""Seconds after which we go on with what we have, whatever anybody claims."""
MOST_CLAIMS = 10_000


@dataclass(frozen=True, slots=True)
class Claim:
    """What a peer says of itself; who followed a later epoch has the history that holds."""

    epoch: int
    version: int
    peer: str

    def beyond(self, epoch: int, version: int) -> bool:
        """Whether it would have something for us, who are there."""
        return (self.epoch, self.version) > (epoch, version)


class Gathering:
    """Chooses whom to ask: the peer that claims most, and some others beyond us, since any claim
    may be a lie; who has sent nothing in good time is asked no more.

    Attributes:
        asked: the peers to send requests to at the moment.
        done: whether nobody is left that could have more than we do.
    """

    def __init__(self, now: float, random: Random) -> None:
        self.asked: tuple[str, ...] = ()
        self.done = False
        self._random = random
        self._began = now
        self._moved_at = now
        self._claims: dict[str, Claim] = {}
        self._failed: set[str] = set()

    @property
    def goal(self) -> tuple[int, int]:
        """Epoch and version that those who are asked claim at most."""
        return max(
            ((claim.epoch, claim.version) for claim in map(self._claims.__getitem__, self.asked)),
            default=(0, 0),
        )

    def reached(self, peer: str, said: Reached) -> None:
        """A peer answers."""
        if peer in self._claims or len(self._claims) < MOST_CLAIMS:
            self._claims[peer] = Claim(said.epoch, said.version, peer)

    def moved(self, now: float) -> None:
        """An update that we lacked came."""
        self._moved_at = now

    def tick(self, epoch: int, version: int, busy: bool, now: float) -> bool:
        """Time passed, and we are at `version`, reached in `epoch`; `busy` applying what came.

        Returns whether to send our request anew, because others are asked than before.
        """
        if self.done or now < self._began + ANSWERS_WITHIN:
            return False
        if busy:
            self._moved_at = now
            return False
        beyond = [
            claim
            for claim in self._claims.values()
            if claim.beyond(epoch, version) and claim.peer not in self._failed
        ]
        if not beyond or now > self._began + LONGEST:
            self.asked, self.done = (), True
            return False
        left = {claim.peer for claim in beyond}
        if any(peer in left for peer in self.asked) and now < self._moved_at + REPLY_WITHIN:
            return False
        self._failed.update(peer for peer in self.asked if peer in left)
        self._moved_at = now
        self.asked = self._choose([c for c in beyond if c.peer not in self._failed])
        return bool(self.asked)

    def _choose(self, beyond: list[Claim]) -> tuple[str, ...]:
        beyond.sort(key=lambda claim: (claim.epoch, claim.version), reverse=True)
        best, others = beyond[:1], beyond[1:]
        others = self._random.sample(others, min(len(others), ASKED_AT_ONCE - 1))
        return tuple(claim.peer for claim in (*best, *others))
