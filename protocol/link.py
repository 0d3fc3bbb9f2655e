"""The line to the broker that never gives up: reconnects, resubscribes, and passes messages."""

from __future__ import annotations

import asyncio
import logging
import random as random_module
import ssl
from collections.abc import Callable
from typing import Literal

from protocol.address import Address
from protocol.backoff import Outage, next_delay
from protocol.connection import (
    Connection,
    ConnectionLostError,
    ConnectionSettings,
    RefusedError,
    SubscriptionRefusedError,
    Will,
)
from protocol.dial import CertificateError
from protocol.errors import ShoalError
from protocol.invites import login_of
from protocol.packing import MAX_MESSAGE
from protocol.wire_count import WireCount

KEEPALIVE = 10
"""Seconds. A broker publishes the will of a peer that was silent for one and a half of them."""

TOLD_AGAIN = 0.2
"""Seconds after which an outage is worth a second word; each further one comes after twice as long,
or for another reason."""

MAX_HELD = 8 * 1024 * 1024
"""Bytes of early messages that are kept until `on_connected` was called."""

FatalReason = Literal[
    "protocol", "identifier", "credentials", "authorisation", "certificate", "subscription"
]

_LOGGER = logging.getLogger("shoal.link")

_REFUSALS: dict[int, FatalReason] = {
    1: "protocol",
    2: "identifier",
    4: "credentials",
    5: "authorisation",
}

_NAMES: tuple[FatalReason, ...] = ("credentials", "authorisation")
"""Refusals that a broker may give for the name and the password alone."""

User = tuple[str | None, str | None]
"""A name and a password, or neither."""

__all__ = ["FatalLinkError", "FatalReason", "Link", "Will", "client_id"]


class FatalLinkError(ShoalError):
    """The broker will not have us, and trying again would not change that."""

    def __init__(self, reason: FatalReason, message: str) -> None:
        super().__init__(message)
        self.reason: FatalReason = reason


def client_id(worker: str, session: str) -> str:
    """The MQTT client identifier of one session: a broker allows each only once."""
    return f"shoal-{worker}-{session}"


_REMEDY = (
    "give user:password@ before the host in the address, or the token of an invite (SHOAL_INVITE); "
    "ask the host, or the broker's owner"
)


def _users(address: Address, name: str | None) -> list[User]:
    """As whom we may try to come in, one after the other."""
    if address.user is not None:
        return [(address.user, address.password)]
    users: list[User] = [(name, None)] if name is not None else []
    if address.invite:
        users.append(login_of(address.invite))
    return [*users, (None, None)]


def _ignore(*_: object) -> None:
    pass


def _abandon(connecting: asyncio.Future[Connection]) -> None:
    """End a connection that came up when nobody wanted it any more."""
    if not connecting.cancelled() and connecting.exception() is None:
        connecting.result().abort()


class Link:
    """A broker connection as the daemons see it: it is there, or it will be again.

    All callbacks are called in the event loop, and must not block it:

    - `on_message(topic, payload)`, for every message of at most 256 KiB; it may call `publish`.
      What it raises is logged, and the next message comes as if nothing had happened.
    - `on_connected(first)`, once subscriptions are in place and before the first message.
    - `on_disconnected(reason)`, for each `on_connected` whose connection was lost (not after
      `close`).
    - `on_retry(reason, delay)`: no connection now, the next attempt is in `delay` seconds. Called
      for the first attempt that failed and for each new reason, else ever more rarely.
    - `on_connecting()`, before each attempt: the place to change `client_id`, `will` and
      `subscriptions` where a new connection is a new session.
    """

    def __init__(
        self,
        address: Address,
        *,
        client_id: str,
        on_message: Callable[[str, bytes], None],
        name: str | None = None,
        on_connected: Callable[[bool], None] = _ignore,
        on_disconnected: Callable[[str], None] = _ignore,
        on_retry: Callable[[str, float], None] = _ignore,
        on_connecting: Callable[[], None] = _ignore,
        will: Will | None = None,
        subscriptions: dict[str, int] | None = None,
        keepalive: int = KEEPALIVE,
        tls_context: ssl.SSLContext | None = None,
        random: random_module.Random | None = None,
    ) -> None:
        """A link that does nothing until `run`.

        `client_id`: something is added to it after a broker hung up on us. `name`: our user name
        where the address has none, so that a broker can hold us to our own topics; a broker that
        refuses it gets the login of our invite, or no name. `subscriptions`: filter -> QoS (0 or
        1). `keepalive`: seconds between signs of life. `tls_context`: for mqtts, instead of the
        system's certificate authorities. `random`: where the jitter of the back-off comes from.
        """
        self.address = address
        self.client_id = client_id
        self.will = will
        self._users = _users(address, name)
        self.subscriptions: dict[str, int] = dict(subscriptions or {})
        self.wire = WireCount()
        self._on_message = on_message
        self._on_connected = on_connected
        self._on_disconnected = on_disconnected
        self._on_retry = on_retry
        self._on_connecting = on_connecting
        self._keepalive = keepalive
        self._tls_context = tls_context
        self._random = random or random_module.Random()
        self._connection: Connection | None = None
        self._alias = ""
        self._held: list[tuple[str, bytes]] | None = None
        self._held_bytes = 0
        self._closing = asyncio.Event()

    @property
    def connected(self) -> bool:
        """Whether messages can be published now."""
        return self._connection is not None and not self._connection.lost.done()

    @property
    def unsent(self) -> int:
        """Bytes that wait for the broker to take them: who sends much, looks here first."""
        return 0 if self._connection is None else self._connection.unsent

    @property
    def answers_after(self) -> float:
        """Seconds after which the broker answers, as far as it was asked: by `ping`, or by a
        message of QoS 1; 0 without a connection."""
        return 0.0 if self._connection is None else self._connection.answers_after

    def ping(self) -> None:
        """Ask the broker for an answer, to learn how slow it is."""
        if self._connection is not None:
            self._connection.ping()

    async def run(self) -> None:
        """Be connected, for ever; returns after `close`.

        Raises FatalLinkError where only a person can help. Cancelled, it cuts the connection
        without a goodbye, so that the will tells the others.
        """
        first = True
        loop = asyncio.get_running_loop()
        outage = Outage()
        told, tell_at = "", 0.0
        down = loop.time()
        while not self._closing.is_set():
            reason, up_for = await self._one_life(first)
            ended = loop.time()
            if up_for is None:
                outage.waited(ended - down)
            else:
                first = False
                outage.waited(ended - up_for - down)
                outage.was_up(up_for)
                if not outage.away:
                    told = ""
            down = ended
            if self._closing.is_set():
                return
            delay = next_delay(outage.away, self._random)
            if reason != told or outage.away >= tell_at:
                told, tell_at = reason, 2.0 * outage.away + TOLD_AGAIN
                self._on_retry(reason, delay)
            try:
                async with asyncio.timeout(delay):
                    await self._closing.wait()
            except TimeoutError:
                continue

    def publish(self, topic: str, payload: bytes, qos: int = 0, retain: bool = False) -> bool:
        """Hand a message over without waiting; QoS 0 or 1.

        True: it is on its way to the broker, which promises nothing. False: not connected, or the
        broker is too slow to take more; the message is dropped, and what matters must be sent
        again by who sent it. Raises ValueError for more than 256 KiB.
        """
        if len(payload) > MAX_MESSAGE:
            raise ValueError(f"a message has at most {MAX_MESSAGE} bytes, not {len(payload)}")
        if self._connection is None:
            return False
        return self._connection.publish(topic, payload, qos, retain)

    async def subscribe(self, filters: dict[str, int]) -> None:
        """Subscribe to filter -> QoS, now and after every reconnection.

        Returns when the broker has agreed, or at once while there is no connection. Raises
        FatalLinkError where the broker refuses.
        """
        self.subscriptions.update(filters)
        if self._connection is None:
            return
        try:
            await self._connection.subscribe(filters)
        except ConnectionLostError:
            return  # the next connection subscribes
        except SubscriptionRefusedError as error:
            raise self._fatal_subscription(error) from None

    async def unsubscribe(self, *filters: str) -> None:
        """Returns when the broker has agreed, or at once while there is no connection."""
        for name in filters:
            self.subscriptions.pop(name, None)
        if self._connection is None:
            return
        try:
            await self._connection.unsubscribe(list(filters))
        except ConnectionLostError:
            return

    async def close(self) -> None:
        """Send what is left, say goodbye to the broker (no will) and let `run` return."""
        self._closing.set()
        if self._connection is not None:
            await self._connection.close()

    def abort(self) -> None:
        """Cut the connection as a crash would (the will is published); `run` reconnects."""
        if self._connection is not None:
            self._connection.abort()

    async def _one_life(self, first: bool) -> tuple[str, float | None]:
        """One connection from its attempt to its end: (why it ended, seconds for which it was up,
        None where it never was)."""
        self._on_connecting()
        self._held, self._held_bytes = [], 0
        connecting = asyncio.ensure_future(self._connect())
        closing = asyncio.ensure_future(self._closing.wait())
        try:
            await asyncio.wait((connecting, closing), return_when=asyncio.FIRST_COMPLETED)
            if not connecting.done():
                return "closed", None
            connection = connecting.result()
        except ConnectionLostError as error:
            return str(error), None
        except asyncio.CancelledError:
            connecting.add_done_callback(_abandon)
            raise
        finally:
            connecting.cancel()
            closing.cancel()
        if self._closing.is_set():
            await connection.close()
            return "closed", None
        self._connection = connection
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            self._on_connected(first)
            self._release_held()
            reason = await asyncio.shield(connection.lost)
        finally:
            self._connection = None
            connection.abort()
        up_for = loop.time() - began
        if connection.hung_up:
            # Perhaps because another client has our identifier: nobody gains by throwing each other
            # out for ever. The broker knows that we are gone, so it keeps no will of that one.
            self._alias = f"-{self._random.getrandbits(24):06x}"
        if not self._closing.is_set():
            self._on_disconnected(reason)
        return reason, up_for

    async def _connect(self) -> Connection:
        """A connection with all subscriptions. Raises ConnectionLostError or FatalLinkError."""
        try:
            connection = await self._open()
        except RefusedError as error:
            raise self._fatal_refusal(error) from None
        except CertificateError as error:
            raise FatalLinkError("certificate", str(error)) from None
        try:
            subscribed: dict[str, int] = {}
            while missing := {
                name: qos for name, qos in self.subscriptions.items() if subscribed.get(name) != qos
            }:
                await connection.subscribe(missing)
                subscribed |= missing
        except SubscriptionRefusedError as error:
            await connection.close()
            raise self._fatal_subscription(error) from None
        except BaseException:
            connection.leave()
            raise
        return connection

    async def _open(self) -> Connection:
        """A connection as the first of our users that the broker takes; it is asked no more for
        those that it did not take."""
        while True:
            user, password = self._users[0]
            settings = ConnectionSettings(
                self.address,
                self.client_id + self._alias,
                user,
                password,
                self.will,
                self._keepalive,
                self._tls_context,
            )
            try:
                return await Connection.open(settings, self._deliver, self.wire)
            except RefusedError as error:
                if len(self._users) == 1 or _REFUSALS.get(error.code) not in _NAMES:
                    raise
            self._users.pop(0)

    def _deliver(self, topic: str, payload: bytes) -> None:
        if self._held is not None:
            # The broker may send before we know that it agreed to send.
            self._held_bytes += len(topic) + len(payload)
            if self._held_bytes <= MAX_HELD:
                self._held.append((topic, payload))
            return
        try:
            self._on_message(topic, payload)
        except Exception:
            _LOGGER.exception("a message on %s could not be handled", topic[:200])

    def _release_held(self) -> None:
        held, self._held = self._held or [], None
        for topic, payload in held:
            self._deliver(topic, payload)

    def _fatal_refusal(self, error: RefusedError) -> FatalLinkError:
        reason = _REFUSALS.get(error.code, "protocol")
        user = self.address.user
        if user is None and self.address.invite and reason in _NAMES:
            message = (
                "does not take the invite: it was revoked, or is for another run; ask the host for "
                "another token"
            )
        elif reason == "credentials":
            who = "without user name" if user is None else f"the password of user {user!r}"
            message = f"refuses {who}: {_REMEDY}"
        elif reason == "authorisation":
            who = "anonymous clients" if user is None else f"user {user!r}"
            message = f"does not authorise {who}: {_REMEDY}"
        elif reason == "identifier":
            message = (
                f"refuses the client identifier {self.client_id!r}: "
                "ask the broker's owner which ones it takes"
            )
        else:
            message = (
                f"refuses MQTT 3.1.1 (return code {error.code}): "
                "use a broker that speaks it, such as mosquitto"
            )
        return FatalLinkError(reason, f"{self.address.broker} {message}")

    def _fatal_subscription(self, error: SubscriptionRefusedError) -> FatalLinkError:
        return FatalLinkError(
            "subscription",
            f"{self.address.broker} does not let us read {', '.join(error.filters)[:300]}: "
            "ask the broker's owner for access to shoal/#",
        )
