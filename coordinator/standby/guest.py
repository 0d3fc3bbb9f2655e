"""A session with a run's leader for somebody who keeps the log: who leads, hello, session key."""

from __future__ import annotations

import os
from collections.abc import Callable

from protocol import topics
from protocol.authority import Announcement, Authority, precedence, read_epoch
from protocol.entrust import open_secret
from protocol.envelope import open_sealed, open_signed, sealed, signed
from protocol.errors import ShoalError
from protocol.identity import (
    AgreementError,
    Identity,
    SessionKeys,
    Transcript,
    fingerprint,
    new_nonce,
    new_session,
)
from protocol.messages import AnyMessage, Bye, Entrust, Hello, Message, Welcome
from protocol.packing import WireError
from protocol.spec import PROTOCOL_VERSION

CLIENT = "0.1.0"
DEVICE = "standby"
"""What we say of our device: we never take a task."""
MAX_OPEN_HELLOS = 4
"""Hellos whose welcome may still come."""


class UnsuitableError(ShoalError):
    """A run that this version can't follow."""

    exit_code = 3


class Guest:
    """One session of ours, and the epoch of the greatest precedence that was proved to us.

    Attributes:
        announcement: that epoch, None before the first.
        name: how topics name the session.
    """

    def __init__(
        self,
        run: str,
        root_fingerprint: str,
        identity: Identity,
        authority: Authority | None = None,
        entropy: Callable[[int], bytes] = os.urandom,
    ) -> None:
        """`root_fingerprint`: of the key that the run's name was made from. `authority`: as far as
        it is known."""
        self.run = run
        self.name = new_session(entropy)
        self.announcement: Announcement | None = None
        self._root_fingerprint = root_fingerprint
        self._identity = identity
        self._known = authority
        self._entropy = entropy
        self._hellos: dict[bytes, SessionKeys] = {}
        self._key: bytes | None = None

    @property
    def authority(self) -> Authority | None:
        """The longest that was proved."""
        return self._known

    @property
    def agreed(self) -> bool:
        """Whether the leader shares a key with us."""
        return self._key is not None

    @property
    def peer(self) -> str:
        """This session as one topic level."""
        return topics.peer(self._identity.worker, self.name)

    def topic(self, kind: Callable[[str, str, str], str]) -> str:
        """The session's topic of a kind, for example `topics.request`."""
        return kind(self.run, self._identity.worker, self.name)

    def hear_epoch(self, payload: bytes) -> bool:
        """Take in an announcement; whether somebody leads whom we did not know to.

        Raises `WireError` where it is not proved, or another epoch holds, and `UnsuitableError`.
        """
        said = read_epoch(payload, self.run, self._known)
        if fingerprint(said.authority.root) != self._root_fingerprint:
            raise WireError("an epoch of another run with the same name")
        self._known = said.authority
        known = self.announcement
        if known is not None and place_of(said) < place_of(known):
            raise WireError("an epoch that another one has taken the place of")
        if said.epoch.protocol != PROTOCOL_VERSION:
            raise UnsuitableError(
                f"{self.run} speaks protocol {said.epoch.protocol}, this is {PROTOCOL_VERSION}: "
                "use the version of Shoal that its host uses"
            )
        self.announcement = said
        news = known is None or place_of(said) > place_of(known)
        if news:
            self.forget()
        return news

    def forget(self) -> None:
        """Nobody knows this session any more."""
        self._key = None
        self._hellos.clear()

    def hello(self, version: int) -> bytes:
        """A payload that asks for a session, though for no task."""
        keys, nonce = SessionKeys.generate(self._entropy), new_nonce(self._entropy)
        while len(self._hellos) >= MAX_OPEN_HELLOS:
            del self._hellos[next(iter(self._hellos))]
        self._hellos[nonce] = keys
        hello = Hello(
            protocol=PROTOCOL_VERSION,
            client=CLIENT,
            worker_key=self._identity.public_key,
            exchange_key=keys.public_key,
            nonce=nonce,
            name=DEVICE,
            device=DEVICE,
            credit=0,
            speed=0.0,
            version=version,
        )
        return signed(self._identity, "hello", (self.run, self.name), hello)

    def hear_welcome(self, payload: bytes) -> Welcome:
        """The answer to one of our open hellos; each counts once. Raises `WireError`."""
        said = self.announcement
        if said is None:
            raise WireError("a welcome before anybody leads")
        context = (self.run, self._identity.worker, self.name)
        welcome = open_signed(payload, said.leader, "welcome", context)
        if not isinstance(welcome, Welcome):
            raise WireError("not a welcome")
        keys = self._hellos.pop(welcome.nonce, None)
        if keys is None:
            raise WireError("a welcome to no open hello of ours")
        if not welcome.refused:
            transcript = Transcript(
                run=self.run,
                epoch=welcome.epoch,
                session=self.name,
                worker_key=self._identity.public_key,
                host_key=said.leader,
                worker_exchange=keys.public_key,
                host_exchange=welcome.exchange_key,
                worker_nonce=welcome.nonce,
            )
            try:
                self._key = keys.agree(transcript)
            except AgreementError as error:
                raise WireError(str(error)) from None
        return welcome

    def seal(self, message: Message) -> bytes:
        """The message for the leader. Raises `WireError` before there is a session."""
        return sealed(self._session_key(), "to coordinator", message)

    def unseal(self, payload: bytes) -> AnyMessage:
        """What the leader tells this session. Raises `WireError`."""
        return open_sealed(payload, self._session_key(), "to worker")

    def secret(self, entrusted: Entrust) -> bytes:
        """The run's secret. Raises `WireError`."""
        return open_secret(self._session_key(), entrusted.box)

    def bye(self, lost: bool) -> bytes:
        """The end of this session, as we say it or, `lost`, as the broker says it for us."""
        bye = Bye("lost" if lost else "left")
        return signed(self._identity, "status", (self.run, self.name), bye)

    def _session_key(self) -> bytes:
        if self._key is None:
            raise WireError("sealed before there is a session")
        return self._key


def place_of(said: Announcement) -> tuple[int, int]:
    """The precedence of an announced epoch."""
    return precedence(said.epoch.number, said.epoch.rank)
