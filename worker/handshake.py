"""Who leads the run: judges epochs, and what was signed for everybody."""

from __future__ import annotations

import os
import re

from protocol.authority import RUN_KEY, Announcement, Authority, precedence, read_epoch
from protocol.envelope import open_signed
from protocol.errors import ShoalError
from protocol.exit_codes import UNREACHABLE, UNSUITABLE
from protocol.greeting import CLIENT_VERSION, Greeting
from protocol.identity import Entropy, Identity, fingerprint
from protocol.messages import AnyMessage, Epoch, Update
from protocol.packing import WireError
from protocol.spec import PROTOCOL_VERSION, RunSpec, SpecError, from_bytes


class UnsuitableError(ShoalError):
    """A run that this version of the worker can't take part in."""

    exit_code = UNSUITABLE


class WrongLineError(ShoalError):
    """The join line names another key than the one that the run's name was made from."""

    exit_code = UNREACHABLE


class Handshake(Greeting):
    """One session's side of the agreement with whoever leads the run.

    Of all who prove that they may lead, the one with the greatest precedence is followed; what the
    others say counts for nothing.

    Attributes:
        fingerprint: of the key that the run's name was made from; that of the first valid epoch
            where the volunteer's join line named none.
        spec: the run's, from the first valid epoch.
    """

    def __init__(
        self,
        run: str,
        identity: Identity,
        session: str,
        expected_fingerprint: str | None = None,
        entropy: Entropy = os.urandom,
    ) -> None:
        super().__init__(run, identity, session, entropy)
        self.fingerprint = expected_fingerprint
        self.spec: RunSpec | None = None
        self._authority: Authority | None = None
        self._begins = 0
        self._spec_bytes = b""

    @property
    def epoch(self) -> Epoch | None:
        """What the leader says of the run."""
        return None if self.led is None else self.led.epoch

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
