"""Looks on the local network for runs that announce themselves."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

from protocol.errors import ShoalError
from protocol.nearby import SERVICE, Nearby, heard, hush, networks

if TYPE_CHECKING:
    from zeroconf.asyncio import AsyncZeroconf

LOOK_SECONDS = 2.0
ASK_EVERY = 0.5
"""Seconds between two questions to all: one may be lost."""
SEE_EVERY = 0.05
MOST_FOUND = 64
"""Announcements that are looked at: anybody on the network can make any number."""
ANSWER_MILLISECONDS = 1500
NAME = re.compile(rf"[a-z0-9-]{{1,63}}\.{re.escape(SERVICE)}")
"""What hosts call their announcement; others are somebody else's."""


async def look_around(seconds: float = LOOK_SECONDS) -> list[Nearby]:
    """Whoever announces a run within so many seconds, by the run's name.

    Raises ShoalError where this machine can't look.
    """
    from zeroconf import InterfaceChoice, IPVersion
    from zeroconf.asyncio import AsyncZeroconf

    try:
        network = AsyncZeroconf(
            interfaces=networks() or InterfaceChoice.All, ip_version=IPVersion.V4Only
        )
    except OSError as error:
        raise ShoalError(
            f"can't look on the local network ({error.strerror or error}): give the join line"
        ) from None
    hush(asyncio.get_running_loop())
    asking: dict[str, asyncio.Task[Nearby | None]] = {}
    try:
        await network.zeroconf.async_wait_for_start()
        await _look(network, seconds, asking)
    finally:
        for task in asking.values():
            task.cancel()
        told = await asyncio.gather(*asking.values(), return_exceptions=True)
        await network.async_close()
    found = {str(nearby.address): nearby for nearby in told if isinstance(nearby, Nearby)}
    return sorted(found.values(), key=lambda nearby: str(nearby.address.run))


async def _look(
    network: AsyncZeroconf, seconds: float, asking: dict[str, asyncio.Task[Nearby | None]]
) -> None:
    """Ask all, and each whose name comes for what it says.

    The library has a browser of its own; it tells all in each question which names it knows, and
    falls silent once a stranger announces one that can't be written.
    """
    loop = asyncio.get_running_loop()
    ends, ask_at = loop.time() + seconds, loop.time()
    while (moment := loop.time()) < ends:
        if moment >= ask_at:
            ask_at = moment + ASK_EVERY
            _ask_all(network)
        for record in network.zeroconf.cache.entries_with_name(SERVICE):
            name = getattr(record, "alias", "")
            if name not in asking and len(asking) < MOST_FOUND and NAME.fullmatch(name):
                asking[name] = asyncio.ensure_future(_ask(network, name))
        await asyncio.sleep(SEE_EVERY)


def _ask_all(network: AsyncZeroconf) -> None:
    from zeroconf import DNSOutgoing, DNSQuestion  # type: ignore[attr-defined]

    question, pointer, internet = 0x0000, 12, 1  # as RFC 1035 has them
    asked = DNSOutgoing(question)
    asked.add_question(DNSQuestion(SERVICE, pointer, internet))
    network.zeroconf.async_send(asked)


async def _ask(network: AsyncZeroconf, name: str) -> Nearby | None:
    said = await network.async_get_service_info(SERVICE, name, ANSWER_MILLISECONDS)
    return heard(said.properties) if said is not None else None
