"""What newcomers and those who fell behind get: missed updates, or a snapshot in chunks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from coordinator.allowance import Allowance
from coordinator.log import UpdateLog
from coordinator.peers import Leader, Peer
from coordinator.pool.events import SessionId
from protocol import snapshot, topics
from protocol.envelope import plain, signed
from protocol.link import Link
from protocol.messages import CatchUp, Chunk, ChunkRequest, Manifest
from protocol.snapshot import CHUNK_BYTES
from protocol.state import DIGEST_BYTES, State

PAGE_UPDATES = 256
PAGE_BYTES = 1 << 20
"""Updates that one request gets at most; who misses more asks again once it has applied them."""
WINDOW = 8
"""Chunks that one request gets at most."""
MANIFEST_BYTES = 512
"""About what the manifest of a small snapshot costs on the wire."""
LARGEST_SNAPSHOT = 200_000 // DIGEST_BYTES * CHUNK_BYTES
"""Bytes whose chunk digests just fit a manifest."""
REQUEST_BYTES = 1024
"""What a request counts beside the bytes of its answer."""
ALLOWED_PER_MINUTE = 8 << 20
"""Bytes that a session is served a minute, on top of two whole snapshots."""
PATIENT_ABOVE = 256 * 1024
"""Unsent bytes above which serving waits: tasks go first."""
PATIENCE = 0.02
"""Seconds between two looks at the unsent bytes."""
KEPT_SNAPSHOTS = 2
"""One to offer, and the one before it for those who are in the midst of fetching it."""
KEEP_FOR = 60.0
"""Seconds after which a snapshot that nobody asks for any more is let go."""

SERVER_SESSION = "aaaaaa"
"""How the coordinator names itself where a peer serves a snapshot: it has no session."""


@dataclass(slots=True)
class _Frozen:
    data: bytes
    manifest: bytes
    asked_at: float


class Serving:
    """Answers one request of one session at a time, whoever waits longest first.

    Only a session's last request counts, so that asking in a loop gets nobody more. Tasks always go
    first: serving waits while the link has much to send.
    """

    def __init__(
        self,
        link: Link,
        log: UpdateLog,
        leader: Leader,
        state: Callable[[], State],
        snapshot_bytes: int,
    ) -> None:
        """`state()` is the current one; `snapshot_bytes` is how large every state of the run is."""
        self._link = link
        self._log = log
        self._leader = leader
        self._state = state
        self._snapshot_bytes = snapshot_bytes
        self._waiting: dict[SessionId, tuple[Peer, CatchUp | ChunkRequest]] = {}
        self._wanted = asyncio.Event()
        self._frozen: dict[int, _Frozen] = {}
        self._allowances: dict[SessionId, Allowance] = {}

    def ask(self, peer: Peer, request: CatchUp | ChunkRequest) -> None:
        """Answer the request in its turn, instead of an earlier one of that session."""
        self._waiting[peer.id] = peer, request
        self._wanted.set()

    async def run(self) -> None:
        """Serve for ever. Raises `LogError` where the log can't be read."""
        while True:
            await self._wanted.wait()
            while self._waiting:
                peer, request = self._waiting.pop(next(iter(self._waiting)))
                if isinstance(request, CatchUp):
                    await self._catch_up(peer, request.version)
                else:
                    await self._send_window(peer, request)
            self._wanted.clear()

    def forget_old(self) -> None:
        """Let go of snapshots that nobody fetches any more, and of allowances that are whole."""
        now = self._now()
        for version in [v for v, old in self._frozen.items() if now - old.asked_at > KEEP_FOR]:
            del self._frozen[version]
        for id in [id for id, kept in self._allowances.items() if kept.full(now)]:
            del self._allowances[id]

    async def _catch_up(self, peer: Peer, version: int) -> None:
        """Send what leads from the peer's version to ours, whichever way is fewer bytes."""
        reached = self._state().version
        larger = self._log.size(version, reached) > MANIFEST_BYTES + self._snapshot_bytes
        if larger and self._snapshot_bytes <= LARGEST_SNAPSHOT:
            await self._offer_snapshot(peer)
            return
        end = min(reached, version + PAGE_UPDATES)
        while self._log.size(version, end) > PAGE_BYTES and end > version + 1:
            end = (version + end) // 2
        if version >= end or not self._allowed(peer, self._log.size(version, end)):
            return
        for payload in await asyncio.to_thread(self._log.updates, version, end):
            await self._room()
            self._tell(peer, payload)

    async def _offer_snapshot(self, peer: Peer) -> None:
        if self._allowed(peer, MANIFEST_BYTES):
            frozen = await self._freeze()
            await self._room()
            self._tell(peer, frozen.manifest)

    async def _freeze(self) -> _Frozen:
        """The snapshot on offer: the same one for all who ask at about the same time."""
        state = self._state()
        newest = max(self._frozen, default=None)
        if newest is not None:
            since = self._log.size(newest, state.version)
            if since <= max(MANIFEST_BYTES, self._snapshot_bytes // 8):
                return self._frozen[newest]
        data, digests = await asyncio.to_thread(_serialise, state)
        manifest = Manifest(
            version=state.version,
            digest=snapshot.manifest_digest(len(data), digests),
            total=len(data),
            chunks=digests,
        )
        leader = self._leader
        payload = signed(leader.identity, "manifest", (leader.run,), manifest)
        while len(self._frozen) >= KEPT_SNAPSHOTS:
            del self._frozen[min(self._frozen)]
        frozen = self._frozen[state.version] = _Frozen(data, payload, self._now())
        return frozen

    async def _send_window(self, peer: Peer, request: ChunkRequest) -> None:
        frozen = self._frozen.get(request.version)
        if frozen is None:
            await self._offer_snapshot(peer)
            return
        frozen.asked_at = self._now()
        last = min(request.first + min(request.count, WINDOW), -(-len(frozen.data) // CHUNK_BYTES))
        if not self._allowed(peer, (last - request.first) * CHUNK_BYTES):
            return
        leader = self._leader
        topic = topics.snapshot(
            leader.run,
            topics.peer(leader.identity.worker, SERVER_SESSION),
            topics.peer(peer.id.worker, peer.id.session),
        )
        for index in range(request.first, last):
            part = frozen.data[index * CHUNK_BYTES : (index + 1) * CHUNK_BYTES]
            await self._room()
            self._link.publish(topic, plain(Chunk(request.version, index, part)))

    def _allowed(self, peer: Peer, size: int) -> bool:
        """Whether the session may have that many bytes now; it asks again where not."""
        allowance = self._allowances.get(peer.id)
        if allowance is None:
            most = 2 * self._snapshot_bytes + ALLOWED_PER_MINUTE
            allowance = self._allowances[peer.id] = Allowance(most / 60.0, most, self._now())
        return allowance.take(REQUEST_BYTES + max(0, size), self._now())

    def _tell(self, peer: Peer, payload: bytes) -> None:
        inbox = topics.inbox(self._leader.run, peer.id.worker, peer.id.session)
        self._link.publish(inbox, payload)

    async def _room(self) -> None:
        while self._link.unsent > PATIENT_ABOVE:
            await asyncio.sleep(PATIENCE)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


def _serialise(state: State) -> tuple[bytes, bytes]:
    data = snapshot.to_bytes(state)
    return data, snapshot.chunk_digests(data)
