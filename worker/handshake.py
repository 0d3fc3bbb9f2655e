"""Who leads the run and whether it knows us: accepts epochs, says hello, agrees on session keys."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass

from protocol import topics
from protocol.envelope import open_sealed, open_signed, peek_signed, sealed, signed
from protocol.errors import ShoalError
from protocol.identity import (
    AgreementError,
    Identity,
    SessionKeys,
    Transcript,
    fingerprint,
    new_nonce,
    run_belongs_to,
)
from protocol.messages import AnyMessage, Bye, Epoch, Hello, Message, Welcome
from protocol.packing import WireError
from protocol.spec import PROTOCOL_VERSION, RunSpec, SpecError, from_bytes

CLIENT_VERSION = "0.1.0"
"""Of this worker, as it tells coordinators; they may ask for a minimum."""
MAX_OPEN_HELLOS = 4
"""Hellos whose welcome may still come."""


class UnsuitableError(ShoalError):
    """A run that this version of the worker can't take part in."""

    exit_code = 3


class WrongLineError(ShoalError):
    """The join line names another key than the one that the run's name was made from."""

    exit_code = 5


@dataclass(frozen=True, slots=True)
class Introduction:
    """What a hello says about this worker; `speed` in environment steps per second, 0 unknown."""

    name: str
    device: str
    speed: float = 0.0
    numeric_class: bytes = b""


class Handshake:
    """One session's side of the agreement with the run's coordinator.

    Attributes:
        fingerprint: of the only key that may lead; that of the first valid epoch where the
            volunteer's join line named none.
        epoch: the newest valid one heard.
        spec: the run's, from the first valid epoch.
        number: of the epoch in which the session key was agreed, 0 before.
    """

    def __init__(
        self,
        run: str,
        identity: Identity,
        session: str,
        expected_fingerprint: str | None = None,
        entropy: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self.run = run
        self.session = session
        self.fingerprint = expected_fingerprint
        self.epoch: Epoch | None = None
        self.spec: RunSpec | None = None
        self.number = 0
        self._identity = identity
        self._entropy = entropy
        self._spec_bytes = b""
        self._hellos: dict[bytes, SessionKeys] = {}
        self._key: bytes | None = None

    @property
    def agreed(self) -> bool:
        """Whether there is a session key."""
        return self._key is not None

    @property
    def worker(self) -> str:
        """How topics name this worker."""
        return self._identity.worker

    def hear_epoch(self, payload: bytes) -> bool:
        """Take in an announcement; whether it is news.

        Raises:
            WireError: it is not the run's coordinator who says so.
            UnsuitableError: this version can't take part.
            WrongLineError: it is the run's coordinator, but not the one of the join line.
        """
        claimed = peek_signed(payload)
        if not isinstance(claimed, Epoch):
            raise WireError("not an epoch")
        epoch = self._proved(payload, claimed.host_key)
        known = self.epoch
        if known is not None and (epoch.number, epoch.rank) < (known.number, known.rank):
            return False
        if known == epoch:
            return False
        self._require_suitable(epoch)
        if self.spec is None:
            self.spec = self._parsed(epoch.spec)
            self._spec_bytes = epoch.spec
        elif epoch.spec != self._spec_bytes:
            raise UnsuitableError(
                f"the host of {self.run} changed its run spec, which never may change: "
                "join again, or ask the host"
            )
        self.fingerprint = fingerprint(epoch.host_key)
        self.epoch = epoch
        return True

    def hello(self, introduction: Introduction, credit: int) -> bytes:
        """A payload that asks for a session; each with a key and a nonce of its own."""
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
        )
        return signed(self._identity, "hello", (self.run, self.session), hello)

    def hear_welcome(self, payload: bytes) -> Welcome:
        """The answer to one of our open hellos; from now on both ends share a key.

        A coordinator answers in order, so the latest answer decides: hellos before the answered
        one are closed, and no answer counts twice. Raises `WireError`.
        """
        epoch = self._require_epoch()
        context = (self.run, self.worker, self.session)
        welcome = open_signed(payload, epoch.host_key, "welcome", context)
        if not isinstance(welcome, Welcome):
            raise WireError("not a welcome")
        keys = self._hellos.get(welcome.nonce)
        if keys is None:
            raise WireError("a welcome to no open hello of ours")
        if not welcome.refused:
            transcript = Transcript(
                run=self.run,
                epoch=welcome.epoch,
                session=self.session,
                worker_key=self._identity.public_key,
                host_key=epoch.host_key,
                worker_exchange=keys.public_key,
                host_exchange=welcome.exchange_key,
                worker_nonce=welcome.nonce,
            )
            try:
                self._key = keys.agree(transcript)
            except AgreementError as error:
                raise WireError(str(error)) from None
            self.number = welcome.epoch
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
        if self._key is None:
            raise WireError("sealed before there is a session")
        return open_sealed(payload, self._key, "to worker")

    def from_host(self, payload: bytes, label: str) -> AnyMessage:
        """What the run's key signed for everybody. Raises `WireError`."""
        return open_signed(payload, self._require_epoch().host_key, label, (self.run,))

    def bye(self, lost: bool) -> bytes:
        """The end of this session, as we say it or, `lost`, as the broker says it for us."""
        bye = Bye("lost" if lost else "left")
        return signed(self._identity, "status", (self.run, self.session), bye)

    def topic(self, kind: Callable[[str, str, str], str]) -> str:
        """The session's topic of a kind, for example `topics.request`."""
        return kind(self.run, self.worker, self.session)

    @property
    def peer(self) -> str:
        """This session as one topic level."""
        return topics.peer(self.worker, self.session)

    def _require_epoch(self) -> Epoch:
        if self.epoch is None:
            raise WireError("signed before the coordinator's key is known")
        return self.epoch

    def _proved(self, payload: bytes, host_key: bytes) -> Epoch:
        found = fingerprint(host_key)
        if not run_belongs_to(self.run, host_key):
            raise WireError(f"the key {found} is not the one in the run's name")
        epoch = open_signed(payload, host_key, "epoch", (self.run,))
        if not isinstance(epoch, Epoch) or epoch.run != self.run:
            raise WireError("not an epoch of this run")
        if self.fingerprint not in (None, found):
            # A run's name has only 32 bits of its key: once the right key has spoken, another one
            # that matches is a forgery, and no reason to leave.
            if self.epoch is not None:
                raise WireError(
                    f"fingerprint mismatch: {found} says that it leads {self.run}, "
                    f"but it must be {self.fingerprint}"
                )
            raise WrongLineError(
                f"the run {self.run} is led by the key {found}, but your join line says "
                f"{self.fingerprint}: the line is mistyped or not this host's; ask the host for a "
                "new line"
            )
        return epoch

    def _require_suitable(self, epoch: Epoch) -> None:
        if epoch.protocol != PROTOCOL_VERSION:
            older = epoch.protocol > PROTOCOL_VERSION
            remedy = "upgrade Shoal" if older else "ask the host to upgrade, or use an older Shoal"
            raise UnsuitableError(
                f"{self.run} speaks protocol {epoch.protocol}, this worker {PROTOCOL_VERSION}: "
                f"{remedy}"
            )
        if _numbers(epoch.minimum_client) > _numbers(CLIENT_VERSION):
            raise UnsuitableError(
                f"{self.run} takes workers of version {epoch.minimum_client[:20]} or later, "
                f"this is {CLIENT_VERSION}: upgrade Shoal"
            )

    def _parsed(self, data: bytes) -> RunSpec:
        try:
            return from_bytes(data)
        except SpecError as error:
            raise UnsuitableError(f"{self.run}, Shoal {CLIENT_VERSION} here: {error}") from None


def _numbers(version: str) -> tuple[int, ...]:
    """A dotted version, to compare; trailing zeros count for nothing."""
    numbers = [int(digits) for digits in re.findall(r"\d{1,9}", version)[:4]]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
