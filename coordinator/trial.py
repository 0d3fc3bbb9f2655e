"""Tries at the start of a host whether the broker lets it say, and read, what it must.

Brokers drop what somebody may not publish without a word, and agree to subscriptions whose messages
they then keep back: only what comes back proves that both are allowed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from coordinator.peers import Leader
from protocol import topics
from protocol.errors import ShoalError
from protocol.link import Link

ATTEMPTS = 4
ATTEMPT_SECONDS = 2.0
SLOW_SECONDS = 1.0
"""A broker that answers after longer is busy, which proves nothing."""
PROBE = b""
"""Says nothing, and nobody heeds it."""


class ForbiddenError(ShoalError):
    """The broker does not let the host do what it must."""


class Trial:
    """Publishes on each kind of topic, and waits until it is heard."""

    def __init__(
        self,
        link: Link,
        leader: Leader,
        session: str,
        beat: Callable[[], None],
    ) -> None:
        """`session` is a name for topics of our own; `beat` gives a sign of life."""
        self._link = link
        self._beat = beat
        run, worker = leader.run, leader.identity.worker
        self._epoch = topics.epoch(run)
        self._beats = topics.beat(run)
        self._inbox = topics.inbox(run, worker, session)
        self._update = topics.update(run)
        kinds = (topics.request, topics.results, topics.status)
        self._ours = [self._inbox, *(kind(run, worker, session) for kind in kinds)]
        self._unheard = {self._epoch, self._beats, self._update, topics.HERE, *self._ours}
        self._heard = asyncio.Event()

    def hear(self, topic: str, payload: bytes) -> bool:
        """A message came on a topic; whether it is one that only tries whether that is so."""
        if self._unheard:
            self._unheard.discard(topic)
            if not self._unheard:
                self._heard.set()
        return payload == PROBE and topic in self._ours

    async def run(self) -> None:
        """Returns once all was heard. Raises ForbiddenError, and FatalLinkError."""
        seen = {self._beats: 0, self._update: 0, topics.HERE: 0, self._inbox: 0}
        await self._link.subscribe(seen)
        try:
            if not await self._proved(self._say):
                raise ForbiddenError(
                    f"{self._broker} does not pass on what this host publishes on "
                    f"{', '.join(sorted(self._unheard))}, or lets it not read that: allow the "
                    f"host's account to publish and subscribe to {topics.PREFIX}/#"
                )
            # What is retained comes again with each new subscription.
            self._unheard = {self._epoch}
            self._heard.clear()
            if not await self._proved(self._ask):
                raise ForbiddenError(
                    f"{self._broker} does not keep the retained message on {self._epoch}, without "
                    "which no newcomer learns of the run: allow retained messages there"
                )
        finally:
            self._unheard = set()
            await self._link.unsubscribe(*seen)

    async def _proved(self, attempt: Callable[[], Awaitable[None]]) -> bool:
        """Whether all is heard after attempts that a broker which is there and not busy has had."""
        attempts = 0
        while attempts < ATTEMPTS:
            await attempt()
            try:
                async with asyncio.timeout(ATTEMPT_SECONDS):
                    await self._heard.wait()
                    return True
            except TimeoutError:
                attempts += self._link.connected and self._link.answers_after < SLOW_SECONDS
        return False

    async def _say(self) -> None:
        """Say what was not heard yet; the epoch was announced at the connection."""
        self._beat()
        for topic in self._unheard - {self._epoch, self._beats}:
            self._link.publish(topic, PROBE, qos=1)

    async def _ask(self) -> None:
        await self._link.subscribe({self._epoch: 1})

    @property
    def _broker(self) -> str:
        return self._link.address.broker
