"""What newcomers and those who fell behind get: missed updates, or a snapshot in chunks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass

from coordinator.log import UpdateLog
from coordinator.peers import Leader, Peer
from protocol import snapshot, topics
from protocol.envelope import plain, signed
from protocol.link import Link
from protocol.messages import CatchUp, Chunk, ChunkRequest, Manifest
from protocol.snapshot import CHUNK_BYTES
from protocol.state import State

MANIFEST_BYTES = 512
"""About what a manifest of one chunk costs on the wire."""
PATIENT_ABOVE = 1 << 20
"""Unsent bytes above which serving waits: tasks go first."""
KEEP_FOR = 60.0
"""Seconds after which a snapshot that nobody asks for any more is let go."""


@dataclass(frozen=True, slots=True)
class _Frozen:
    version: int
    data: bytes
    manifest: bytes


class Serving:
    """Answers catch-up requests, one piece of work per peer at a time, tasks always first."""

    def __init__(
        self, link: Link, log: UpdateLog, leader: Leader, state: Callable[[], State]
    ) -> None:
        self._link = link
        self._log = log
        self._leader = leader
        self._state = state
        self._frozen: _Frozen | None = None
        self._jobs: dict[str, asyncio.Task[None]] = {}
        self._asked_at = 0.0

    def catch_up(self, peer: Peer, request: CatchUp) -> None:
        """Send what leads from the peer's version to ours, whichever way is fewer bytes."""
        self._start(peer, self._catch_up(peer, request))

    def chunks(self, peer: Peer, request: ChunkRequest) -> None:
        """Send a window of the frozen snapshot; nothing if it is not the one asked for."""
        self._start(peer, self._send_chunks(peer, request))

    def forget_old(self, now: float) -> None:
        """Let go of a snapshot that nobody fetches any more."""
        if self._frozen is not None and now - self._asked_at > KEEP_FOR:
            self._frozen = None

    def close(self) -> None:
        """Stop serving."""
        for job in self._jobs.values():
            job.cancel()

    def _start(self, peer: Peer, work: Coroutine[None, None, None]) -> None:
        name = topics.peer(peer.id.worker, peer.id.session)
        running = self._jobs.pop(name, None)
        if running is not None:
            running.cancel()
        self._asked_at = asyncio.get_running_loop().time()
        job = asyncio.get_running_loop().create_task(work)
        self._jobs[name] = job
        job.add_done_callback(lambda done: self._finished(name, done))

    def _finished(self, name: str, job: asyncio.Task[None]) -> None:
        if self._jobs.get(name) is job:
            del self._jobs[name]
        if not job.cancelled() and job.exception() is not None:
            raise job.exception()  # type: ignore[misc]

    async def _catch_up(self, peer: Peer, request: CatchUp) -> None:
        state = self._state()
        inbox = topics.inbox(self._leader.run, peer.id.worker, peer.id.session)
        missed = await asyncio.to_thread(self._log.size, request.version, state.version)
        whole = MANIFEST_BYTES + self._snapshot_bytes(state)
        if missed <= whole:
            payloads = await asyncio.to_thread(self._missed, request.version, state.version)
            for payload in payloads:
                await self._room()
                self._link.publish(inbox, payload)
            return
        frozen = await self._freeze(state)
        self._link.publish(inbox, frozen.manifest)

    def _missed(self, first: int, end: int) -> Sequence[bytes]:
        return list(self._log.payloads(first, end))

    def _snapshot_bytes(self, state: State) -> int:
        slots = sum(slot.nbytes for slot in state.slots.values())
        return state.theta.nbytes + slots

    async def _freeze(self, state: State) -> _Frozen:
        """The snapshot on offer: the same one for all who ask at about the same time."""
        kept = self._frozen
        if kept is not None:
            since = await asyncio.to_thread(self._log.size, kept.version, state.version)
            if since <= max(MANIFEST_BYTES, len(kept.data) // 8):
                return kept
        data = await asyncio.to_thread(snapshot.to_bytes, state)
        digests = await asyncio.to_thread(snapshot.chunk_digests, data)
        manifest = Manifest(
            version=state.version,
            digest=snapshot.manifest_digest(len(data), digests),
            total=len(data),
            chunks=digests,
        )
        leader = self._leader
        payload = signed(leader.identity, "manifest", (leader.run,), manifest)
        self._frozen = _Frozen(state.version, data, payload)
        return self._frozen

    async def _send_chunks(self, peer: Peer, request: ChunkRequest) -> None:
        frozen = self._frozen
        if frozen is None or frozen.version != request.version:
            await self._catch_up(peer, CatchUp(0, True))
            return
        leader = self._leader
        topic = topics.snapshot(
            leader.run,
            topics.peer(leader.identity.worker, "aaaaaa"),
            topics.peer(peer.id.worker, peer.id.session),
        )
        for index in range(request.first, request.first + request.count):
            part = frozen.data[index * CHUNK_BYTES : (index + 1) * CHUNK_BYTES]
            if not part:
                return
            await self._room()
            self._link.publish(topic, plain(Chunk(frozen.version, index, part)))

    async def _room(self) -> None:
        while self._link.unsent > PATIENT_ABOVE:
            await asyncio.sleep(0.02)
