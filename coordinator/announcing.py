"""Announces a run on the local network, so that volunteers there find it without a join line."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from coordinator.broker.address import outward
from protocol.errors import ShoalError
from protocol.nearby import LONGEST_NAME, SERVICE, Nearby, announced, hush, networks

if TYPE_CHECKING:
    from zeroconf import ServiceInfo

GOODBYE_SECONDS = 2.0
"""Seconds that taking the announcement back may delay the host's end."""


@asynccontextmanager
async def announcing(
    what: Nearby, bind: str, say: Callable[[str], None]
) -> AsyncIterator[Callable[[], None]]:
    """Gives what begins to announce; whatever was announced is taken back at the end.

    bind: the address that the broker listens on: on its network alone, or on all.
    say: gets a line where it can't be announced, which is no reason not to lead.
    """
    beginning: asyncio.Future[Any] | None = None

    def begin() -> None:
        nonlocal beginning
        if beginning is None:
            beginning = asyncio.ensure_future(asyncio.to_thread(_announce, what, bind))
            beginning.add_done_callback(lambda done: _tell(done, say))

    try:
        yield begin
    finally:
        if beginning is not None:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(GOODBYE_SECONDS):
                    network = await beginning
                    await asyncio.to_thread(network.close)


def _announce(what: Nearby, bind: str) -> Any:
    """Say it, and answer from now on to who asks, in a thread of the library's own."""
    from zeroconf import InterfaceChoice, IPVersion, Zeroconf

    here = outward(bind)
    service = _service(what, here)
    where = networks() or (InterfaceChoice.All if bind in ("0.0.0.0", "::", "") else [here])
    version = IPVersion.V6Only if ":" in here else IPVersion.V4Only
    network = Zeroconf(interfaces=where, ip_version=version)
    if network.loop is not None:
        hush(network.loop)
    try:
        network.register_service(service, allow_name_change=True)
    except BaseException:
        network.close()
        raise
    return network


def _service(what: Nearby, here: str) -> ServiceInfo:
    from zeroconf import ServiceInfo

    name = (what.address.run or "")[-LONGEST_NAME:].lstrip("-")
    return ServiceInfo(
        SERVICE,
        f"{name}.{SERVICE}",
        addresses=[ipaddress.ip_address(here).packed],
        port=what.address.port,
        properties=announced(what),
        server=f"{name}.local.",
    )


def _tell(done: asyncio.Future[Any], say: Callable[[str], None]) -> None:
    if done.cancelled() or (error := done.exception()) is None:
        return
    why = str(error) if isinstance(error, ShoalError) else f"{type(error).__name__}: {error}"
    say(f"not announced on the local network ({why[:200]}); the join line works as ever")
