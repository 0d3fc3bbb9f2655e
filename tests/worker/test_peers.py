"""Real workers that hand snapshots and signed updates to each other, and a real coordinator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from coordinator import update
from protocol import topics
from protocol.address import parse_address
from protocol.envelope import Wrapping, open_plain, plain
from protocol.identity import Identity, new_session
from protocol.link import Link
from protocol.messages import CatchUp, Chunk, Latest, Message, Reached
from protocol.spec import RunSpec
from tests.coordinator.runs import Led, led
from tests.worker.reference import run_spec
from tests.worker.test_daemon import Impatient, Lines, no_children
from worker import reception
from worker.daemon import Daemon
from worker.settings import Settings

DEADLINE = 60.0  # of what takes a few seconds on a quiet machine
STRANGER = "s" * 16 + "-" + "t" * 6


def spec_of() -> RunSpec:
    """A run whose snapshots are smaller than what leads to them, and whose updates are quick."""
    return run_spec(
        "CartPole-v1",
        policy={"kind": "linear"},
        strategy={"population": 4},
        normalizer={"enabled": True},
        environment={"max_steps": 10},
        centre={"episodes": 1, "screening": 1},
    )


class Spy:
    """Hears what peers send each other, and asks what anybody may ask."""

    def __init__(self, url: str, run: str) -> None:
        self.run = run
        self.chunks: list[tuple[str, str, int]] = []
        self.answers: list[tuple[str, bytes]] = []
        self._link = Link(
            parse_address(url),
            client_id=f"spy-{new_session()}",
            on_message=self._hear,
            subscriptions={f"{topics.PREFIX}/{run}/snap/+/+": 0},
            random=Impatient(),
        )

    def _hear(self, topic: str, payload: bytes) -> None:
        parsed = topics.parse(topic)
        assert parsed is not None
        assert parsed.server is not None
        assert parsed.joiner is not None
        if parsed.joiner == STRANGER:
            self.answers.append((parsed.server, payload))
            return
        chunk = open_plain(payload)
        assert isinstance(chunk, Chunk)
        self.chunks.append((parsed.server, parsed.joiner, chunk.version))

    @property
    def reached(self) -> list[Message]:
        """Answers that are no signed update."""
        payloads = (payload for _, payload in self.answers)
        return [open_plain(one) for one in payloads if one[0] == Wrapping.PLAIN]

    def ask(self, server: str, message: Message) -> None:
        self._link.publish(topics.ask(self.run, server, STRANGER), plain(message))

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        running = asyncio.create_task(self._link.run())
        try:
            await until(lambda: self._link.connected)
            yield
        finally:
            await self._link.close()
            await running


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(DEADLINE):
        while not true():
            await asyncio.sleep(0.02)


@pytest.fixture(autouse=True)
async def leaves_no_children() -> AsyncIterator[None]:
    yield
    await no_children()


@asynccontextmanager
async def volunteering(url: str, **options: Any) -> AsyncIterator[Daemon]:
    """A daemon among others in this process, with real evaluation processes."""
    console = Lines()
    daemon = Daemon(Settings(parse_address(url), **options), Identity.generate(), console)
    running = asyncio.create_task(daemon.run())
    try:
        yield daemon
    finally:
        daemon.terminate()
        async with asyncio.timeout(DEADLINE):
            assert await running == 0
        print(console.text)
        assert "fetching it again" not in console.text


def peer_of(daemon: Daemon) -> str:
    assert daemon.session is not None
    return daemon.session.handshake.peer


def version_of(daemon: Daemon) -> int:
    replica = daemon.session.replica if daemon.session is not None else None
    return 0 if replica is None else replica.version


def holds(daemon: Daemon) -> list[int]:
    assert daemon.session is not None
    return [holding.version for holding in daemon.session.serving.holdings]


def in_step(run: Led, *daemons: Daemon) -> bool:
    """Whether they follow the run: an evaluation or two behind at most."""
    reached = run.server.progress.version
    return all(reached - 2 <= version_of(daemon) for daemon in daemons)


def known_holders(run: Led) -> int:
    """How many the coordinator would send a joiner to."""
    offers = run.server._serving._holders._offers
    return len(offers[max(offers)].holders)


async def test_a_peer_serves_a_joiner_and_both_serve_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reception, "PATIENCE", DEADLINE)  # nobody is given up for being slow
    async with led(spec_of(), tmp_path) as run:
        url = f"{run.url}/{run.run_id}#{run.identity.fingerprint}"
        spy = Spy(run.url, run.run_id)
        async with spy.listening(), volunteering(url) as first:
            await until(lambda: version_of(first) > 64)
            await until(lambda: holds(first))
            # A snapshot that nobody else has yet would be had from the coordinator.
            monkeypatch.setattr(update, "SNAPSHOT_EVERY", 1 << 40)
            await until(lambda: known_holders(run) == 1)
            async with volunteering(url) as second:
                await until(lambda: spy.chunks)
                await until(lambda: in_step(run, first, second))
                served = {(server, joiner) for server, joiner, _ in spy.chunks}
                assert served == {(peer_of(first), peer_of(second))}
                await until(lambda: holds(second))
                async with volunteering(url, upload_limit=0.0) as third:
                    await until(lambda: in_step(run, third) and version_of(third) > 64)
                    servers = {s for s, joiner, _ in spy.chunks if joiner == peer_of(third)}
                    assert servers <= {peer_of(first), peer_of(second)}
                    assert servers
                    assert holds(third) == []
                (member,) = first.members.values()
                directory = member.upload.directory
                assert directory is not None
                assert sorted(directory.glob("snapshot-*.bin"))
        assert not directory.exists()


async def test_signed_updates_are_to_be_had_from_every_worker(tmp_path: Path) -> None:
    """What a coordinator asks for before it leads, lest the end of its log be lost."""
    async with led(spec_of(), tmp_path) as run:
        url = f"{run.url}/{run.run_id}#{run.identity.fingerprint}"
        spy = Spy(run.url, run.run_id)
        async with (
            spy.listening(),
            volunteering(url) as one,
            volunteering(url, upload_limit=0.0) as silent,
        ):
            await until(lambda: min(version_of(one), version_of(silent)) > 20)
            spy.ask(topics.ALL, Latest(5))
            await until(lambda: spy.answers)
            ((server, payload),) = spy.answers
            assert server == peer_of(one)
            reached = open_plain(payload)
            assert isinstance(reached, Reached)
            assert reached.version > 20
            assert reached.epoch == 1
            spy.answers.clear()
            first = reached.version - 10
            spy.ask(server, CatchUp(first))
            await until(lambda: len(spy.answers) >= 10)
            for offset, (_, update) in enumerate(spy.answers):
                assert run.leader.authority.open_update(update).version == first + offset
            spy.answers.clear()
            spy.ask(peer_of(silent), CatchUp(first))
            spy.ask(topics.ALL, Latest(2**40))
            spy.ask(server, CatchUp(2**40))
            spy.ask(server, Latest(0))
            # Updates of the first question may still come: it is answered to the newest.
            await until(lambda: spy.reached)
            assert {answerer for answerer, _ in spy.answers} == {server}
            assert len(spy.reached) == 1
