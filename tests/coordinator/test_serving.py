"""Catching up over a real broker: by updates or by a snapshot, whichever is less, within bounds."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coordinator import serving
from coordinator.log import LogError, UpdateLog
from coordinator.peers import Leader, Peer
from coordinator.pool.events import SessionId
from coordinator.serving import Serving
from protocol import replay, snapshot, topics
from protocol.address import parse_address
from protocol.envelope import open_plain, open_signed, peek_signed
from protocol.identity import Identity, new_session, run_id
from protocol.link import Link
from protocol.messages import CatchUp, Chunk, ChunkRequest, Manifest
from protocol.packing import MAX_MESSAGE
from tests.coordinator.runs import broker, led, spec_of
from tests.coordinator.scripted import DEADLINE
from tests.protocol.mosquitto import Mosquitto

SPEC = spec_of(
    policy={"kind": "mlp", "hidden": [400, 400]}, optimizer={"kind": "sgd", "momentum": 0.5}
)
RULES = replay.arithmetic(SPEC)
SIZE = snapshot.state_bytes(RULES)
CHUNKS = -(-SIZE // snapshot.CHUNK_BYTES)
MARK = b"\0mark"


class Joiner:
    """A session that gets what is served to it."""

    def __init__(self, play: Stage) -> None:
        self.play = play
        self.run_id = play.run_id
        self.host_key = play.identity.public_key
        self.session = SessionId(Identity.generate().worker, new_session())
        self.peer = Peer(self.session, b"", b"", "", "", ())
        self.payloads: list[bytes] = []
        self.manifests: list[Manifest] = []
        self.chunks: list[Chunk] = []
        self.marks = 0
        self.connected = asyncio.Event()
        self._news = asyncio.Event()
        worker, session = self.session.worker, self.session.session
        self.link = Link(
            parse_address(play.url),
            client_id=f"joiner-{worker}",
            on_message=self._hear,
            on_connected=lambda first: self.connected.set(),
            subscriptions=topics.worker_filters(play.run_id, worker, session),
        )

    @property
    def inbox(self) -> str:
        return topics.inbox(self.run_id, self.session.worker, self.session.session)

    def _hear(self, topic: str, payload: bytes) -> None:
        parsed = topics.parse(topic)
        assert parsed is not None
        if payload == MARK:
            self.marks += 1
        elif parsed.kind == "snap":
            chunk = open_plain(payload)
            assert isinstance(chunk, Chunk)
            self.chunks.append(chunk)
        elif payload[:1] == b"\1" and isinstance(peek_signed(payload), Manifest):
            manifest = open_signed(payload, self.host_key, "manifest", (self.run_id,))
            assert isinstance(manifest, Manifest)
            self.manifests.append(manifest)
        else:
            self.payloads.append(payload)
        self._news.set()

    async def until(self, updates: int = 0, manifests: int = 0, chunks: int = 0) -> None:
        """Wait until so many of each have come, and hold that it was no more."""
        expected = (updates, manifests, chunks)
        async with asyncio.timeout(DEADLINE):
            while any(got < wanted for got, wanted in zip(self.got, expected, strict=True)):
                self._news.clear()
                await self._news.wait()
            # Whatever else was sent so far comes before this.
            marks = self.marks
            self.play.link.publish(self.inbox, MARK)
            while self.marks == marks:
                self._news.clear()
                await self._news.wait()
        assert self.got == expected

    @property
    def got(self) -> tuple[int, int, int]:
        return len(self.payloads), len(self.manifests), len(self.chunks)


class Stage:
    """What serves, and what it serves."""

    task: asyncio.Task[None]

    def __init__(self, url: str, directory: Path) -> None:
        self.identity = Identity.generate()
        self.run_id = run_id("test", self.identity.public_key)
        self.log = UpdateLog(directory / "log.sqlite", self.run_id)
        self.state = dataclasses.replace(replay.initial_state(SPEC))
        self.link = Link(
            parse_address(url),
            client_id="coordinator",
            on_message=lambda topic, payload: None,
            on_connected=lambda first: self.connected.set(),
        )
        self.connected = asyncio.Event()
        leader = Leader(self.run_id, self.identity, 1)
        self.serving = Serving(self.link, self.log, leader, lambda: self.state, SIZE)
        self.url = url

    def grow(self, *sizes: int) -> list[bytes]:
        """Keep updates of these sizes, and reach the versions that they lead to."""
        payloads = []
        for size in sizes:
            version = self.log.version
            payload = b"\2" + version.to_bytes(4, "little") + bytes(size - 5)
            self.log.append(version, payload, 2, 0)
            payloads.append(payload)
        self.state = dataclasses.replace(self.state, version=self.log.version)
        return payloads

    def ask(self, joiner: Joiner, request: CatchUp | ChunkRequest) -> None:
        self.serving.ask(joiner.peer, request)


@contextlib.asynccontextmanager
async def running(*links: tuple[Link, asyncio.Event]) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(link.run()) for link, _ in links]
    async with asyncio.timeout(DEADLINE):
        for _, connected in links:
            await connected.wait()
    try:
        yield
    finally:
        for link, _ in links:
            await link.close()
        await asyncio.gather(*tasks)


@contextlib.asynccontextmanager
async def stage(directory: Path, url: str | None = None) -> AsyncIterator[tuple[Stage, Joiner]]:
    async with contextlib.AsyncExitStack() as stack:
        if url is None:
            url = await stack.enter_async_context(broker(directory))
        play = Stage(url, directory)
        joiner = Joiner(play)
        links = (play.link, play.connected), (joiner.link, joiner.connected)
        await stack.enter_async_context(running(*links))
        play.task = asyncio.create_task(play.serving.run())
        yield play, joiner
        play.task.cancel()
        await asyncio.gather(play.task, return_exceptions=True)
        play.log.close()


async def test_few_missed_updates_come_as_they_were_published(tmp_path: Path) -> None:
    async with stage(tmp_path) as (play, joiner):
        payloads = play.grow(*[100] * 20)
        play.ask(joiner, CatchUp(5))
        await joiner.until(updates=15)
        assert joiner.payloads == payloads[5:]


async def test_who_is_in_step_or_ahead_gets_nothing(tmp_path: Path) -> None:
    async with stage(tmp_path) as (play, joiner):
        play.grow(100)
        for version in (1, 2, 1 << 40):
            play.ask(joiner, CatchUp(version))
            await asyncio.sleep(0)
        play.ask(joiner, CatchUp(0))
        await joiner.until(updates=1)


async def test_many_missed_updates_come_page_by_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "PAGE_UPDATES", 8)
    async with stage(tmp_path) as (play, joiner):
        payloads = play.grow(*[60] * 20)
        for version, have in ((0, 8), (8, 16), (16, 20)):
            play.ask(joiner, CatchUp(version))
            await joiner.until(updates=have)
        assert joiner.payloads == payloads


async def test_large_updates_come_few_at_a_time(tmp_path: Path) -> None:
    async with stage(tmp_path) as (play, joiner):
        payloads = play.grow(*[MAX_MESSAGE] * 7)
        play.ask(joiner, CatchUp(0))
        await joiner.until(updates=3)
        assert joiner.payloads == payloads[:3]


async def test_snapshot_comes_where_it_is_less_and_every_chunk_is_proved(tmp_path: Path) -> None:
    async with stage(tmp_path) as (play, joiner):
        play.grow(*[MAX_MESSAGE] * (SIZE // MAX_MESSAGE + 1))
        play.ask(joiner, CatchUp(0))
        await joiner.until(manifests=1)
        manifest = joiner.manifests[0]
        assert (manifest.version, manifest.total) == (play.state.version, SIZE)
        assert manifest.digest == snapshot.state_digest(play.state)
        for first in range(0, CHUNKS, serving.WINDOW):
            play.ask(joiner, ChunkRequest(manifest.version, first, 64))
            await joiner.until(manifests=1, chunks=min(first + serving.WINDOW, CHUNKS))
        data = b"".join(chunk.data for chunk in joiner.chunks)
        assert [chunk.index for chunk in joiner.chunks] == list(range(CHUNKS))
        assert snapshot.chunk_digests(data) == manifest.chunks
        restored = snapshot.from_bytes(RULES, data)
        assert snapshot.to_bytes(restored) == snapshot.to_bytes(play.state)


async def test_newer_snapshot_does_not_disturb_who_fetches_the_one_before(tmp_path: Path) -> None:
    async with stage(tmp_path) as (play, joiner):
        play.grow(*[MAX_MESSAGE] * 10)
        play.ask(joiner, CatchUp(0))
        await joiner.until(manifests=1)
        play.grow(*[1000] * 3)
        play.ask(joiner, CatchUp(0))
        await joiner.until(manifests=2)
        play.grow(*[MAX_MESSAGE] * 2)
        play.ask(joiner, CatchUp(0))
        await joiner.until(manifests=3)
        # A little later the same is offered again, much later a new one.
        assert [manifest.version for manifest in joiner.manifests] == [10, 10, 15]
        play.ask(joiner, ChunkRequest(10, 0, 1))
        await joiner.until(manifests=3, chunks=1)
        assert joiner.chunks[0].version == 10
        play.ask(joiner, ChunkRequest(9, 0, 1))
        await joiner.until(manifests=4, chunks=1)


async def test_chunks_out_of_range_are_not_there(tmp_path: Path) -> None:
    async with stage(tmp_path) as (play, joiner):
        play.grow(*[MAX_MESSAGE] * 10)
        play.ask(joiner, CatchUp(0))
        await joiner.until(manifests=1)
        play.ask(joiner, ChunkRequest(10, 1 << 20, 64))
        await asyncio.sleep(0)
        play.ask(joiner, ChunkRequest(10, CHUNKS - 1, 64))
        await joiner.until(manifests=1, chunks=1)
        assert joiner.chunks[0].index == CHUNKS - 1
        assert len(joiner.chunks[0].data) == SIZE - (CHUNKS - 1) * snapshot.CHUNK_BYTES


async def test_who_waits_longest_is_served_first(tmp_path: Path) -> None:
    async with stage(tmp_path) as (play, joiner):
        play.grow(*[100] * 9)
        # A second session, whose inbox the same link reads: so the order can be seen.
        second = dataclasses.replace(joiner.peer, id=SessionId(joiner.session.worker, "zzzzzz"))
        inbox = topics.inbox(play.run_id, joiner.session.worker, "zzzzzz")
        await joiner.link.subscribe({inbox: 0})
        play.ask(joiner, CatchUp(8))
        play.serving.ask(second, CatchUp(7))
        play.ask(joiner, CatchUp(6))
        await joiner.until(updates=5)
        assert [payload[1] for payload in joiner.payloads] == [6, 7, 8, 7, 8]


async def test_only_the_last_of_many_requests_counts(tmp_path: Path) -> None:
    async with stage(tmp_path) as (play, joiner):
        play.grow(*[100] * 9)
        for version in (0, 3, 0, 8):
            play.ask(joiner, CatchUp(version))
        await joiner.until(updates=1)


async def test_asking_in_a_loop_gets_no_more_than_the_allowance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "ALLOWED_PER_MINUTE", 0)
    async with stage(tmp_path) as (play, joiner):
        play.grow(*[MAX_MESSAGE] * 9, 100)
        play.ask(joiner, CatchUp(0))
        await joiner.until(manifests=1)
        other = Joiner(play)
        async with running((other.link, other.connected)):
            for _ in range(40):
                play.ask(joiner, ChunkRequest(10, 0, 8))
                # Whoever waits longest is served first, so the loop does not starve others.
                play.ask(other, CatchUp(9))
                before = len(other.payloads)
                await other.until(updates=before + 1)
        served = sum(len(chunk.data) for chunk in joiner.chunks)
        assert SIZE < served < 2.5 * SIZE


async def test_waits_while_the_link_has_much_to_send(tmp_path: Path) -> None:
    """A broker that stops reading: what is served piles up no higher than the bound."""
    mosquitto = Mosquitto(tmp_path)
    mosquitto.start()
    assert mosquitto.process is not None
    try:
        async with stage(tmp_path, mosquitto.url) as (play, joiner):
            play.grow(*[MAX_MESSAGE] * 30)
            play.ask(joiner, CatchUp(0))
            await joiner.until(manifests=1)
            mosquitto.process.send_signal(signal.SIGSTOP)
            most = 0
            for _ in range(40):
                play.ask(joiner, ChunkRequest(30, 0, 8))
                await asyncio.sleep(serving.PATIENCE / 4)
                most = max(most, play.link.unsent)
            assert serving.PATIENT_ABOVE < most < serving.PATIENT_ABOVE + MAX_MESSAGE
            mosquitto.process.send_signal(signal.SIGCONT)
            async with asyncio.timeout(DEADLINE):
                while not joiner.chunks:
                    await asyncio.sleep(0.01)
    finally:
        mosquitto.process.send_signal(signal.SIGCONT)
        mosquitto.kill()


async def test_snapshots_and_allowances_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage(tmp_path) as (play, joiner):
        play.grow(*[MAX_MESSAGE] * 10)
        play.ask(joiner, CatchUp(0))
        await joiner.until(manifests=1)
        play.serving.forget_old()
        assert play.serving._frozen
        monkeypatch.setattr(serving, "KEEP_FOR", -1.0)
        play.serving.forget_old()
        assert not play.serving._frozen


async def test_log_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    async with stage(tmp_path) as (play, joiner):
        play.grow(100)
        play.log.close()
        play.ask(joiner, CatchUp(0))
        with pytest.raises(LogError, match="can't be read"):
            await asyncio.wait_for(play.task, DEADLINE)


async def test_late_worker_of_a_run_gets_a_snapshot(tmp_path: Path) -> None:
    """On the whole path: a small policy's snapshot is less than its updates."""
    spec = spec_of(stop={"updates": 20})
    rules = replay.arithmetic(spec)
    async with led(spec, tmp_path) as run, run.worker(pause_at=15) as first:
        await first.until(lambda: first.state is not None and first.state.version == 15)
        async with run.worker(credit=0) as late:
            await late.until(lambda: bool(late.heard.manifests))
            manifest = late.heard.manifests[0]
            late.ask(ChunkRequest(manifest.version, 0, 8))
            await late.until(lambda: bool(late.heard.chunks))
            state = snapshot.from_bytes(rules, late.heard.chunks[0])
            assert state.version == 15 and first.state is not None
            assert snapshot.state_digest(state) == snapshot.state_digest(first.state)
