"""Messages and bytes of a simulated run, from the real encodings of a part of its messages."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable

from coordinator import update
from coordinator.pool.events import (
    Arrived,
    CloseBatch,
    Command,
    Event,
    Heard,
    Joined,
    Left,
    SendAcknowledge,
    SendTask,
)
from protocol import messages, replay, topics
from protocol.envelope import peek_signed, sealed, signed
from protocol.identity import Identity
from protocol.packing import WireError
from protocol.spec import RunSpec
from scripts.simulation.shell import Name

EVERY = 16
"""Every so manieth message of a kind is encoded, and stands for the others; updates all are."""
RUN, WORKER, SESSION = "simulated-01234567", "a" * 16, "b" * 6
KEY, DIGEST = bytes(32), bytes(16)
PUBACK = 4
"""Bytes of the packet that answers a PUBLISH at QoS 1."""


class Wire:
    """Counts what the coordinator's connection carries: PUBLISH and PUBACK packets."""

    def __init__(self, run: RunSpec) -> None:
        self.messages: Counter[str] = Counter()
        """by kind; an update counts once, whoever hears it"""
        self.unreadable_updates = 0
        """that no peer could take as one message"""
        self._sampled: dict[str, tuple[int, int]] = {}
        """(messages, bytes) that were encoded, by kind"""
        self._episodes = run.environment.episodes
        self._run = run
        self._identity = Identity(bytes(32))
        self._rules = replay.arithmetic(run)
        self._state = replay.initial_state(run)

    def observe(self, now: float, event: Event, commands: list[Command]) -> None:
        """The pool was told of this event, and this is what it wants done."""
        match event:
            case Arrived():
                self._count("result", lambda: self._result(event))
            case Heard():
                self._count("status", _status)
            case Joined():
                self._count("hello", self._hello)
                self._count("welcome", self._welcome)
            case Left():
                self._count("bye", self._bye)
        for command in commands:
            self._say(command)

    def died(self, durable: set[Name]) -> None:
        """What was sent was sent."""

    def bytes(self, kind: str) -> int:
        """Of all messages of this kind."""
        number, size = self._sampled.get(kind, (1, 0))
        return round(self.messages[kind] * size / number)

    def _say(self, command: Command) -> None:
        match command:
            case SendTask():
                self._count("task", lambda: self._task(command))
            case SendAcknowledge():
                self._count("acknowledge", lambda: _acknowledge(command))
            case CloseBatch():
                self._count("update", lambda: self._update(command))

    def _count(self, kind: str, encode: Callable[[], int]) -> None:
        if self.messages[kind] % EVERY == 0 or kind == "update":
            number, size = self._sampled.get(kind, (0, 0))
            self._sampled[kind] = (number + 1, size + encode())
        self.messages[kind] += 1

    def _task(self, task: SendTask) -> int:
        message = messages.Task(
            task=task.task,
            kind=task.kind,
            version=task.version,
            digest=DIGEST,
            first=task.first,
            count=task.count,
            episodes=self._episodes,
            token=DIGEST,
            acknowledged=task.acknowledged,
        )
        return _to_worker(sealed(KEY, "to worker", message))

    def _result(self, arrived: Arrived) -> int:
        returns, lengths = messages.pack_returns(arrived.returns, arrived.lengths)
        message = messages.Result(
            task=arrived.task,
            kind=arrived.kind,
            version=arrived.version,
            first=arrived.first,
            count=arrived.count,
            episodes=self._episodes,
            token=DIGEST,
            returns=returns,
            lengths=lengths,
            failed=arrived.failed[:256],
            part=arrived.part,
        )
        topic = topics.results(RUN, WORKER, SESSION)
        return _publish(topic, sealed(KEY, "to coordinator", message), qos=1)

    def _update(self, closed: CloseBatch) -> int:
        """The real message; where it does not fit one, as large as it would be."""
        before = dataclasses.replace(self._state, version=closed.version)
        made = update.make(self._run, self._rules, before, 1, closed)
        payload = signed(self._identity, "update", (RUN,), made.update)
        try:
            peek_signed(payload)
        except WireError:
            self.unreadable_updates += 1
        return _publish(topics.update(RUN), payload)

    def _hello(self) -> int:
        message = messages.Hello(
            1, "shoal 0.1.0", bytes(32), bytes(32), DIGEST, "a volunteer", "cpu x8", 2, 1e4, DIGEST
        )
        payload = signed(self._identity, "hello", (RUN, SESSION), message)
        return _publish(topics.request(RUN, WORKER, SESSION), payload, qos=1)

    def _welcome(self) -> int:
        message = messages.Welcome(DIGEST, bytes(32), 1, 1000, DIGEST)
        return _to_worker(signed(self._identity, "welcome", (RUN, WORKER, SESSION), message))

    def _bye(self) -> int:
        payload = signed(self._identity, "status", (RUN, SESSION), messages.Bye("left"))
        return _publish(topics.status(RUN, WORKER, SESSION), payload, qos=1)


def _status() -> int:
    payload = sealed(KEY, "to coordinator", messages.Status("busy", 1000))
    return _publish(topics.status(RUN, WORKER, SESSION), payload, qos=1)


def _acknowledge(command: SendAcknowledge) -> int:
    message = messages.Acknowledge(command.results, command.outcome, command.reason)
    return _to_worker(sealed(KEY, "to worker", message))


def _to_worker(payload: bytes) -> int:
    return _publish(topics.inbox(RUN, WORKER, SESSION), payload)


def _publish(topic: str, payload: bytes, qos: int = 0) -> int:
    """Bytes of a PUBLISH packet, and of the PUBACK where there is one."""
    rest = 2 + len(topic) + len(payload) + (2 if qos else 0)
    length = 1
    while rest >= 128**length:
        length += 1
    return 1 + length + rest + (PUBACK if qos else 0)
