"""A worker that costs next to nothing: the wire alone, and episodes that take time but no work."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass, field
from random import Random
from urllib.parse import urlsplit

import numpy as np

from protocol import topics
from protocol.authority import Announcement, read_epoch
from protocol.envelope import Wrapping, open_sealed, peek_signed, sealed, signed, wrapping_of
from protocol.frames import CONNACK, PUBLISH, Packet, PacketReader, acknowledgement, publication
from protocol.frames import publish_packet as publish
from protocol.identity import Identity, SessionKeys, Transcript, new_nonce, new_session
from protocol.link import client_id
from protocol.messages import (
    Acknowledge,
    Bye,
    Hello,
    Message,
    Notice,
    Part,
    Result,
    ResultName,
    Status,
    Task,
    Welcome,
    pack_returns,
)
from protocol.packing import WireError
from protocol.spec import PROTOCOL_VERSION
from tests.contract.raw import PINGREQ, SUBSCRIBE, connect_packet, packet, text

KEEPALIVE = 60
SPEAK_EVERY = 10.0
"""Seconds after which a worker says that it lives, and whatever was not answered is sent again."""
LENGTH = 100
"""Steps of each episode."""


@dataclass
class Heard:
    """What all workers of a crowd have seen, since somebody last looked."""

    welcomed: int = 0
    tasks: int = 0
    directions: int = 0
    """of the tasks that came"""
    results: int = 0
    sent_again: int = 0
    refused: int = 0
    asked_to_slow_down: int = 0
    lost: int = 0
    """connections"""
    waits: list[float] = field(default_factory=list)
    """seconds from the last result of a task to the next task"""

    def forget(self) -> None:
        """Begin to count anew; who is welcomed stays so."""
        self.__init__(welcomed=self.welcomed)  # type: ignore[misc]


class Crowd:
    """What the workers of one run share."""

    def __init__(self, run: str, speed: float, parts: float, credit: int = 2) -> None:
        """`speed`: steps per second of each; `parts`: share of the tasks whose results come in two
        parts; `credit`: tasks that each holds at once."""
        self.run = run
        self.speed = speed
        self.parts = parts
        self.credit = credit
        self.heard = Heard()
        self.random = Random(1)
        self._known: tuple[bytes, Announcement] | None = None

    def epoch(self, payload: bytes) -> Announcement:
        """An announcement, which is proved once for all."""
        if self._known is None or self._known[0] != payload:
            self._known = payload, read_epoch(payload, self.run)
        return self._known[1]

    async def join(self, url: str, count: int) -> list[LightWorker]:
        """So many workers, all of them welcomed; a few at a time come."""
        parts, loop = urlsplit(url), asyncio.get_running_loop()
        workers: list[LightWorker] = []
        goal = self.heard.welcomed
        for begin in range(0, count, 20):
            for _ in range(min(20, count - begin)):
                _, worker = await loop.create_connection(
                    lambda: LightWorker(self, url), parts.hostname, parts.port
                )
                workers.append(worker)
            goal += min(20, count - begin)
            async with asyncio.timeout(60.0):
                while self.heard.welcomed < goal:
                    await asyncio.sleep(0.01)
        return workers


class LightWorker(asyncio.Protocol):
    """One session of a worker of its own."""

    def __init__(self, crowd: Crowd, url: str) -> None:
        self.crowd = crowd
        self.url = url
        self.identity, self.session = Identity.generate(), new_session()
        self.key: bytes | None = None
        run, worker = crowd.run, self.identity.worker
        self._inbox = topics.inbox(run, worker, self.session).encode()
        self._epoch_topic = topics.epoch(run).encode()
        self._requests = topics.request(run, worker, self.session).encode()
        self._results = topics.results(run, worker, self.session).encode()
        self._status = topics.status(run, worker, self.session).encode()
        self._reader = PacketReader()
        self._packet_id = 0
        self._life = 0
        self._epoch = 0
        self._host_key = b""
        self._keys = SessionKeys.generate()
        self._nonce = b""
        self.tasks: deque[Task] = deque()
        self._held: set[int] = set()
        self._busy = False
        self._answered: deque[float] = deque()
        """when tasks ended that no task came for yet"""
        self._unanswered: dict[ResultName, tuple[Result, float]] = {}
        self._timers: set[asyncio.TimerHandle] = set()
        self._spoke = 0.0
        self._transport: asyncio.Transport | None = None

    def leave(self) -> None:
        """Say goodbye, and close."""
        self._end()
        bye = signed(self.identity, "status", (self.crowd.run, self.session), Bye("left"))
        self._publish(self._status, bye)
        if self._transport is not None:
            self._transport.write(packet(0xE0))
            self._transport.close()

    # asyncio's protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        name = client_id(self.identity.worker, self.session)
        transport.write(connect_packet(name, KEEPALIVE, user=self.identity.worker))

    def data_received(self, data: bytes) -> None:
        for each in self._reader.feed(data):
            if each.kind == PUBLISH:
                self._hear(each)
            elif each.kind == CONNACK:
                self._subscribe()

    def connection_lost(self, error: Exception | None) -> None:
        if self._timers:
            self.crowd.heard.lost += 1
        self._end()

    # What it says and hears.

    def _subscribe(self) -> None:
        filters = topics.worker_filters(self.crowd.run, self.identity.worker, self.session)
        body = b"\0\1" + b"".join(text(name) + bytes((qos,)) for name, qos in filters.items())
        assert self._transport is not None
        self._transport.write(packet(SUBSCRIBE, body))
        self._after(self.crowd.random.uniform(0.5, 1.0) * SPEAK_EVERY, self._look)

    def _hear(self, each: Packet) -> None:
        topic, packet_id, payload = publication(each)
        if packet_id and self._transport is not None:
            self._transport.write(acknowledgement(packet_id))
        if topic == self._epoch_topic:
            self._hear_epoch(payload)
        elif topic == self._inbox and payload:
            try:
                if wrapping_of(payload) is Wrapping.SIGNED:
                    self._hear_signed(payload)
                elif self.key is not None:
                    self._hear_sealed(open_sealed(payload, self.key, "to worker"))
            except WireError:
                return

    def _hear_epoch(self, payload: bytes) -> None:
        led = self.crowd.epoch(payload)
        if led.epoch.number != self._epoch:
            self._epoch, self._host_key = led.epoch.number, led.leader
            self._say_hello()

    def _say_hello(self) -> None:
        self._keys, self._nonce = SessionKeys.generate(), new_nonce()
        hello = Hello(
            protocol=PROTOCOL_VERSION,
            client="0",
            worker_key=self.identity.public_key,
            exchange_key=self._keys.public_key,
            nonce=self._nonce,
            name="light",
            device="none",
            credit=self.crowd.credit,
            speed=self.crowd.speed,
            held=tuple(task.lease for task in self.tasks),
        )
        context = (self.crowd.run, self.session)
        self._publish(self._requests, signed(self.identity, "hello", context, hello))

    def _hear_signed(self, payload: bytes) -> None:
        message = peek_signed(payload)
        if not isinstance(message, Welcome) or message.nonce != self._nonce or message.refused:
            return
        self.crowd.heard.welcomed += self.key is None
        self.key = self._keys.agree(
            Transcript(
                run=self.crowd.run,
                epoch=message.epoch,
                session=self.session,
                worker_key=self.identity.public_key,
                host_key=self._host_key,
                worker_exchange=self._keys.public_key,
                host_exchange=message.exchange_key,
                worker_nonce=message.nonce,
            )
        )

    def _hear_sealed(self, message: Message) -> None:
        if isinstance(message, Task):
            self._take(message)
            for name in message.acknowledged:
                self._unanswered.pop(name, None)
        elif isinstance(message, Acknowledge):
            self.crowd.heard.refused += message.outcome == "refused"
            for name in message.results:
                self._unanswered.pop(name, None)
        elif isinstance(message, Notice):
            if message.code == "hello-again":
                self._say_hello()
            self.crowd.heard.asked_to_slow_down += message.code == "slow-down"

    # What it does.

    def _take(self, task: Task) -> None:
        if task.task in self._held:
            return
        heard = self.crowd.heard
        heard.tasks += 1
        heard.directions += task.count
        if self._answered:
            heard.waits.append(time.monotonic() - self._answered.popleft())
        self._held.add(task.task)
        self.tasks.append(task)
        self._begin()

    def _begin(self) -> None:
        if self._busy or not self.tasks:
            return
        self._busy = True
        task = self.tasks[0]
        seconds = 2 * task.count * LENGTH / self.crowd.speed
        if (
            task.kind == "members"
            and task.count > 1
            and self.crowd.random.random() < self.crowd.parts
        ):
            half = task.count // 2
            self._after(seconds * half / task.count, lambda: self._send(made_up(task, 0, half)))
            last = made_up(task, half, task.count - half)
        else:
            last = made_up(task, 0, task.count)
        self._after(seconds, lambda: self._finish(task, last))

    def _finish(self, task: Task, last: Result) -> None:
        self._send(last)
        self._answered.append(time.monotonic())
        self.tasks.popleft()
        self._held.discard(task.task)
        self._busy = False
        self._begin()

    def _send(self, result: Result) -> None:
        if self.key is None:
            return
        self._unanswered[result.name] = result, time.monotonic()
        self.crowd.heard.results += 1
        self._publish(self._results, sealed(self.key, "to coordinator", result))

    def _look(self) -> None:
        """Send again what was not answered, or say that we live."""
        now = time.monotonic()
        for name, (result, sent) in list(self._unanswered.items()):
            if now - sent >= SPEAK_EVERY and self.key is not None:
                self._unanswered[name] = result, now
                self.crowd.heard.sent_again += 1
                self._publish(self._results, sealed(self.key, "to coordinator", result))
        if now - self._spoke >= SPEAK_EVERY and self.key is not None:
            state = "busy" if self._busy else "idle"
            status = Status(state, 0)  # type: ignore[arg-type]
            self._publish(self._status, sealed(self.key, "to coordinator", status))
        if self._transport is not None:
            self._transport.write(packet(PINGREQ))
        self._after(self.crowd.random.uniform(0.8, 1.0) * SPEAK_EVERY, self._look)

    def _publish(self, topic: bytes, payload: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self._packet_id = self._packet_id % 65_535 + 1
        self._spoke = time.monotonic()
        self._transport.write(publish(topic, payload, 1, False, self._packet_id))

    def _after(self, seconds: float, act: object) -> None:
        def run() -> None:
            self._timers.discard(handle)
            act()  # type: ignore[operator]

        handle = asyncio.get_running_loop().call_later(seconds, run)
        self._timers.add(handle)

    def _end(self) -> None:
        for handle in self._timers:
            handle.cancel()
        self._timers.clear()


def made_up(task: Task, before: int, count: int) -> Result:
    """Made-up returns for some directions of a task, or all."""
    first = task.first + before
    shape = (count, 2) if task.kind == "members" else (count,)
    size = 2 * count if task.kind == "members" else count
    returns = (np.arange(first, first + size) * 7919 % 1009).reshape(shape)
    packed, lengths = pack_returns(returns.astype(np.float64), np.full(shape, LENGTH))
    after = task.count - before - count
    return Result(
        *(task.task, task.kind, task.version, first, count, task.episodes, task.token),
        *(packed, lengths),
        part=Part(before, after) if before or after else None,
    )
