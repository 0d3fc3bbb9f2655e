"""Who leads with a key that others may have: nobody twice, and each with a higher epoch."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from coordinator import leading
from coordinator.leading import AlreadyLedError, Predecessors, UnreachableError, next_epoch
from protocol import topics
from protocol.address import parse_address
from protocol.authority import Authority
from protocol.envelope import plain, signed
from protocol.identity import Identity, run_id
from protocol.messages import Beat, Epoch
from tests.coordinator.runs import broker, led, spec_of
from tests.coordinator.scripted import DEADLINE

IDENTITY = Identity(bytes(range(32)))
RUN = run_id("test", IDENTITY.public_key)
AUTHORITY = Authority(RUN, IDENTITY.public_key)


def epoch(number: int, signer: Identity = IDENTITY, run: str = RUN) -> bytes:
    said = Epoch(1, run, signer.public_key, number, 0, b"", "running", 0, b"d" * 16)
    return signed(signer, "epoch", (run,), said)


def beat(phase: str) -> bytes:
    return plain(Beat(1, 0, b"d" * 16, phase))  # type: ignore[arg-type]


def test_highest_epoch_of_our_key_counts() -> None:
    heard = Predecessors(AUTHORITY)
    topic = topics.epoch(RUN)
    for payload in (epoch(3), epoch(8), epoch(5)):
        heard.hear(topic, payload)
    heard.hear(topic, epoch(99, signer=Identity.generate()))
    heard.hear(topic, epoch(99, run="other-00000000"))
    heard.hear(topic, b"\1garbage")
    heard.hear(topics.beat(RUN), epoch(99))
    assert heard.highest == 8 and not heard.alive.is_set()


@pytest.mark.parametrize(
    ("phase", "alive"), [("open", True), ("updating", True), ("lost", False), ("finished", False)]
)
def test_beat_shows_a_leader_unless_it_is_the_last(phase: str, alive: bool) -> None:
    heard = Predecessors(AUTHORITY)
    heard.hear(topics.beat(RUN), beat(phase))
    assert heard.alive.is_set() == alive


async def test_first_leader_announces_epoch_one_after_listening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leading, "LISTEN_SECONDS", 0.2)
    async with broker(tmp_path) as url:
        assert await next_epoch(parse_address(url), AUTHORITY, IDENTITY) == 1


async def test_successor_announces_the_next_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leading, "LISTEN_SECONDS", 0.2)
    async with broker(tmp_path / "broker") as url:
        async with led(spec_of(stop={"updates": 1}), tmp_path, url, IDENTITY) as run, run.worker():
            await run.outcome()
        assert await next_epoch(parse_address(url), AUTHORITY, IDENTITY) == 2


async def test_leader_that_is_alive_is_left_alone(tmp_path: Path) -> None:
    async with led(spec_of(), tmp_path, identity=IDENTITY) as run:
        async with asyncio.timeout(DEADLINE):
            await run.ready.wait()
            with pytest.raises(AlreadyLedError, match=f"the run {RUN} is led at mqtt://"):
                await next_epoch(parse_address(run.url), AUTHORITY, IDENTITY)
        assert not run.running.done()


async def test_two_runs_of_one_key_do_not_disturb_each_other(tmp_path: Path) -> None:
    async with broker(tmp_path / "broker", "auto") as url:
        specs = [spec_of(name=name, stop={"updates": 3}) for name in ("one", "two")]
        async with (
            led(specs[0], tmp_path / "1", url, IDENTITY) as one,
            led(specs[1], tmp_path / "2", url, IDENTITY) as two,
        ):
            for run in (one, two):
                async with asyncio.timeout(DEADLINE):
                    await run.ready.wait()
            async with one.worker(), two.worker():
                await one.outcome()
                await two.outcome()
            assert not any("broker lost" in line for line in one.lines + two.lines)


async def test_broker_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leading, "CONTACT_SECONDS", 0.2)
    with pytest.raises(
        UnreachableError, match=r"no broker can be reached at mqtt://127\.0\.0\.1:1"
    ):
        await next_epoch(parse_address("mqtt://127.0.0.1:1"), AUTHORITY, IDENTITY)
