"""A look at a broker and a run there, without taking part: who answers, who leads what."""

from __future__ import annotations

import asyncio
import dataclasses
from dataclasses import dataclass

from protocol import topics
from protocol.address import Address
from protocol.clock import now
from protocol.envelope import plain
from protocol.errors import ShoalError
from protocol.exit_codes import UNREACHABLE
from protocol.identity import Identity, new_session
from protocol.link import Link, client_id
from protocol.messages import Epoch, Here, Who
from protocol.packing import WireError
from protocol.spec import RunSpec
from worker.discovery import ANSWERS_WITHIN, Runs
from worker.handshake import Handshake

EPOCH_WITHIN = 6.0
"""Seconds that the run's announcement may take; it is retained, or else asked for."""
ASK_EVERY = 2.0


class NoAnswerError(ShoalError):
    """The broker can't be reached."""

    exit_code = UNREACHABLE


class SilentRunError(ShoalError):
    """Nobody announced the run."""

    exit_code = UNREACHABLE


@dataclass(frozen=True, slots=True)
class Visit:
    """What was found.

    Attributes:
        address: as it was given, with the run where there is only one, and the key that leads it.
        seconds: after which the broker had let us in.
        runs: that can be joined there, where the address named none.
        epoch: of the run, None where there is not one run alone.
        spec: of the run.
    """

    address: Address
    seconds: float
    runs: tuple[Here, ...] = ()
    epoch: Epoch | None = None
    spec: RunSpec | None = None


async def visit(address: Address, identity: Identity) -> Visit:
    """Connect, see which runs are led there, and hear who leads the one that is meant.

    Raises:
        NoAnswerError, SilentRunError: see there.
        FatalLinkError: the broker will not have us.
        UnsuitableError, WrongLineError: the run is none for us, or not the join line's.
    """
    visitor = _Visitor(address, identity)
    running = asyncio.create_task(visitor.link.run())
    looking = asyncio.create_task(visitor.look())
    try:
        await asyncio.wait((running, looking, visitor.failed), return_when=asyncio.FIRST_COMPLETED)
        if visitor.failed.done():
            raise visitor.failed.result()
        if not looking.done():
            running.result()
        return await looking
    finally:
        looking.cancel()
        visitor.failed.cancel()
        await visitor.link.close()
        running.cancel()
        await asyncio.gather(running, looking, visitor.failed, return_exceptions=True)


class _Visitor:
    def __init__(self, address: Address, identity: Identity) -> None:
        self.address = address
        self.failed: asyncio.Future[ShoalError] = asyncio.get_running_loop().create_future()
        self._identity = identity
        self._runs = Runs(address.fingerprint)
        self._handshake: Handshake | None = None
        self._announced = asyncio.Event()
        self._connected = asyncio.Event()
        self._session = new_session()
        self.link = Link(
            address,
            client_id=client_id(identity.worker, self._session),
            on_message=self._hear,
            name=identity.worker,
            on_connected=lambda first: self._connected.set(),
            on_retry=self._on_retry,
            subscriptions={topics.HERE: 0},
        )

    async def look(self) -> Visit:
        began = now()
        await self._connected.wait()
        seconds = now() - began
        runs: tuple[Here, ...] = ()
        address = self.address
        if address.run is None:
            self.link.publish(topics.WHO, plain(Who()))
            await asyncio.sleep(ANSWERS_WITHIN)
            runs = tuple(self._runs.open)
            if len(runs) != 1:
                return Visit(address, seconds, runs)
            address = dataclasses.replace(address, run=runs[0].run)
        handshake = await self._announcement(address)
        found = dataclasses.replace(address, fingerprint=handshake.fingerprint)
        return Visit(found, seconds, runs, handshake.epoch, handshake.spec)

    async def _announcement(self, address: Address) -> Handshake:
        assert address.run is not None
        self._handshake = Handshake(address.run, self._identity, self._session, address.fingerprint)
        await self.link.subscribe({topics.epoch(address.run): 1})
        try:
            async with asyncio.timeout(EPOCH_WITHIN):
                while not self._announced.is_set():
                    self.link.publish(topics.WHO, plain(Who()))
                    try:
                        async with asyncio.timeout(ASK_EVERY):
                            await self._announced.wait()
                    except TimeoutError:
                        continue
        except TimeoutError:
            raise SilentRunError(
                f"nobody announced the run {address.run} within {EPOCH_WITHIN:.0f} s: "
                "check the join line, or ask the host"
            ) from None
        return self._handshake

    def _hear(self, topic: str, payload: bytes) -> None:
        try:
            if topic == topics.HERE:
                self._runs.hear(payload)
            elif self._handshake is not None:
                self._handshake.hear_epoch(payload)
                if self._handshake.epoch is not None:
                    self._announced.set()
        except WireError:
            return  # others may say what they like on an open topic
        except ShoalError as error:
            self._fail(error)

    def _on_retry(self, reason: str, delay: float) -> None:
        self._fail(
            NoAnswerError(
                f"broker unreachable at {self.address.broker} ({reason}): "
                "check the address, or ask the host"
            )
        )

    def _fail(self, error: ShoalError) -> None:
        if not self.failed.done():
            self.failed.set_result(error)
