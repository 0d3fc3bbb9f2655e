"""A real worker is at work again after its coordinator, or its broker, died."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol import messages
from protocol.identity import Identity
from tests.protocol.mosquitto import Mosquitto
from tests.worker.reference import run_spec
from tests.worker.scripted import Host
from tests.worker.test_daemon import Coordinator, coordinating, join_url, volunteering
from worker import presence

DELEGATE = Identity(b"d" * 32)
SPEC = run_spec("CartPole-v1", strategy={"population": 8})
NEVER = 1e6
"""Seconds."""


class Leases(Coordinator):
    """Also has a task for whoever says hello."""

    def on_message(self, topic: str, payload: bytes) -> None:
        welcomes = self.welcomes
        super().on_message(topic, payload)
        if self.welcomes > welcomes and self.host.number > 1:
            self.tell(self.host.task(first=100))


def appointing() -> Host:
    host = Host(SPEC)
    host.amend(2, DELEGATE)
    return host


@pytest.mark.parametrize("leader", [None, DELEGATE])
async def test_a_new_epoch_is_greeted_without_waiting_for_anything(
    tmp_path: Path, leader: Identity | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presence, "LOST_AFTER", 0.2)
    for waiting in ("HELLO_AFTER", "LONGEST_HELLO", "HELLO_APART", "HELLO_APART_UNPROVED"):
        monkeypatch.setattr(presence, waiting, NEVER)
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
        coordinator.die()
        await coordinator.until(lambda: "the host is gone" in console.text)
        coordinator.host = host.other(2, leader)
        coordinator.announce()
        again = await coordinator.hears(messages.Result)
        assert again == result  # first what was not answered for
        assert daemon.session is not None
        assert (await coordinator.hears(messages.Result)).first == 100
    broker.kill()


async def test_it_is_at_work_again_after_the_broker_died_too(tmp_path: Path) -> None:
    broker = Mosquitto(tmp_path)
    broker.start()
    host = appointing()
    async with (
        coordinating(host, broker.url, Leases) as coordinator,
        volunteering(join_url(broker, host)) as (_, _, console),
    ):
        await coordinator.until(lambda: coordinator.welcomes == 1)
        broker.kill()
        await coordinator.until(lambda: "broker unreachable" in console.text)
        coordinator.host = host.other(2)
        broker.start()
        assert (await coordinator.hears(messages.Result)).first == 100
    broker.kill()
