"""Which runs are led through a broker: asks `who`, and listens to who says `here`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from random import Random

from protocol import topics
from protocol.address import Address
from protocol.clock import now
from protocol.envelope import plain
from protocol.identity import Identity, new_session
from protocol.link import Link, client_id
from protocol.messages import Who
from protocol.packing import WireError
from protocol.runs_here import RunsHere
from worker.limits import Hearing

ANSWERS_WITHIN = 1.0
"""Seconds that all who lead a run here have to answer."""
ASK_EVERY = 10.0
"""Seconds between two questions, give or take a fifth."""
SOON = 3.0
"""Seconds after the first question that the second one is put: an answer may have been lost."""
GONE_AFTER = 45.0
"""Seconds without an answer after which a run is not here any more."""


class Runs(RunsHere):
    """The runs that were heard of lately. Pure."""

    def __init__(self, expected_fingerprint: str | None = None) -> None:
        super().__init__(expected_fingerprint)
        self._heard: dict[str, float] = {}

    def heard(self, payload: bytes, now: float) -> None:
        """Take in an answer that came at that time. Raises `WireError`."""
        here = self._genuine(payload)
        self._take(here)
        if here.run in self._found:
            self._heard[here.run] = now

    def forget(self, run: str) -> None:
        """What was said of a run holds no more, until it is said again."""
        super().forget(run)
        self._heard.pop(run, None)

    def expire(self, now: float) -> None:
        """Forget those that nobody says anything of."""
        for run in [run for run, at in self._heard.items() if now - at > GONE_AFTER]:
            self.forget(run)


class Discovery:
    """Asks which runs are at a broker, again and again.

    Attributes:
        runs: that are there.
        answered: set once whoever is there had the time to say so.
        news: set by each answer; whoever looks clears it.
    """

    def __init__(
        self,
        address: Address,
        identity: Identity,
        random: Random,
        on_connecting: Callable[[], None],
        on_connected: Callable[[bool], None],
        on_disconnected: Callable[[str], None],
        on_retry: Callable[[str, float], None],
    ) -> None:
        """The callbacks are those of the link to the broker."""
        self.runs = Runs(address.fingerprint)
        self.answered = asyncio.Event()
        self.news = asyncio.Event()
        self._random = random
        self._hearing = Hearing()
        self._connected = asyncio.Event()
        self._on_connected, self._on_disconnected = on_connected, on_disconnected
        self.link = Link(
            address,
            client_id=client_id(identity.worker, new_session(os.urandom)),
            on_message=self._on_message,
            name=identity.worker,
            on_connected=self._there,
            on_disconnected=self._gone,
            on_retry=on_retry,
            on_connecting=on_connecting,
            subscriptions={topics.HERE: 0},
        )

    async def run(self) -> None:
        """Ask for ever. Raises FatalLinkError where the broker will not have us."""
        lives = [asyncio.ensure_future(life) for life in (self.link.run(), self._ask_for_ever())]
        try:
            done, _ = await asyncio.wait(lives, return_when=asyncio.FIRST_COMPLETED)
            for life in done:
                life.result()
        finally:
            for life in lives:
                life.cancel()
            await asyncio.gather(*lives, return_exceptions=True)

    async def _ask_for_ever(self) -> None:
        while True:
            await self._connected.wait()
            first = not self.answered.is_set()
            self.runs.expire(now())
            self.link.publish(topics.WHO, plain(Who()))
            await asyncio.sleep(ANSWERS_WITHIN)
            if self._connected.is_set():
                self.answered.set()
            pause = min(SOON, ASK_EVERY) if first else ASK_EVERY
            await asyncio.sleep(max(0.0, pause * self._random.uniform(0.8, 1.2) - ANSWERS_WITHIN))

    def _on_message(self, topic: str, payload: bytes) -> None:
        moment = now()
        if not self._hearing.takes("here", moment):
            return
        try:
            self.runs.heard(payload, moment)
        except WireError:
            return  # others may say what they like on an open topic
        self.news.set()

    def _there(self, first: bool) -> None:
        self._connected.set()
        self._on_connected(first)

    def _gone(self, reason: str) -> None:
        self._connected.clear()
        self._on_disconnected(reason)
