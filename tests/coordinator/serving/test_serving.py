"""Catching up over a real broker: by updates or by a snapshot, from peers or from us, in bounds."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coordinator.log import LogError, UpdateLog, UpdateRow
from coordinator.peers import Leader, Peer
from coordinator.pool.events import SessionId
from coordinator.serving import Serving, serving
from coordinator.serving.holders import peer_name
from protocol import replay, snapshot, topics
from protocol.address import parse_address
from protocol.envelope import open_plain, open_sealed, open_signed, peek_signed, signed
from protocol.frozen import Frozen, Snapshots
from protocol.identity import Identity, key_digest, new_secret, new_session, run_id
from protocol.link import Link
from protocol.messages import CatchUp, Chunk, ChunkRequest, Manifest, Message, Notice, Serve, Update
from protocol.packing import MAX_MESSAGE
from protocol.proof import CHUNK_BYTES, cut, proof
from tests.coordinator.runs import broker, spec_of
from tests.coordinator.scripted import DEADLINE
from tests.protocol.mosquitto import Mosquitto

SPEC = spec_of(
    policy={"kind": "mlp", "hidden": [400, 400]}, optimizer={"kind": "sgd", "momentum": 0.5}
)
RULES = replay.arithmetic(SPEC)
SIZE = snapshot.state_bytes(RULES)
CHUNKS = -(-SIZE // CHUNK_BYTES)
MARK = b"\0mark"


class Joiner:
    """A session that gets what is served to it."""

    def __init__(self, play: Stage, identity: Identity | None = None) -> None:
        self.play = play
        self.run_id = play.run_id
        self.host_key = play.identity.public_key
        identity = identity or Identity.generate()
        self.session = SessionId(identity.worker, new_session())
        self.key = new_secret()
        self.peer = Peer(self.session, identity.public_key, self.key, "", "", ())
        self.payloads: list[bytes] = []
        self.manifests: list[Manifest] = []
        self.chunks: list[Chunk] = []
        self.told: list[Message] = []
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
        elif payload[:1] == b"\2":
            self.told.append(open_sealed(payload, self.key, "to worker"))
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
        await self.settle()
        assert self.got == expected

    async def settle(self) -> None:
        """Wait until whatever was sent so far has come."""
        marks = self.marks
        self.play.link.publish(self.inbox, MARK)
        async with asyncio.timeout(DEADLINE):
            while self.marks == marks:
                self._news.clear()
                await self._news.wait()

    async def page(self) -> int:
        """Wait for updates; how many have come in all."""
        before = len(self.payloads)
        async with asyncio.timeout(DEADLINE):
            while len(self.payloads) == before:
                self._news.clear()
                await self._news.wait()
        while len(self.play.serving._waiting) or len(self.payloads) != before:
            before = len(self.payloads)
            await self.settle()
        return before

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
        self.snapshots = Snapshots(directory / "snapshots")
        self.state = replay.initial_state(SPEC)
        self.link = Link(
            parse_address(url),
            client_id="coordinator",
            on_message=lambda topic, payload: None,
            on_connected=lambda first: self.connected.set(),
        )
        self.connected = asyncio.Event()
        self.leader = Leader.of_own(self.run_id, self.identity)
        self.serving = self.make_serving()
        self.url = url

    def make_serving(self, initial_digest: str = "") -> Serving:
        return Serving(
            self.link,
            self.log,
            self.leader,
            lambda: self.state,
            self.snapshots,
            SIZE,
            initial_digest,
        )

    def grow(self, *sizes: int) -> list[bytes]:
        """Keep updates of these sizes, and reach the versions that they lead to."""
        payloads = []
        for size in sizes:
            version = self.log.version
            payload = b"\3" + version.to_bytes(4, "little") + bytes(size - 5)
            self.append(payload)
            payloads.append(payload)
        return payloads

    def append(self, payload: bytes) -> None:
        self.log.append(UpdateRow(self.log.version, payload, 0.0, 2, 0, 0.0, 1))
        self.state = dataclasses.replace(self.state, version=self.log.version)

    def freeze(self, *holders: Joiner, on_disk: bool = True) -> Frozen:
        """The state of now is a snapshot that these hold, or nobody but the coordinator."""
        frozen = self.snapshots.freeze(self.state)
        candidates = [(holder.peer, 1.0) for holder in holders]
        self.serving.reached(frozen.version, frozen.proof, candidates)
        for holder in holders:
            self.serving.holding(holder.session, frozen.version)
        if on_disk:
            self.serving.on_disk(frozen)
        return frozen

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
        version = play.freeze().version
        after = play.grow(100, 200)
        play.ask(joiner, CatchUp(0))
        await joiner.until(manifests=1)
        manifest = joiner.manifests[0]
        assert (manifest.version, manifest.total, manifest.servers) == (version, SIZE, ())
        for first in range(0, CHUNKS, serving.WINDOW):
            play.ask(joiner, ChunkRequest(version, first, 64))
            await joiner.until(manifests=1, chunks=min(first + serving.WINDOW, CHUNKS))
        data = b"".join(chunk.data for chunk in joiner.chunks)
        assert [chunk.index for chunk in joiner.chunks] == list(range(CHUNKS))
        assert proof(cut(data)).digests == manifest.chunks
        restored = snapshot.from_bytes(RULES, data)
        assert manifest.digest == snapshot.state_digest(restored)
        assert restored.version == version
        play.ask(joiner, CatchUp(version))
        await joiner.until(updates=2, manifests=1, chunks=CHUNKS)
        assert joiner.payloads == after


@pytest.mark.parametrize(("missed", "after", "offered"), [(-1, 0, 0), (2, 0, 1), (2, 3, 1)])
async def test_whichever_way_is_fewer_bytes_in_all(
    tmp_path: Path, missed: int, after: int, offered: int
) -> None:
    """The updates after the snapshot come either way."""
    async with stage(tmp_path) as (play, joiner):
        cost = serving.MANIFEST_BYTES + 16 * CHUNKS + SIZE
        rest = cost % MAX_MESSAGE + missed
        play.grow(*[MAX_MESSAGE] * (cost // MAX_MESSAGE), rest)
        play.freeze()
        play.grow(*[MAX_MESSAGE] * after)
        play.ask(joiner, CatchUp(0))
        if offered:
            await joiner.until(manifests=1)
        else:
            assert await joiner.page()
            assert not joiner.manifests


async def test_who_fell_behind_a_little_gets_updates_though_there_is_a_snapshot(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path) as (play, joiner):
        play.grow(*[MAX_MESSAGE] * 10)
        play.freeze()
        payloads = play.grow(100, 100)
        for version, have in ((10, 2), (9, 5)):
            play.ask(joiner, CatchUp(version))
            await joiner.until(updates=have)
        assert joiner.payloads[:2] == payloads


async def test_newer_snapshot_does_not_disturb_who_fetches_the_one_before(tmp_path: Path) -> None:
    async with stage(tmp_path) as (play, joiner):
        for manifests in (1, 2):
            play.grow(*[MAX_MESSAGE] * 10)
            play.freeze()
            play.ask(joiner, CatchUp(0))
            await joiner.until(manifests=manifests)
        assert [manifest.version for manifest in joiner.manifests] == [10, 20]
        play.ask(joiner, ChunkRequest(10, 0, 1))
        await joiner.until(manifests=2, chunks=1)
        assert joiner.chunks[0].version == 10


async def test_who_asks_for_a_snapshot_that_is_not_there_gets_the_offer_of_another(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path) as (play, joiner):
        play.grow(*[MAX_MESSAGE] * 10)
        play.freeze()
        play.ask(joiner, ChunkRequest(9, 0, 1))
        await joiner.until(manifests=1)
        assert joiner.manifests[0].version == 10


@pytest.mark.parametrize("damage", ["removed", "flipped"])
async def test_file_that_went_bad_is_not_served(tmp_path: Path, damage: str) -> None:
    async with stage(tmp_path) as (play, joiner):
        play.grow(*[MAX_MESSAGE] * 10)
        play.freeze()
        play.grow(*[MAX_MESSAGE] * 10)
        frozen = play.freeze()
        play.ask(joiner, CatchUp(0))
        await joiner.until(manifests=1)
        if damage == "removed":
            play.snapshots.remove(20)
        else:
            frozen.path.write_bytes(bytes(SIZE))
        play.ask(joiner, ChunkRequest(20, 0, 1))
        await joiner.until(manifests=1)
        play.ask(joiner, ChunkRequest(20, 0, 1))
        await joiner.until(manifests=2)
        assert joiner.manifests[1].version == 10


async def test_chunks_out_of_range_are_not_there(tmp_path: Path) -> None:
    async with stage(tmp_path) as (play, joiner):
        play.grow(*[MAX_MESSAGE] * 10)
        play.freeze()
        play.ask(joiner, ChunkRequest(10, 1 << 20, 64))
        await asyncio.sleep(0)
        play.ask(joiner, ChunkRequest(10, CHUNKS - 1, 64))
        await joiner.until(chunks=1)
        assert joiner.chunks[0].index == CHUNKS - 1
        assert len(joiner.chunks[0].data) == SIZE - (CHUNKS - 1) * CHUNK_BYTES


async def test_who_keeps_the_log_never_gets_a_snapshot(tmp_path: Path) -> None:
    async with stage(tmp_path) as (play, joiner):
        payloads = play.grow(*[MAX_MESSAGE] * 10)
        play.freeze()
        have = 0
        while have < 10:
            play.ask(joiner, CatchUp(have, "updates"))
            have = await joiner.page()
        assert joiner.payloads == payloads
        assert not joiner.manifests


async def test_who_has_no_state_gets_a_snapshot_however_small_the_updates_are(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path) as (play, joiner):
        play.freeze()
        play.grow(100)
        play.ask(joiner, CatchUp(0))
        await joiner.until(updates=1)
        play.ask(joiner, CatchUp(0, "snapshot"))
        await joiner.until(updates=1, manifests=1)
        assert joiner.manifests[0].version == 0
        play.grow(100)
        play.freeze()
        play.ask(joiner, CatchUp(1, "snapshot"))
        await joiner.until(updates=1, manifests=2)
        assert joiner.manifests[1].version == 2


async def test_snapshot_that_nobody_has_is_noticed_and_updates_do_meanwhile(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path) as (play, joiner):
        play.grow(*[100] * 9)
        play.ask(joiner, CatchUp(0))
        await joiner.until(updates=9)
        assert not play.serving.lacking
        play.ask(joiner, CatchUp(0, "snapshot"))
        await joiner.until(updates=18)
        assert play.serving.lacking
        play.freeze()
        assert not play.serving.lacking
        play.ask(joiner, CatchUp(0, "snapshot"))
        await joiner.until(updates=18, manifests=1)


async def test_archived_updates_are_not_sent_and_the_reason_is(tmp_path: Path) -> None:
    async with stage(tmp_path) as (play, joiner):
        play.grow(*[100] * 10)
        play.freeze()
        play.grow(*[100] * 4)
        play.log._base, play.log._ends = 10, play.log._ends[10:]
        play.ask(joiner, CatchUp(9, "updates"))
        while not joiner.told:
            await joiner.settle()
        assert isinstance(joiner.told[0], Notice) and "before version 10" in joiner.told[0].text
        play.ask(joiner, CatchUp(9))
        await joiner.until(manifests=1)
        play.ask(joiner, CatchUp(10, "updates"))
        await joiner.until(manifests=1, updates=4)


async def test_sessions_are_asked_to_keep_a_snapshot_and_named_to_joiners(tmp_path: Path) -> None:
    async with stage(tmp_path) as (play, joiner):
        holder, silent = Joiner(play), Joiner(play)
        play.grow(*[MAX_MESSAGE] * 10)
        async with running((holder.link, holder.connected), (silent.link, silent.connected)):
            frozen = play.snapshots.freeze(play.state)
            candidates = [(holder.peer, 5.0), (silent.peer, 1.0)]
            play.serving.reached(10, frozen.proof, candidates)
            for asked in (holder, silent):
                await asked.until()
                assert asked.told == [Serve(10)]
        play.ask(joiner, CatchUp(0))
        have = await joiner.page()  # nobody has it yet
        play.serving.holding(holder.session, 10)
        play.serving.holding(joiner.session, 10)
        play.ask(joiner, CatchUp(0))
        await joiner.until(updates=have, manifests=1)
        manifest = joiner.manifests[0]
        assert manifest.servers == (peer_name(holder.session),)
        assert (manifest.version, manifest.chunks) == (10, frozen.proof.digests)
        play.serving.leave(holder.session)
        play.ask(joiner, CatchUp(0))
        assert await joiner.page() > have


async def test_joiner_that_all_holders_fail_is_served_by_the_coordinator(tmp_path: Path) -> None:
    async with stage(tmp_path) as (play, joiner):
        liars = [Joiner(play) for _ in range(3)]
        play.grow(*[MAX_MESSAGE] * 10)
        play.freeze(*liars)
        play.ask(joiner, CatchUp(0))
        await joiner.until(manifests=1)
        names = joiner.manifests[0].servers
        assert set(names) == {peer_name(liar.session) for liar in liars}
        play.ask(joiner, CatchUp(0, failed=names[:1]))
        await joiner.until(manifests=2)
        assert set(joiner.manifests[1].servers) == set(names[1:])
        play.ask(joiner, CatchUp(0, failed=names[1:]))
        await joiner.until(manifests=3)
        assert joiner.manifests[2].servers == ()
        play.ask(joiner, ChunkRequest(10, 0, 1))
        await joiner.until(manifests=3, chunks=1)


async def test_manifest_is_signed_once_for_all_who_come_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    monkeypatch.setattr(serving, "signed", lambda *of: made.append(of) or signed(*of))
    async with stage(tmp_path) as (play, joiner):
        play.grow(*[MAX_MESSAGE] * 10)
        play.freeze(*[Joiner(play) for _ in range(3)])
        others = [Joiner(play) for _ in range(9)]
        async with running(*[(other.link, other.connected) for other in others]):
            for asking in (joiner, *others):
                play.ask(asking, CatchUp(0))
            for asking in (joiner, *others):
                await asking.until(manifests=1)
        assert len(made) == 1
        for _ in range(20):
            play.grow(MAX_MESSAGE)
            play.freeze()
            play.ask(joiner, CatchUp(0, "snapshot"))
            await joiner.until(manifests=len(joiner.manifests) + 1)
        assert len(play.serving._manifests) == serving.MANIFESTS_KEPT


async def test_snapshots_of_an_earlier_epoch_are_offered_where_the_log_proves_them(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path) as (play, joiner):
        good = [dataclasses.replace(play.state, version=version) for version in (5, 10)]
        for state in good:
            play.grow(*[MAX_MESSAGE] * 4)
            update = Update(
                epoch=1,
                version=state.version - 1,
                cohorts=(),
                scale=0.0,
                learning_rate=0.0,
                sigma=0.1,
                observed=(),
                episodes=0,
                steps=0,
                digest_before=bytes(16),
                digest_after=bytes(16),
                state_digest=snapshot.state_digest(state),
            )
            play.append(signed(play.identity, "update", (play.run_id,), update))
            play.snapshots.freeze(state)
        play.grow(100, 100)
        for version in (9, 11, 64):  # not proved, not even well-formed, and of another history
            play.snapshots.freeze(dataclasses.replace(play.state, version=version))
        play.snapshots.freeze(replay.initial_state(SPEC))

        async def found(initial_digest: str = "") -> list[int]:
            served = play.make_serving(initial_digest)
            # Holders say so as soon as they are welcomed.
            served.holding(joiner.session, 10)
            served.holding(SessionId("z" * 16, "z" * 6), 10)
            served.leave(SessionId("z" * 16, "z" * 6))
            await served._find_snapshots()
            offered = [v for v in range(65) if served._holders.own(v) is not None]
            if 10 in offered:
                offer = served._holders.find(SessionId("y" * 16, "y" * 6), 0, 0.0)
                assert offer is not None and offer[1] == (joiner.session,)
            return offered

        assert await found() == [0, 10]
        assert await found(snapshot.state_digest(replay.initial_state(SPEC)).hex()) == [0, 10]
        assert await found(snapshot.state_digest(play.state).hex()) == [10]
        (play.snapshots.directory / "snapshot-10.bin").write_bytes(bytes(SIZE))
        assert await found() == [0, 5]


async def test_snapshot_too_large_for_a_manifest_is_not_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "LARGEST_SNAPSHOT", SIZE - 1)
    async with stage(tmp_path) as (play, joiner):
        play.grow(*[MAX_MESSAGE] * 10)
        play.freeze(joiner)
        play.ask(joiner, CatchUp(0))
        await joiner.page()
        assert not joiner.told and not joiner.manifests


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
        play.freeze()
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
            play.freeze()
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


async def test_whole_allowances_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage(tmp_path) as (play, joiner):
        play.grow(*[MAX_MESSAGE] * 10)
        play.ask(joiner, CatchUp(0))
        await joiner.page()
        play.serving.forget_old()
        assert play.serving._allowances
        monkeypatch.setattr(Serving, "_now", staticmethod(lambda: time.monotonic() + 120.0))
        play.serving.forget_old()
        assert not play.serving._allowances


async def test_delegate_gets_the_whole_log_however_long_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "ALLOWED_PER_MINUTE", 0)
    async with stage(tmp_path) as (play, stranger):
        delegate = Identity.generate()
        authority = play.leader.authority.amended(
            play.identity, 1, play.identity.public_key, [key_digest(delegate.public_key)]
        )
        play.serving._leader = dataclasses.replace(play.leader, authority=authority)
        payloads = play.grow(*[200_000] * (4 * SIZE // 200_000))
        joiner = Joiner(play, delegate)
        async with running((joiner.link, joiner.connected)):
            # Who asks while an answer is still under way gets some of it twice.
            while (reached := len(set(joiner.payloads))) < len(payloads):
                play.ask(joiner, CatchUp(reached, "updates"))
                await joiner.page()
        assert list(dict.fromkeys(joiner.payloads)) == payloads
        for _ in range(2 * len(payloads)):
            play.ask(stranger, CatchUp(len(stranger.payloads), "updates"))
            await stranger.settle()
        assert 0 < len(stranger.payloads) < 3 * len(payloads) / 4


async def test_log_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    async with stage(tmp_path) as (play, joiner):
        play.grow(100)
        play.log.close()
        play.ask(joiner, CatchUp(0))
        with pytest.raises(LogError, match="can't be read"):
            await asyncio.wait_for(play.task, DEADLINE)
