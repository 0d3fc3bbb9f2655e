"""Hears all that passes a broker between a host and its workers, and keeps count."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import paho.mqtt.client as paho

from protocol import topics
from protocol.identity import MAC_BYTES
from protocol.messages import Refusal, Result, ResultName, Task, decode


class Spy:
    """What was said so far; sealed messages can be read by anybody, if not made.

    Attributes:
        most_held: tasks that one session held at most, by what it was sent and has returned.
    """

    def __init__(self) -> None:
        self.most_held = 0
        self._held: dict[str, set[int]] = defaultdict(set)
        self._results: list[tuple[float, str, ResultName]] = []
        self._lock = threading.Lock()

    def sent_twice(self, since: float, until: float) -> int:
        """Results that a session sent again in that time."""
        with self._lock:
            seen = {(peer, name) for at, peer, name in self._results if at < since}
            again = 0
            for at, peer, name in self._results:
                if since <= at < until:
                    again += (peer, name) in seen
                    seen.add((peer, name))
            return again

    def hear(self, topic: str, payload: bytes) -> None:
        """A message of the run."""
        parsed = topics.parse(topic)
        if parsed is None or not parsed.worker:
            return
        now, peer = time.monotonic(), f"{parsed.worker}/{parsed.session}"
        message = decode(payload[1 + MAC_BYTES :]) if payload[:1] == b"\x02" else None
        with self._lock:
            held = self._held[peer]
            if isinstance(message, Task):
                held.add(message.task)
                self.most_held = max(self.most_held, len(held))
            elif isinstance(message, Result):
                self._results.append((now, peer, message.name))
                if message.part is None or not message.part.after:
                    held.discard(message.task)
            elif isinstance(message, Refusal):
                held.discard(message.task)


@contextmanager
def spying(port: int, run: str) -> Iterator[Spy]:
    """A spy at the broker on this port of loopback, for as long as it is needed."""
    spy = Spy()
    client = paho.Client(paho.CallbackAPIVersion.VERSION2)
    client.on_connect = lambda *_: client.subscribe(f"shoal/1/{run}/#", 0)
    client.on_message = lambda _, __, message: spy.hear(message.topic, message.payload)
    client.connect("127.0.0.1", port)
    client.loop_start()
    try:
        yield spy
    finally:
        client.disconnect()
        client.loop_stop()
