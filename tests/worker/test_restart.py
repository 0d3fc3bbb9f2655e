"""How soon a real worker is at work again after its coordinator, or its broker, died."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from random import Random

import pytest

from protocol import messages, topics
from protocol.identity import Identity
from tests.protocol.mosquitto import Mosquitto
from tests.worker.reference import run_spec
from tests.worker.scripted import Host
from tests.worker.test_daemon import Coordinator, coordinating, join_url, volunteering
from worker import presence

DELEGATE = Identity(b"d" * 32)
SPEC = run_spec("CartPole-v1", strategy={"population": 8})
START_OF_A_HOST = 1.2
"""Seconds that a coordinator's process needs until it has a broker."""
AGAIN_AT_WORK = 3.0
"""Seconds from the death of a coordinator with its broker to the next task, at most."""


class Leases(Coordinator):
    """Also has a task for whoever says hello, and notes when."""

    leased: float = 0.0

    def on_message(self, topic: str, payload: bytes) -> None:
        welcomes = self.welcomes
        super().on_message(topic, payload)
        if self.welcomes > welcomes and self.host.number > 1:
            self.tell(self.host.task(first=100))
            self.leased = self.leased or time.monotonic()


def appointing() -> Host:
    host = Host(SPEC)
    host.amend(2, DELEGATE)
    return host


@pytest.mark.parametrize("leader", [None, DELEGATE])
async def test_a_new_epoch_is_greeted_within_a_moment(
    tmp_path: Path, leader: Identity | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presence, "LOST_AFTER", 0.2)
    broker = Mosquitto(tmp_path)
    broker.start()
    host = appointing()
    async with (
        coordinating(host, broker.url, Leases) as coordinator,
        volunteering(join_url(broker, host)) as (daemon, _, console),
    ):
        await coordinator.until(lambda: coordinator.welcomes == 1)
        task = host.task()
        coordinator.tell(task)
        result = await coordinator.hears(messages.Result)
        coordinator.link.publish(topics.beat(host.run), host.beat("lost"))
        await coordinator.until(lambda: "the coordinator is gone" in console.text)
        coordinator.host = host.other(2, leader)
        began = time.monotonic()
        coordinator.announce()
        again = await coordinator.hears(messages.Result)
        assert coordinator.leased - began < 0.3
        assert again == result  # first what was not answered for
        assert daemon.session is not None
        assert (await coordinator.hears(messages.Result)).first == 100
    broker.kill()


async def test_after_the_broker_died_too_it_is_at_work_within_seconds(tmp_path: Path) -> None:
    broker = Mosquitto(tmp_path)
    broker.start()
    host = appointing()
    async with (
        coordinating(host, broker.url, Leases) as coordinator,
        volunteering(join_url(broker, host)) as (daemon, _, _),
    ):
        await coordinator.until(lambda: coordinator.welcomes == 1)
        assert daemon._link is not None
        daemon._link._random = Random(3)  # as impatient as any worker, no more
        began = time.monotonic()
        broker.kill()
        await asyncio.sleep(START_OF_A_HOST)
        coordinator.host = host.other(2)
        broker.start()
        assert (await coordinator.hears(messages.Result)).first == 100
        assert coordinator.leased - began < AGAIN_AT_WORK
    broker.kill()
