"""Looks on the local network for runs that announce themselves."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from protocol.errors import ShoalError
from protocol.nearby import SERVICE, Nearby, heard, networks

LOOK_SECONDS = 2.0
MOST_FOUND = 64
"""Announcements that are looked at: anybody on the network can make any number."""
ANSWER_MILLISECONDS = 1500


async def look_around(seconds: float = LOOK_SECONDS) -> list[Nearby]:
    """Whoever announces a run within so many seconds, by the run's name.

    Raises ShoalError where this machine can't look.
    """
    from zeroconf import InterfaceChoice, IPVersion
    from zeroconf.asyncio import AsyncServiceBrowser, AsyncZeroconf

    try:
        network = AsyncZeroconf(
            interfaces=networks() or InterfaceChoice.All, ip_version=IPVersion.V4Only
        )
    except OSError as error:
        raise ShoalError(
            f"can't look on the local network ({error.strerror or error}): give the join line"
        ) from None
    listener = _Listener(network)
    try:
        browser = AsyncServiceBrowser(network.zeroconf, SERVICE, listener=cast(Any, listener))
        await asyncio.sleep(seconds)
        await browser.async_cancel()
    finally:
        for asking in listener.asking:
            asking.cancel()
        await network.async_close()
    found = {str(nearby.address): nearby for nearby in listener.found}
    return sorted(found.values(), key=lambda nearby: str(nearby.address.run))


class _Listener:
    """Asks whoever is new for what it says; what comes later changes nothing."""

    def __init__(self, network: Any) -> None:
        self.found: list[Nearby] = []
        self.asking: list[asyncio.Task[None]] = []
        self._network = network

    def add_service(self, zeroconf: Any, kind: str, name: str) -> None:
        """Somebody has a name of that kind."""
        if len(self.asking) < MOST_FOUND:
            self.asking.append(asyncio.ensure_future(self._ask(kind, name)))

    def update_service(self, zeroconf: Any, kind: str, name: str) -> None:
        """It says something else now."""

    def remove_service(self, zeroconf: Any, kind: str, name: str) -> None:
        """It is gone; whoever joins sees it."""

    async def _ask(self, kind: str, name: str) -> None:
        try:
            said = await self._network.async_get_service_info(kind, name, ANSWER_MILLISECONDS)
        except Exception:  # a stranger's name may be none; the library has no error of its own
            return
        nearby = heard(said.properties) if said is not None else None
        if nearby is not None:
            self.found.append(nearby)
