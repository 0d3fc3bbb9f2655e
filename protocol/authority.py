"""Who may lead a run: the run key, delegates that it appoints, and the keys that succeed it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from protocol.envelope import open_signed, peek_signed, require_signed, signed
from protocol.identity import Identity, key_digest, run_belongs_to
from protocol.messages import Charter, Epoch, Update
from protocol.packing import WireError

RUN_KEY = 0
"""The rank of the run key; delegates have 1, 2, ... in the order of their charter."""


@dataclass(frozen=True, slots=True)
class Authority:
    """What proves who may lead which epoch.

    A run begins with the key that its name was made from, and nobody else. Each charter, signed by
    the run key in charge so far, says who may lead from its epoch on. A chain only ever grows.

    Attributes:
        run: the run's id.
        root: the key that its name was made from.
        charters: the signed charters, in the order of their epochs.
        links: what they say.
    """

    run: str
    root: bytes
    charters: tuple[bytes, ...] = ()
    links: tuple[Charter, ...] = ()

    @classmethod
    def read(cls, run: str, root: bytes, charters: Sequence[bytes]) -> Self:
        """The authority that these charters prove. Raises `WireError` where one of them is not."""
        if not run_belongs_to(run, root):
            raise WireError("the key is not the one in the run's name")
        return cls(run, root).extended(charters)

    def extended(self, charters: Sequence[bytes]) -> Self:
        """With these charters after all that are known: only they are checked.

        Raises `WireError` where one of them is not proved.
        """
        links = list(self.links)
        key = links[-1].key if links else self.root
        for payload in charters:
            charter = open_signed(payload, key, "charter", (self.run,))
            if not isinstance(charter, Charter):
                raise WireError("not a charter")
            if links and charter.epoch <= links[-1].epoch:
                raise WireError("charters out of order")
            links.append(charter)
            key = charter.key
        return type(self)(self.run, self.root, (*self.charters, *charters), tuple(links))

    def amended(
        self, identity: Identity, epoch: int, key: bytes, delegates: Sequence[bytes]
    ) -> Self:
        """With one more charter, signed by `identity`, the run key in charge so far.

        From `epoch` on, which must be later than any charter's, `key` is in charge and `delegates`
        (digests of keys) may take over. Raises `WireError` where that is no valid chain.
        """
        charter = Charter(epoch, key, tuple(delegates))
        payload = signed(identity, "charter", (self.run,), charter)
        return self.extended((payload,))

    def extends(self, other: Authority) -> bool:
        """Whether all that the other one knows is the beginning of this one."""
        return self.root == other.root and self.charters[: len(other.charters)] == other.charters

    def heard(self, root: bytes, charters: tuple[bytes, ...]) -> Self:
        """The longer one of this chain and another one that somebody claims.

        Anybody may claim, and a signature takes time: what is known is not checked again. Raises
        `WireError` where neither is the beginning of the other, or the rest is not proved.
        """
        known = len(self.charters)
        if root != self.root or charters[:known] != self.charters[: len(charters)]:
            raise WireError("an epoch with other charters than the run has")
        return self.extended(charters[known:]) if len(charters) > known else self

    def run_key(self, epoch: int) -> bytes:
        """The public key in charge in that epoch."""
        link = self._link(epoch)
        return self.root if link is None else link.key

    def delegates(self, epoch: int) -> tuple[bytes, ...]:
        """Digests of the keys that might lead that epoch, the first to step in first."""
        link = self._link(epoch)
        return () if link is None else link.delegates

    def rank(self, epoch: int, key: bytes) -> int | None:
        """The rank of a public key as leader of that epoch; None: it may not lead."""
        if epoch < 1:
            return None
        if key == self.run_key(epoch):
            return RUN_KEY
        delegates, digest = self.delegates(epoch), key_digest(key)
        return 1 + delegates.index(digest) if digest in delegates else None

    def signer(self, update: Update) -> bytes:
        """The public key of who says that it made the update."""
        return update.signer or self.run_key(update.epoch)

    def open_update(self, payload: bytes) -> Update:
        """The update that somebody signed who might lead its epoch. Raises `WireError`."""
        claimed = peek_signed(payload)
        if not isinstance(claimed, Update):
            raise WireError("not an update")
        key = self.signer(claimed)
        if self.rank(claimed.epoch, key) is None:
            raise WireError(f"update {claimed.version} is by a key that may not lead")
        require_signed(payload, key, "update", (self.run,))
        return claimed

    def _link(self, epoch: int) -> Charter | None:
        """The charter that governs an epoch."""
        return next((link for link in reversed(self.links) if link.epoch <= epoch), None)


@dataclass(frozen=True, slots=True)
class Announcement:
    """A proved epoch: what it says, and the authority behind it."""

    epoch: Epoch
    authority: Authority

    @property
    def leader(self) -> bytes:
        """The public key of who leads."""
        return self.epoch.leader or self.authority.run_key(self.epoch.number)

    @property
    def precedence(self) -> tuple[int, int]:
        """Of the epoch, as `precedence` orders them."""
        return precedence(self.epoch.number, self.epoch.rank)


def read_epoch(payload: bytes, run: str, known: Authority | None = None) -> Announcement:
    """An announcement, proved from the run's name on.

    `known`: the authority known so far. It judges an announcement that knows less; one that knows
    other charters is refused. Raises `WireError`.
    """
    claimed = peek_signed(payload)
    if not isinstance(claimed, Epoch) or claimed.run != run:
        raise WireError("not an epoch of this run")
    if known is None:
        authority = Authority.read(run, claimed.host_key, claimed.charters)
    else:
        authority = known.heard(claimed.host_key, claimed.charters)
    announcement = Announcement(claimed, authority)
    if authority.rank(claimed.number, announcement.leader) != claimed.rank:
        raise WireError("an epoch led by a key that may not, or with another rank than the key's")
    require_signed(payload, announcement.leader, "epoch", (run,))
    return announcement


def precedence(number: int, rank: int) -> tuple[int, int]:
    """Of two epochs the one with the greater precedence holds: the later one; of two with one
    number that of who stands nearer to the run key."""
    return number, -rank
