"""Snapshots from peer to peer on the whole path, and what is left of that for the coordinator."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from coordinator import recorder
from protocol import replay, snapshot, topics
from protocol.entrust import open_secret
from protocol.envelope import plain
from protocol.identity import Identity, key_digest
from protocol.messages import (
    CatchUp,
    Chunk,
    ChunkRequest,
    Entrust,
    Holding,
    Manifest,
    Message,
    Serve,
)
from protocol.proof import CHUNK_BYTES, Proof
from protocol.state import State
from tests.coordinator.runs import Led, led, spec_of
from tests.coordinator.scripted import DEADLINE, ScriptedWorker

SPEC = spec_of(policy={"kind": "mlp", "hidden": [20]}, stop={"updates": 72})
RULES = replay.arithmetic(SPEC)
JOINERS = 10
PACKET = 120
"""Bytes of a PUBLISH beside its payload at most: the topic, mostly."""


class Keeper(ScriptedWorker):
    """Holds snapshots and hands them out, damaged where it `lies`."""

    lies = False
    served = 0

    def __init__(self, *of: str, **options: object) -> None:
        super().__init__(*of, **options)  # type: ignore[arg-type]
        self.frozen: dict[int, bytes] = {}
        self.wished: set[int] = set()

    @property
    def peer(self) -> str:
        return topics.peer(self.identity.worker, self.session)

    def _hear_sealed(self, message: Message) -> None:
        if isinstance(message, Serve):
            self.wished.add(message.version)
        super()._hear_sealed(message)

    def _reach(self, state: State) -> None:
        super()._reach(state)
        if state.version in self.wished:
            self.hold(snapshot.to_bytes(state))

    def hold(self, data: bytes) -> None:
        version = snapshot.from_bytes(RULES, data).version
        self.frozen[version] = data
        self.ask(Holding(version))

    def _serve(self, question: Message, joiner: str) -> None:
        if not isinstance(question, ChunkRequest):
            super()._serve(question, joiner)
        elif question.version in self.frozen:
            part = self.frozen[question.version][question.first * CHUNK_BYTES :][:CHUNK_BYTES]
            part = bytes(len(part)) if self.lies else part
            answer = topics.snapshot(self.run_id, self.peer, joiner)
            self.link.publish(answer, plain(Chunk(question.version, question.first, part)))
            self.served += 1


class Newcomer(Keeper):
    """Takes the snapshot that it is offered from the first holder that serves it well."""

    def __init__(self, *of: str, **options: object) -> None:
        super().__init__(*of, credit=0, busy=False, **options)
        self.failed: list[str] = []

    async def __aexit__(self, *_: object) -> None:
        self.bye()
        await super().__aexit__()

    async def join(self) -> None:
        """Reach the run's version as one should."""
        while not self.frozen:
            await self.until(lambda: bool(self.heard.manifests))
            await self._fetch(self.heard.manifests.pop())
        self.ask(CatchUp(self.version))

    async def _fetch(self, manifest: Manifest) -> None:
        assert manifest.total <= CHUNK_BYTES
        request = ChunkRequest(manifest.version, 0, 1)
        for server in manifest.servers:
            self.link.publish(topics.ask(self.run_id, server, self.peer), plain(request), qos=1)
            await self.until(lambda: bool(self.heard.chunks))
            if self._take(manifest):
                return
            self.heard.chunks.clear()
            self.failed.append(server)
        if manifest.servers:
            self.ask(CatchUp(self.version, failed=manifest.servers))
            return
        self.ask(request)
        await self.until(lambda: bool(self.heard.chunks))
        assert self._take(manifest)

    def _take(self, manifest: Manifest) -> bool:
        data = self.heard.chunks[0]
        good = Proof(manifest.total, manifest.chunks).covers(0, data)
        if good:
            self._reach(snapshot.from_bytes(RULES, data))
            self.hold(data)
        return good


@pytest.fixture(autouse=True)
def every_snapshot_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that was slow with version 0 would have the coordinator do without 64."""
    monkeypatch.setattr(recorder, "SNAPSHOT_SHARE", 1.0)


@contextlib.asynccontextmanager
async def at_version_70(directory: Path, keepers: int) -> AsyncIterator[tuple[Led, list[Keeper]]]:
    """A run that waits at version 70, with so many workers that hold the snapshot of 64."""
    async with led(SPEC, directory) as run, contextlib.AsyncExitStack() as stack:
        kind = Keeper if keepers else ScriptedWorker
        workers = [
            await stack.enter_async_context(kind(run.url, run.run_id, busy=False, pause_at=70))
            for _ in range(max(keepers, 1))
        ]
        # Only who has returned a result is asked to hold a snapshot: nobody begins before all can.
        for worker in workers:
            await worker.until(lambda worker=worker: bool(worker.heard.tasks))
        offers = run.server._serving._holders
        await eventually(lambda: offers.own(0) is not None)
        for worker in workers:
            worker.begin()
        for worker in workers:
            await worker.until(lambda worker=worker: worker.version == 70)
        await eventually(
            lambda: offers.own(64) is not None and len(offers._offers[64].holders) == keepers
        )
        yield run, [worker for worker in workers if isinstance(worker, Keeper)]
        for worker in workers:
            worker.resume()
        await run.outcome()


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE):
        while not condition():
            await asyncio.sleep(0.01)


def sent(run: Led, kind: str) -> int:
    return run.server._link.wire.snapshot().get(f"sent publish {kind}", 0)


async def join_ten(run: Led) -> tuple[list[Newcomer], int, int]:
    """Ten newcomers at once: they, and what the coordinator sent to them (in, snap) in bytes."""
    before = sent(run, "in"), sent(run, "snap")
    async with contextlib.AsyncExitStack() as stack:
        joiners = [
            await stack.enter_async_context(Newcomer(run.url, run.run_id)) for _ in range(JOINERS)
        ]
        await asyncio.gather(*(joiner.join() for joiner in joiners))
        for joiner in joiners:
            await joiner.until(lambda joiner=joiner: joiner.version == 70)
    reached = run.server._versions.current
    for joiner in joiners:
        assert joiner.state is not None
        assert snapshot.state_digest(joiner.state) == snapshot.state_digest(reached)
    return joiners, sent(run, "in") - before[0], sent(run, "snap") - before[1]


async def test_ten_joiners_cost_ten_manifests_and_the_updates_after_the_snapshot(
    tmp_path: Path,
) -> None:
    async with at_version_70(tmp_path, keepers=3) as (run, keepers):
        joiners, told, served = await join_ten(run)
        assert served == 0
        assert sum(peer.served for peer in (*keepers, *joiners)) == JOINERS
        after = sum(map(len, run.course.log.updates(64, 70)))
        one = 2 * (512 + PACKET) + after + 6 * PACKET  # a welcome and a manifest, updates
        assert told <= JOINERS * one
        assert run.course.log.size(0, 64) > snapshot.state_bytes(RULES)


async def test_coordinator_serves_ten_joiners_where_nobody_holds_a_snapshot(
    tmp_path: Path,
) -> None:
    async with at_version_70(tmp_path, keepers=0) as (run, _):
        _, _, served = await join_ten(run)
        assert served >= snapshot.state_bytes(RULES)


async def test_joiners_hand_on_what_they_got(tmp_path: Path) -> None:
    async with at_version_70(tmp_path, keepers=0) as (run, _):
        known = run.server._serving._holders._offers[64].holders
        async with Newcomer(run.url, run.run_id) as first:
            await first.join()
            before = sent(run, "snap")
            assert before >= snapshot.state_bytes(RULES)
            await eventually(lambda: len(known) == 1)
            async with Newcomer(run.url, run.run_id) as second:
                await second.join()
            assert (sent(run, "snap"), first.served) == (before, 1)
        # Who left is no holder any more.
        await eventually(lambda: not known)


async def test_liar_is_found_out_and_nobody_is_sent_to_it_for_long(tmp_path: Path) -> None:
    async with at_version_70(tmp_path, keepers=1) as (run, (liar,)):
        known = run.server._serving._holders._offers[64].holders
        liar.lies = True
        for _ in range(2):
            async with Newcomer(run.url, run.run_id) as joiner:
                await joiner.join()
                assert joiner.failed == [liar.peer]
            await eventually(lambda: len(known) <= 1)
        assert liar.served == 2
        await eventually(lambda: not known)
        async with Newcomer(run.url, run.run_id) as third:
            await third.join()
            assert third.failed == []


async def test_delegate_is_entrusted_with_the_secret_and_nobody_else(tmp_path: Path) -> None:
    boxes: list[tuple[ScriptedWorker, bytes]] = []

    class Listener(ScriptedWorker):
        def _hear_sealed(self, message: Message) -> None:
            if isinstance(message, Entrust):
                boxes.append((self, message.box))
            super()._hear_sealed(message)

    delegate = Identity.generate()
    async with led(spec_of(stop={"updates": 3}), tmp_path) as run:
        leader = run.leader
        authority = leader.authority.amended(
            run.identity, 1, run.identity.public_key, [key_digest(delegate.public_key)]
        )
        object.__setattr__(leader, "authority", authority)
        async with (
            Listener(run.url, run.run_id, busy=False) as worker,
            Listener(run.url, run.run_id, credit=0, identity=delegate) as standby,
        ):
            await standby.until(lambda: bool(boxes))
            await worker.until(lambda: bool(worker.heard.tasks))
            ((who, box),) = boxes
            assert who is standby and standby.key is not None
            assert open_secret(standby.key, box) == run.directory.read_secret()
            worker.resume()
            await run.outcome()
