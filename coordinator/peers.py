"""The sessions that said hello: whose they are, and the key that each shares with us."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self, get_args

from coordinator.admission import Admission
from coordinator.pool.events import SessionId
from protocol.authority import RUN_KEY, Authority
from protocol.envelope import open_signed, peek_signed, signed
from protocol.errors import ShoalError
from protocol.identity import AgreementError, Identity, SessionKeys, Transcript, worker_id
from protocol.messages import Bye, Credit, Hello, TriedKind, Welcome
from protocol.packing import WireError
from protocol.spec import PROTOCOL_VERSION

TRIED: tuple[TriedKind, ...] = get_args(TriedKind)
MOST_SESSIONS = 10_000
"""Sessions at once; as many that are gone are remembered."""
NONCES_KEPT = 256
"""Hellos of a session that are recognised when somebody sends them again."""
REMIND_EVERY = 5.0
"""Seconds between two reminders to one session that it should say hello again."""

_LOGGER = logging.getLogger("shoal.coordinator")


@dataclass(frozen=True, slots=True)
class Leader:
    """Who we are to workers: run, epoch number, the key that signs for them, and what proves it."""

    run: str
    identity: Identity
    epoch: int
    authority: Authority
    rank: int = RUN_KEY

    @classmethod
    def of_own(cls, run: str, identity: Identity, epoch: int = 1) -> Self:
        """Leads with the key that the run's name was made from; nobody else may."""
        return cls(run, identity, epoch, Authority(run, identity.public_key))

    @property
    def signer(self) -> bytes:
        """Our public key, empty where it is the run key that is in charge."""
        return b"" if self.rank == RUN_KEY else self.identity.public_key

    def may_be_succeeded_by(self, key: bytes) -> bool:
        """Whether the owner of a public key may lead the run after us."""
        return self.authority.rank(self.epoch, key) is not None


@dataclass(frozen=True, slots=True)
class Peer:
    """A welcomed session: its identity key, the key shared with it, and what it said of itself."""

    id: SessionId
    worker_key: bytes
    session_key: bytes
    name: str
    device: str
    nonces: tuple[bytes, ...]
    """of its hellos so far, the last is the one that the session key came from"""
    life: int = 0
    """of its connections, the one that it last said hello over"""

    @property
    def label(self) -> str:
        """What it said of itself, for people."""
        return label(self.name, self.device)


def label(name: str, device: str) -> str:
    """Name and machine of a worker, for people; both are empty where it keeps them to itself."""
    return ", ".join(word for word in (name, device) if word) or "private"


@dataclass(frozen=True, slots=True)
class Greeting:
    """A genuine hello, and the signed welcome that answers it; `refused` is why, or empty."""

    hello: Hello
    answer: bytes
    refused: str


class Peers:
    """All sessions that share a key with us.

    A session that is gone keeps its key for as long as there is room: a result that was on its way
    still counts, a session that only seemed gone can be asked to say hello again, and a hello of it
    that somebody else sends once more is recognised.
    """

    def __init__(
        self,
        leader: Leader,
        admission: Admission | None = None,
        make_room: Callable[[], None] = lambda: None,
    ) -> None:
        """`admission`: whom to let in; None: everybody. `make_room` lets a session go, where one
        can be spared."""
        self._leader = leader
        self._make_room = make_room
        self._admission = admission
        self._here: dict[SessionId, Peer] = {}
        self._gone: dict[SessionId, Peer] = {}
        self._reminded: dict[SessionId, float] = {}
        self._tried: dict[SessionId, tuple[TriedKind, ...]] = {}
        """kinds of topics on which a message without a word came"""
        self._credits: dict[SessionId, int] = {}
        """numbers of the last ones under the present session keys"""

    def get(self, id: SessionId) -> Peer | None:
        """The session, here or gone, or None for a stranger."""
        return self._here.get(id) or self._gone.get(id)

    def tried(self, id: SessionId, kind: str) -> None:
        """A message without a word came on a session's topic: the broker lets it write there.

        Anybody may have sent it; who forges it, spares the session a warning.
        """
        for tried in TRIED:
            if tried == kind:
                if id not in self._tried and len(self._tried) >= MOST_SESSIONS:
                    del self._tried[next(iter(self._tried))]
                self._tried[id] = (*(k for k in self._tried.get(id, ()) if k != tried), tried)

    def greet(
        self, id: SessionId, payload: bytes, version: int, digest: bytes, clock: int = 0
    ) -> Greeting:
        """Judge the hello of the session whose topic it came on; unless refused, or unable to take
        part, it is here now.

        `version` and `digest` are what the welcome tells it of the run, `clock` our time of day, in
        seconds since 1970. Raises `WireError`.
        """
        hello = self._read_hello(id, payload)
        keys = SessionKeys.generate()
        refused = self._reason_to_refuse(id, hello)
        if not refused and not hello.unable:
            self._enter(id, hello, self._agree(id, hello, keys))
        leader = self._leader
        heard = self._tried.get(id, ())
        answer = Welcome(
            hello.nonce, keys.public_key, leader.epoch, version, digest, refused, heard, clock
        )
        context = (leader.run, id.worker, id.session)
        return Greeting(hello, signed(leader.identity, "welcome", context, answer), refused)

    def read_bye(self, id: SessionId, payload: bytes) -> Bye:
        """The goodbye of a session, said by itself or by its will. Raises `WireError`.

        Once the session has a later connection, one of an earlier connection says nothing: it came
        late, or somebody says it again.
        """
        peer = self.get(id)
        if peer is None:
            raise WireError("a goodbye of a stranger")
        message = open_signed(payload, peer.worker_key, "status", (self._leader.run, id.session))
        if not isinstance(message, Bye):
            raise WireError("a signed status that is not a goodbye")
        if message.life < peer.life:
            raise WireError(f"a goodbye of connection {message.life}, {peer.life} is there")
        return message

    def take_credit(self, id: SessionId, credit: Credit) -> None:
        """A session says how many tasks it can hold. Raises `WireError` where it said so before: an
        old word, however genuine, must not take the place of a newer one."""
        last = self._credits.get(id, 0)
        if credit.number <= last:
            raise WireError(f"credit number {credit.number}, {last} was here")
        self._credits[id] = credit.number

    def leave(self, id: SessionId) -> None:
        """The session is gone, or seems to be."""
        self._tried.pop(id, None)
        peer = self._here.pop(id, None)
        if peer is not None:
            self._gone[id] = peer
            if len(self._gone) > MOST_SESSIONS:
                forgotten = next(iter(self._gone))
                del self._gone[forgotten]
                self._reminded.pop(forgotten, None)
                self._credits.pop(forgotten, None)

    def dismissed(self) -> list[tuple[Peer, str]]:
        """Sessions whose invite has been revoked since they came, with the reason for them."""
        try:
            if self._admission is None or not self._admission.look():
                return []
        except ShoalError:
            return []  # told to whoever comes next
        return [
            (peer, reason)
            for peer in self._here.values()
            if not self._leader.may_be_succeeded_by(peer.worker_key)
            and (reason := self._reason_not_to_admit(peer.worker_key, b""))
        ]

    def should_remind(self, id: SessionId, now: float) -> bool:
        """Whether a session that speaks though it is gone should now be told to say hello again."""
        if id not in self._gone or now - self._reminded.get(id, -REMIND_EVERY) < REMIND_EVERY:
            return False
        self._reminded[id] = now
        return True

    def _read_hello(self, id: SessionId, payload: bytes) -> Hello:
        claimed = peek_signed(payload)
        if not isinstance(claimed, Hello):
            raise WireError("a signed request that is not a hello")
        if worker_id(claimed.worker_key) != id.worker:
            raise WireError("a hello on another worker's topic")
        known = self.get(id)
        if known is not None and claimed.nonce in known.nonces:
            raise WireError("a hello that came before")
        open_signed(payload, claimed.worker_key, "hello", (self._leader.run, id.session))
        return claimed

    def _reason_to_refuse(self, id: SessionId, hello: Hello) -> str:
        """Why this session can't take part, empty if it can."""
        if hello.protocol != PROTOCOL_VERSION:
            older = "worker" if hello.protocol < PROTOCOL_VERSION else "host"
            return (
                f"protocol {hello.protocol} is spoken there, {PROTOCOL_VERSION} here: "
                f"upgrade the {older}"
            )
        may_succeed = self._leader.may_be_succeeded_by(hello.worker_key)
        if may_succeed:
            return ""
        if refused := self._reason_not_to_admit(hello.worker_key, hello.invite):
            return refused
        if id not in self._here and len(self._here) >= MOST_SESSIONS:
            self._make_room()
            if len(self._here) >= MOST_SESSIONS:
                return f"the run has the {MOST_SESSIONS:,} sessions that it can have: join later"
        return ""

    def _reason_not_to_admit(self, worker_key: bytes, proof: bytes) -> str:
        try:
            if self._admission is not None:
                return self._admission.reason_to_refuse(worker_key, proof)
        except ShoalError as error:
            _LOGGER.warning("nobody new is let in: %s", error)
            return "the host can't look at its invites now: join later"
        return ""

    def _agree(self, id: SessionId, hello: Hello, keys: SessionKeys) -> bytes:
        transcript = Transcript(
            run=self._leader.run,
            epoch=self._leader.epoch,
            session=id.session,
            worker_key=hello.worker_key,
            host_key=self._leader.identity.public_key,
            worker_exchange=hello.exchange_key,
            host_exchange=keys.public_key,
            worker_nonce=hello.nonce,
        )
        try:
            return keys.agree(transcript)
        except AgreementError as error:
            raise WireError(f"a hello with a useless key: {error}") from None

    def _enter(self, id: SessionId, hello: Hello, session_key: bytes) -> None:
        known = self.get(id)
        earlier = known.nonces[1 - NONCES_KEPT :] if known is not None else ()
        self._gone.pop(id, None)
        self._reminded.pop(id, None)
        self._credits.pop(id, None)
        self._here[id] = Peer(
            id=id,
            worker_key=hello.worker_key,
            session_key=session_key,
            name=hello.name,
            device=hello.device,
            nonces=(*earlier, hello.nonce),
            life=hello.life,
        )
