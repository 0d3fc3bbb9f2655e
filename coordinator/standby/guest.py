"""A session with a run's leader for somebody who keeps the log: it judges who leads."""

from __future__ import annotations

from protocol.authority import Authority, read_epoch
from protocol.entrust import open_secret
from protocol.errors import ShoalError
from protocol.exit_codes import UNSUITABLE
from protocol.greeting import STANDBY, Greeting, Introduction
from protocol.identity import Identity, fingerprint, new_session
from protocol.messages import Entrust
from protocol.packing import WireError
from protocol.spec import PROTOCOL_VERSION

INTRODUCTION = Introduction(name=STANDBY, device=STANDBY)


class UnsuitableError(ShoalError):
    """A run that this version can't follow."""

    exit_code = UNSUITABLE


class Guest(Greeting):
    """One session of ours, and the epoch of the greatest precedence that was proved to us.

    Attributes:
        authority: the longest that was proved.
    """

    def __init__(
        self,
        run: str,
        root_fingerprint: str,
        identity: Identity,
        authority: Authority | None = None,
    ) -> None:
        """`root_fingerprint`: of the key that the run's name was made from. `authority`: as far as
        it is known."""
        super().__init__(run, identity, new_session())
        self.authority = authority
        self._root_fingerprint = root_fingerprint

    def hear_epoch(self, payload: bytes) -> bool:
        """Take in an announcement; whether somebody leads whom we did not know to.

        Raises `WireError` where it is not proved, or another epoch holds, and `UnsuitableError`.
        """
        said = read_epoch(payload, self.run, self.authority)
        if fingerprint(said.authority.root) != self._root_fingerprint:
            raise WireError("an epoch of another run with the same name")
        self.authority = said.authority
        known = self.led
        if known is not None and said.precedence < known.precedence:
            raise WireError("an epoch that another one has taken the place of")
        if said.epoch.protocol != PROTOCOL_VERSION:
            raise UnsuitableError(
                f"{self.run} speaks protocol {said.epoch.protocol}, this is {PROTOCOL_VERSION}: "
                "use the version of Shoal that its host uses"
            )
        self.led = said
        news = known is None or said.precedence > known.precedence
        if news:
            self.forget()
        return news

    def forget(self) -> None:
        """Nobody knows this session any more."""
        self._key = None
        self._hellos.clear()

    def secret(self, entrusted: Entrust) -> bytes:
        """The run's secret. Raises `WireError`."""
        return open_secret(self._require_key(), entrusted.box)
