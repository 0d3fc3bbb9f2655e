"""May we lead? Learns whether the broker is there, and whether somebody leads the run already."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from protocol import topics
from protocol.address import Address
from protocol.authority import Authority, read_epoch
from protocol.envelope import open_plain
from protocol.errors import ShoalError
from protocol.identity import Identity, new_session
from protocol.link import Link, client_id
from protocol.messages import Beat
from protocol.packing import WireError

CONTACT_SECONDS = 5.0
"""Seconds that a broker may take to answer for the first time; later it may take for ever."""
LISTEN_SECONDS = 5.0
"""Seconds in which who leads already would be heard twice: there is a beat every 2 s."""


START_ONE = "start one there, check the address, or let --broker auto start one here"
"""What a host does about a broker that is not there."""


class UnreachableError(ShoalError):
    """No broker answers where one should be."""


class AlreadyLedError(ShoalError):
    """Somebody leads the run at this moment."""


class Contact:
    """Waits for the first connection of a link, and remembers why there is none."""

    def __init__(
        self, address: Address, on_retry: Callable[[str], None], remedy: str = START_ONE
    ) -> None:
        """`on_retry` gets a line for people, about every attempt that failed after the first;
        `remedy` says what to do where none succeeds."""
        self._address = address
        self._remedy = remedy
        self._on_retry = on_retry
        self._made = asyncio.Event()
        self._reason = "no answer"

    def made(self, first: bool) -> None:
        """The link is connected."""
        self._made.set()

    def failed(self, reason: str, delay: float) -> None:
        """The link is not, and tries again in `delay` seconds."""
        self._reason = reason
        if self._made.is_set():
            self._on_retry(
                f"broker {self._address.broker} unreachable ({reason}), next try in {delay:.1f} s"
            )

    async def wait(self) -> None:
        """Returns at the first connection. Raises `UnreachableError` where it takes too long."""
        try:
            async with asyncio.timeout(CONTACT_SECONDS):
                await self._made.wait()
        except TimeoutError:
            raise UnreachableError(
                f"no broker can be reached at {self._address.broker} ({self._reason}): "
                f"{self._remedy}"
            ) from None


class Predecessors:
    """What is heard of others who lead, or led, the run.

    Attributes:
        highest: number of the highest epoch announced.
        alive: somebody leads now.
    """

    def __init__(self, authority: Authority) -> None:
        self._authority = authority
        self.highest = 0
        self.alive = asyncio.Event()

    def hear(self, topic: str, payload: bytes) -> None:
        """Anything on the topics of a leader: what is not proved or not a beat is nothing."""
        run = self._authority.run
        try:
            if topic == topics.epoch(run):
                heard = read_epoch(payload, run, self._authority)
                self.highest = max(self.highest, heard.epoch.number)
            elif topic == topics.beat(run):
                beat = open_plain(payload)
                if isinstance(beat, Beat) and beat.phase not in ("lost", "finished"):
                    self.alive.set()
        except WireError:
            return


async def next_epoch(address: Address, authority: Authority, identity: Identity) -> int:
    """The number of the epoch with which a new run begins: one above the highest announced.

    Only a key that was used before can have a predecessor. Raises `AlreadyLedError` where one is
    heard within LISTEN_SECONDS, `UnreachableError`, and `FatalLinkError`.
    """
    run = authority.run
    predecessors = Predecessors(authority)
    contact = Contact(address, lambda line: None)
    link = Link(
        address,
        client_id=client_id(identity.worker, new_session()),
        on_message=predecessors.hear,
        name=identity.worker,
        on_connected=contact.made,
        on_retry=contact.failed,
        subscriptions=topics.leader_filters(run),
    )
    linking = asyncio.ensure_future(link.run())
    listening = asyncio.ensure_future(_listen(contact, predecessors))
    try:
        await asyncio.wait((linking, listening), return_when=asyncio.FIRST_COMPLETED)
        if linking.done():
            linking.result()
        alive = await listening
    finally:
        listening.cancel()
        await link.close()
        linking.cancel()
        await asyncio.gather(linking, listening, return_exceptions=True)
    if alive:
        raise AlreadyLedError(
            f"the run {run} is led at {address.broker} by another process: "
            "stop that one, or give another --name or --key"
        )
    return predecessors.highest + 1


async def _listen(contact: Contact, predecessors: Predecessors) -> bool:
    await contact.wait()
    try:
        async with asyncio.timeout(LISTEN_SECONDS):
            await predecessors.alive.wait()
    except TimeoutError:
        return False
    return True
