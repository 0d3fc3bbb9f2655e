"""Who leads the run and whether it knows us: judges epochs, says hello, agrees on session keys."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass

from protocol import topics
from protocol.authority import RUN_KEY, Announcement, Authority, precedence, read_epoch
from protocol.envelope import open_sealed, open_signed, sealed, signed
from protocol.errors import ShoalError
from protocol.identity import (
    AgreementError,
    Identity,
    SessionKeys,
    Transcript,
    fingerprint,
    new_nonce,
)
from protocol.messages import AnyMessage, Bye, Epoch, Held, Hello, Message, Update, Welcome
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
    """One session's side of the agreement with whoever leads the run.

    Of all who prove that they may lead, the one with the greatest precedence is followed; what the
    others say counts for nothing.

    Attributes:
        fingerprint: of the key that the run's name was made from; that of the first valid epoch
            where the volunteer's join line named none.
        led: the announcement that holds, None before there is any.
        spec: the run's, from the first valid epoch.
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
        self.led: Announcement | None = None
        self.spec: RunSpec | None = None
        self._authority: Authority | None = None
        self._begins = 0
        self._identity = identity
        self._entropy = entropy
        self._spec_bytes = b""
        self._hellos: dict[bytes, SessionKeys] = {}
        self._key: bytes | None = None

    @property
    def epoch(self) -> Epoch | None:
        """What the leader says of the run."""
        return None if self.led is None else self.led.epoch

    @property
    def agreed(self) -> bool:
        """Whether there is a session key, agreed with who leads now."""
        return self._key is not None

    @property
    def worker(self) -> str:
        """How topics name this worker."""
        return self._identity.worker

    def hear_epoch(self, payload: bytes) -> bool:
        """Take in an announcement; whether it is news.

        Another leader, or another epoch of the same one, ends what was agreed before.

        Raises:
            WireError: it is by nobody who may lead, or its epoch is over.
            UnsuitableError: this version can't take part.
            WrongLineError: it is the run's coordinator, but not the one of the join line.
        """
        heard = read_epoch(payload, self.run, self._authority)
        self._require_expected(heard.authority.root)
        self._authority = heard.authority
        known = self._still_holds()
        if known is not None and not self._goes_on(known, heard):
            return False
        self._require_suitable(heard.epoch)
        if self.spec is None:
            self.spec = self._parsed(heard.epoch.spec)
            self._spec_bytes = heard.epoch.spec
        elif heard.epoch.spec != self._spec_bytes:
            raise UnsuitableError(
                f"the host of {self.run} changed its run spec, which never may change: "
                "join again, or ask the host"
            )
        self.fingerprint = fingerprint(heard.authority.root)
        if known is None or heard.precedence != known.precedence:
            self._begins = heard.epoch.version
            self._key = None
        self.led = heard
        return True

    def leadership(self) -> str:
        """Who leads, for people, from the key of the join line on."""
        led = self._require_led()
        leader, root = fingerprint(led.leader), fingerprint(led.authority.root)
        if led.epoch.rank != RUN_KEY:
            return f"the delegate {leader}, appointed by {root}"
        return leader if leader == root else f"{leader}, the successor of {root}"

    def hello(
        self, introduction: Introduction, credit: int, version: int, held: tuple[Held, ...]
    ) -> bytes:
        """A payload that asks for a session; each with a key and a nonce of its own.

        `version`: that we have reached; `held`: leases that we can still answer.
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
        if self._key is None:
            raise WireError("sealed before there is a session")
        return open_sealed(payload, self._key, "to worker")

    def from_leader(self, payload: bytes, label: str) -> AnyMessage:
        """What the leader signed for everybody. Raises `WireError`."""
        return open_signed(payload, self._require_led().leader, label, (self.run,))

    def hear_update(self, payload: bytes) -> Update:
        """An update that belongs to the run, of this epoch or an earlier one. Raises `WireError`.

        Who led before and does not know that it is over may go on making updates: whatever is not
        by the leader ends at the version from which it leads, as far as that was heard.
        """
        led, authority = self._require_led(), self._authority
        assert authority is not None
        update = authority.open_update(payload)
        rank = authority.rank(update.epoch, authority.signer(update))
        assert rank is not None
        made, held = precedence(update.epoch, rank), led.precedence
        if made > held:
            raise WireError(f"update {update.version} of epoch {update.epoch}, not announced yet")
        if made < held and update.version >= self._begins:
            raise WireError(
                f"update {update.version} of epoch {update.epoch}: epoch {led.epoch.number} "
                f"went on from version {self._begins} without it"
            )
        return update

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

    def _require_led(self) -> Announcement:
        if self.led is None:
            raise WireError("signed before it is known who leads")
        return self.led

    def _still_holds(self) -> Announcement | None:
        """The announcement that held so far, unless a new charter says that its leader may not."""
        led, authority = self.led, self._authority
        if led is None or authority is None:
            return None
        rank = authority.rank(led.epoch.number, led.leader)
        return led if rank == led.epoch.rank else None

    def _goes_on(self, known: Announcement, heard: Announcement) -> bool:
        """Whether an announcement takes the place of the one that held. Raises `WireError` where
        its epoch is over."""
        if heard.precedence < known.precedence:
            raise WireError(
                f"epoch {heard.epoch.number} by {fingerprint(heard.leader)} is over: epoch "
                f"{known.epoch.number} is led by {fingerprint(known.leader)}"
            )
        if heard.precedence == known.precedence:
            self._begins = min(self._begins, heard.epoch.version)
            return heard.epoch != known.epoch and heard.epoch.version >= known.epoch.version
        return True

    def _require_expected(self, root: bytes) -> None:
        """Raises where the run's key is proved, but is another one than we must expect."""
        found = fingerprint(root)
        if self.fingerprint in (None, found):
            return
        # A run's name has only 32 bits of its key: once the right key has spoken, another one
        # that matches is a forgery, and no reason to leave.
        if self.led is not None:
            raise WireError(
                f"fingerprint mismatch: {found} says that it leads {self.run}, "
                f"but it must be {self.fingerprint}"
            )
        raise WrongLineError(
            f"the run {self.run} is led by the key {found}, but your join line says "
            f"{self.fingerprint}: the line is mistyped or not this host's; ask the host for a "
            "new line"
        )

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
