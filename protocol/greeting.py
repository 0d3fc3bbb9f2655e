"""How a session comes to share a key with who leads the run, and what it says under that key."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from protocol import topics
from protocol.authority import Announcement
from protocol.envelope import open_sealed, open_signed, sealed, signed
from protocol.identity import (
    AgreementError,
    Entropy,
    Identity,
    SessionKeys,
    Transcript,
    new_nonce,
)
from protocol.invites import proof_of
from protocol.messages import MAX_LANES, MAX_UNABLE, AnyMessage, Bye, Held, Hello, Message, Welcome
from protocol.packing import WireError
from protocol.spec import PROTOCOL_VERSION

CLIENT_VERSION = "0.1.0"
"""Of this Shoal, as sessions tell leaders; they may ask for a minimum."""
STANDBY = "standby"
"""The device of whoever keeps a run's log and takes no task."""
MAX_OPEN_HELLOS = 4
"""Hellos whose welcome may still come."""


@dataclass(frozen=True, slots=True)
class Introduction:
    """What a hello says about who says it; `speed` in environment steps per second, 0 unknown."""

    name: str
    device: str
    speed: float = 0.0
    numeric_class: bytes = b""
    lanes: int = 0


class Greeting:
    """One session's side of the agreement with the leader.

    Whoever extends it judges announcements, and says who leads.

    Attributes:
        worker: how topics name the key of this session.
        peer: this session as one topic level.
        led: the announcement that holds, None before there is any.
        invite: the token of one, where we were given it; it is shown to nobody.
    """

    def __init__(
        self, run: str, identity: Identity, session: str, entropy: Entropy = os.urandom
    ) -> None:
        self.run = run
        self.session = session
        self.led: Announcement | None = None
        self.invite = ""
        self.worker = identity.worker
        self.peer = topics.peer(self.worker, session)
        self._topics: dict[Callable[[str, str, str], str], str] = {}
        self._identity = identity
        self._entropy = entropy
        self._hellos: dict[bytes, SessionKeys] = {}
        self._key: bytes | None = None
        self._life = 0

    def topic(self, kind: Callable[[str, str, str], str]) -> str:
        """The session's topic of a kind, for example `topics.request`."""
        if (topic := self._topics.get(kind)) is None:
            topic = self._topics[kind] = kind(self.run, self.worker, self.session)
        return topic

    @property
    def agreed(self) -> bool:
        """Whether there is a session key, agreed with who leads now."""
        return self._key is not None

    def hello(
        self,
        introduction: Introduction,
        credit: int,
        version: int,
        held: tuple[Held, ...] = (),
        unable: str = "",
    ) -> bytes:
        """A payload that asks for a session; each with a key and a nonce of its own.

        `version`: that we have reached; `held`: leases that we can still answer; `unable`: why we
        can't take part, and ask for nothing.
        """
        keys = SessionKeys.generate(self._entropy)
        nonce = new_nonce(self._entropy)
        while len(self._hellos) >= MAX_OPEN_HELLOS:
            del self._hellos[next(iter(self._hellos))]
        self._hellos[nonce] = keys
        hello = Hello(
            protocol=PROTOCOL_VERSION,
            client=CLIENT_VERSION,
            worker_key=self._identity.public_key,
            exchange_key=keys.public_key,
            nonce=nonce,
            name=introduction.name[:64],
            device=introduction.device[:64],
            credit=credit,
            speed=introduction.speed,
            numeric_class=introduction.numeric_class,
            version=version,
            held=held,
            lanes=min(introduction.lanes, MAX_LANES),
            life=self._life,
            invite=proof_of(self.invite, self.run, self._identity.public_key)
            if self.invite
            else b"",
            unable=unable[:MAX_UNABLE],
        )
        return signed(self._identity, "hello", (self.run, self.session), hello)

    def hear_welcome(self, payload: bytes) -> Welcome:
        """The answer to one of our open hellos; from now on both ends share a key.

        A coordinator answers in order, so the latest answer decides: hellos before the answered
        one are closed, and no answer counts twice. Raises `WireError`.
        """
        led = self._require_led()
        context = (self.run, self.worker, self.session)
        welcome = open_signed(payload, led.leader, "welcome", context)
        if not isinstance(welcome, Welcome):
            raise WireError("not a welcome")
        if welcome.epoch != led.epoch.number:
            raise WireError(f"a welcome of epoch {welcome.epoch}, {led.epoch.number} is led")
        keys = self._hellos.get(welcome.nonce)
        if keys is None:
            raise WireError("a welcome to no open hello of ours")
        if not welcome.refused:
            transcript = Transcript(
                run=self.run,
                epoch=welcome.epoch,
                session=self.session,
                worker_key=self._identity.public_key,
                host_key=led.leader,
                worker_exchange=keys.public_key,
                host_exchange=welcome.exchange_key,
                worker_nonce=welcome.nonce,
            )
            try:
                self._key = keys.agree(transcript)
            except AgreementError as error:
                raise WireError(str(error)) from None
        for nonce in list(self._hellos):
            del self._hellos[nonce]
            if nonce == welcome.nonce:
                break
        return welcome

    def seal(self, message: Message) -> bytes:
        """The message for the coordinator, under the session key."""
        if self._key is None:
            raise RuntimeError("no session key yet")
        return sealed(self._key, "to coordinator", message)

    def unseal(self, payload: bytes) -> AnyMessage:
        """What the coordinator tells this session. Raises `WireError`."""
        return open_sealed(payload, self._require_key(), "to worker")

    def begin_life(self) -> bytes:
        """The session gets a new connection: what the broker is to say for us when that is lost."""
        self._life += 1
        return self.bye(lost=True)

    def bye(self, lost: bool) -> bytes:
        """The end of this session, as we say it or, `lost`, as the broker says it for us."""
        bye = Bye("lost" if lost else "left", self._life)
        return signed(self._identity, "status", (self.run, self.session), bye)

    def _require_led(self) -> Announcement:
        if self.led is None:
            raise WireError("signed before it is known who leads")
        return self.led

    def _require_key(self) -> bytes:
        if self._key is None:
            raise WireError("sealed before there is a session")
        return self._key
