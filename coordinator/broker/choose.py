"""Which broker a run uses: the one asked for, or the best that this machine has."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from coordinator.broker.address import is_loopback
from coordinator.broker.limits import BrokerLimits
from coordinator.broker.rules import Rules
from protocol.address import parse_address
from protocol.errors import ShoalError

if TYPE_CHECKING:
    from coordinator.broker.tls import Tls

_log = logging.getLogger("shoal.broker")


class RunningBroker(Protocol):
    """A broker that can be connected to."""

    @property
    def url(self) -> str:
        """Where the host reaches it, like ``mqtt://127.0.0.1:1883``; may have a password."""

    def public(self, host: str) -> str:
        """Where others reach it, at an address of this machine."""

    def admit(self, passes: Mapping[str, str]) -> None:
        """Let in who has one of these passwords alone, where it is ours and has rules."""


@dataclass(frozen=True)
class ExternalBroker:
    """A broker that someone else runs; entering and leaving its context does nothing."""

    url: str

    def public(self, host: str) -> str:
        """Where everybody reaches it."""
        return self.url

    def admit(self, passes: Mapping[str, str]) -> None:
        """Its owner decides."""

    async def __aenter__(self) -> Self:
        """Take it as it is."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Leave it as it is."""


def open_broker(
    choice: str = "auto",
    host: str = "127.0.0.1",
    port: int = 0,
    log_directory: Path | None = None,
    limits: BrokerLimits | None = None,
    tls: Tls | None = None,
    rules: Rules | None = None,
) -> AbstractAsyncContextManager[RunningBroker]:
    """Return the broker of `choice`; it runs, and has its `url`, while its context is open.

    choice: ``embedded`` (in this process), ``mosquitto`` (a child process), ``auto`` (mosquitto
        where it is installed, else embedded), or the URL of a broker that is already there.
    host, port: what ours listens on; port 0 takes a free one. Of no meaning with a URL.
    log_directory: where mosquitto's log goes.
    limits: what clients may take; None for the defaults.
    tls: the certificate to serve with; None: in the clear.
    rules: who may say and read what; None: everybody everything.

    Raises ShoalError for another choice, and on entering where the broker cannot start.
    """
    if choice == "auto":
        from coordinator.broker.mosquitto import find_mosquitto

        choice = "mosquitto" if find_mosquitto() else "embedded"
    if choice == "mosquitto":
        from coordinator.broker.mosquitto import MosquittoBroker

        return MosquittoBroker(host, port, limits, log_directory, tls, rules)
    if choice == "embedded":
        from coordinator.broker.embedded import EmbeddedBroker

        if not is_loopback(host):
            _log.warning(
                "broker: the embedded broker is for a network that you trust and up to 100 "
                "workers; install mosquitto for more"
            )
        return EmbeddedBroker(host, port, limits, tls, rules)
    return ExternalBroker(_checked_url(choice))


def _checked_url(choice: str) -> str:
    if "://" not in choice:
        raise ShoalError(
            f"broker {choice!r}: it must be auto, embedded, mosquitto or a URL like mqtt://host:1883"
        )
    parse_address(choice)
    return choice
