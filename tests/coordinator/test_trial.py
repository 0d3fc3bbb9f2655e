"""A host says within seconds what its broker keeps from it, and why that matters."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest

from coordinator import trial as trial_module
from coordinator.peers import Leader
from coordinator.trial import ForbiddenError, Trial
from protocol import topics
from protocol.address import parse_address
from protocol.identity import Identity, run_id
from protocol.link import Link
from tests.protocol.mosquitto import Mosquitto

DEADLINE = 10.0
IDENTITY = Identity(b"h" * 32)
RUN = run_id("cartpole", IDENTITY.public_key)


async def tried(url: str) -> None:
    """A host on a broker, as far as its trial."""
    beat = topics.beat(RUN)
    link = Link(
        parse_address(url),
        client_id="host",
        on_message=lambda topic, payload: heard.append(trial.hear(topic, payload)),
        on_connected=lambda first: connected.set(),
        subscriptions=topics.coordinator_filters(RUN),
        random=Random(1),
    )
    heard: list[bool] = []
    connected = asyncio.Event()
    leader = Leader.of_own(RUN, IDENTITY)
    trial = Trial(link, leader, "aaaaaa", lambda: link.publish(beat, b"beat") and None)
    running = asyncio.create_task(link.run())
    try:
        async with asyncio.timeout(DEADLINE):
            await connected.wait()
            link.publish(topics.epoch(RUN), b"epoch", 1, retain=True)
            await trial.run()
        assert heard.count(True) == 4  # the topics that are only tried; others have readers
        assert link.subscriptions == topics.coordinator_filters(RUN)
        assert not trial.hear(topics.request(RUN, "b" * 16, "bbbbbb"), b"")
    finally:
        await link.close()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_each_topic_that_is_kept_from_the_host_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_module, "ATTEMPT_SECONDS", 0.1)
    rules = tmp_path / "access.list"
    rules.write_text("topic readwrite shoal/1/#\n")
    broker = Mosquitto(tmp_path, f"acl_file {rules}")
    broker.start()
    try:
        await tried(broker.url)
        for forbidden in (topics.update(RUN), topics.epoch(RUN), f"shoal/1/{RUN}/results/+/+"):
            rules.write_text(f"topic readwrite shoal/1/#\ntopic deny {forbidden}\n")
            broker.kill()
            broker.start()
            with pytest.raises(ForbiddenError, match="publish and subscribe to shoal/1/#") as error:
                await tried(broker.url)
            assert forbidden.partition("/+")[0] in str(error.value)
            assert topics.beat(RUN) not in str(error.value)
    finally:
        broker.kill()


async def test_a_broker_that_retains_nothing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_module, "ATTEMPT_SECONDS", 0.1)
    # Most brokers without retention publish the message all the same, and keep nothing.
    broker = Mosquitto(tmp_path)
    broker.start()
    publish = Link.publish

    def unretained(
        self: Link, topic: str, payload: bytes, qos: int = 0, retain: bool = False
    ) -> bool:
        return publish(self, topic, payload, qos, False)

    monkeypatch.setattr(Link, "publish", unretained)
    try:
        with pytest.raises(ForbiddenError, match="allow retained messages") as error:
            await tried(broker.url)
        assert topics.epoch(RUN) in str(error.value)
    finally:
        broker.kill()
