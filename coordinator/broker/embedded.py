"""A small MQTT broker inside this process, for loopback and a trusted network."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Mapping
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Self

from coordinator.broker import address
from coordinator.broker.advice import Load
from coordinator.broker.files import within_this_process
from coordinator.broker.limits import BrokerLimits
from coordinator.broker.rules import Rules

if TYPE_CHECKING:
    from coordinator.broker.guarded import GuardedBroker
    from coordinator.broker.tls import Tls


class EmbeddedBroker:
    """Serves MQTT 3.1.1 on the running event loop while its context is open.

    Good for about 100 workers that are known; for more, or for strangers, use mosquitto.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        limits: BrokerLimits | None = None,
        tls: Tls | None = None,
        rules: Rules | None = None,
    ) -> None:
        """Choose the address (port 0: a free one) and what clients may take, say and read.

        Nothing is opened before the context is entered, which raises ShoalError where the
        address cannot be listened on.
        """
        self._host = host
        self._port = port
        self._limits = limits or BrokerLimits()
        self._tls = tls
        self._rules = rules
        self._broker: GuardedBroker | None = None

    @property
    def url(self) -> str:
        """Where the host reaches the broker, like ``mqtt://127.0.0.1:1883``; see `public`."""
        return address.as_host(self.public(address.inward(self._host)), self._rules)

    def public(self, host: str) -> str:
        """Where others reach it, at an address of this machine."""
        return address.url(host, self._port, self._tls)

    @property
    def load(self) -> Load:
        """How much it has to do; how late its loop is, that loop tells."""
        broker = self._broker
        return Load() if broker is None else Load(broker.connected, 0.0, broker.waiting)

    def admit(self, passes: Mapping[str, str]) -> None:
        """Let in who has one of these passwords, and nobody else any more; needs rules."""
        assert self._rules is not None and self._broker is not None
        self._rules = replace(self._rules, passes=passes)
        self._broker.change_rules(self._rules)

    async def __aenter__(self) -> Self:
        """Take the address and serve it."""
        listener = address.take(self._host, self._port)
        self._port = listener.getsockname()[1]
        try:
            limits = within_this_process(self._limits)
            broker = _quiet_broker(listener, limits, self._tls, self._rules)
            await broker.start()
        except BaseException:
            # Who is interrupted here leaves a loop that would accept from a closed socket.
            asyncio.get_running_loop().remove_reader(listener)
            listener.close()
            raise
        self._broker = broker
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Hand out what is queued, disconnect everyone and free the address."""
        if self._broker is not None:
            await self._broker.shutdown()
            self._broker = None


def _quiet_broker(
    listener: socket.socket, limits: BrokerLimits, tls: Tls | None, rules: Rules | None
) -> GuardedBroker:
    """Import amqtt, which takes a tenth of a second, only here; what we have to say suffices."""
    logging.getLogger("amqtt").setLevel(logging.CRITICAL)
    logging.getLogger("transitions").setLevel(logging.CRITICAL)
    from coordinator.broker.guarded import GuardedBroker

    return GuardedBroker(listener, limits, tls.context() if tls else None, rules)
