"""Which runs are led through a broker: asks `who`, and listens to who says `here`."""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections.abc import Callable

from protocol import topics
from protocol.address import Address, join_line
from protocol.envelope import plain
from protocol.errors import ShoalError
from protocol.exit_codes import UNREACHABLE
from protocol.identity import Identity, fingerprint, new_session
from protocol.link import Link, client_id
from protocol.messages import Who
from protocol.packing import WireError
from protocol.runs_here import RunsHere
from worker.console import harmless

ANSWERS_WITHIN = 1.0
"""Seconds that all who lead a run here have to answer."""
ASK_EVERY = 3.0


class SeveralRunsError(ShoalError):
    """More than one run is here: the volunteer must choose."""


class NoRunError(ShoalError):
    """No run is here, and we were told not to wait for one."""

    exit_code = UNREACHABLE


class Runs(RunsHere):
    """Of the runs that are here the one to join. Pure."""

    def choose(self, address: Address) -> Address | None:
        """The address with the only run that can be joined; None where there is none.

        Raises `SeveralRunsError` with the lines to choose from.
        """
        open_runs = self.open
        if len(open_runs) > 1:
            lines = [
                f"  {join_line(address.pinned_broker, here.run, fingerprint(here.host_key))}"
                f"    ({harmless(here.environment)})"
                for here in open_runs
            ]
            raise SeveralRunsError(
                "\n".join([f"{len(lines)} runs are at {address.broker}; join one of them:", *lines])
            )
        if not open_runs:
            return None
        return dataclasses.replace(address, run=open_runs[0].run)


async def find_run(
    address: Address,
    identity: Identity,
    say: Callable[[str], None],
    on_retry: Callable[[str, float], None],
    once: bool,
) -> Address:
    """The address with the run that is led there, waited for unless `once`.

    Raises:
        SeveralRunsError, NoRunError: see there.
        FatalLinkError: the broker will not have us.
    """
    runs = Runs(address.fingerprint)
    connected = asyncio.Event()

    def hear(topic: str, payload: bytes) -> None:
        try:
            runs.hear(payload)
        except WireError:
            return  # others may say what they like on an open topic

    link = Link(
        address,
        client_id=client_id(identity.worker, new_session(os.urandom)),
        on_message=hear,
        name=identity.worker,
        on_connected=lambda first: connected.set(),
        on_disconnected=lambda reason: connected.clear(),
        on_retry=on_retry,
        subscriptions={topics.HERE: 0},
    )
    running = asyncio.create_task(link.run())
    try:
        asking = asyncio.create_task(_ask(link, connected, runs, address, say, once))
        try:
            await asyncio.wait((running, asking), return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                running.result()
            return await asking
        finally:
            asking.cancel()
    finally:
        await link.close()
        running.cancel()


async def _ask(
    link: Link,
    connected: asyncio.Event,
    runs: Runs,
    address: Address,
    say: Callable[[str], None],
    once: bool,
) -> Address:
    told = False
    while True:
        await connected.wait()
        link.publish(topics.WHO, plain(Who()))
        await asyncio.sleep(ANSWERS_WITHIN)
        chosen = runs.choose(address)
        if chosen is not None:
            return chosen
        await asyncio.sleep(ASK_EVERY - ANSWERS_WITHIN)
        chosen = runs.choose(address)
        if chosen is not None:
            return chosen
        if once:
            raise NoRunError(
                f"no run is led at {address.broker}: start one with `shoal host`, "
                "or check the address"
            )
        if not told:
            say(f"no run is led at {address.broker} yet; asking every {ASK_EVERY:.0f} s")
            told = True
