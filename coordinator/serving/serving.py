"""What newcomers and those who fell behind get: missed updates, or a snapshot from peers or us."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random

from coordinator import log as update_log
from coordinator.log import UpdateLog
from coordinator.peers import Leader, Peer
from coordinator.pool.events import SessionId
from coordinator.serving.holders import Holders, Offer, peer_name
from protocol import topics
from protocol.allowance import Allowance
from protocol.envelope import peek_signed, plain, sealed, signed
from protocol.frozen import Frozen, FrozenError, Snapshots
from protocol.link import Link
from protocol.messages import (
    CatchUp,
    Chunk,
    ChunkRequest,
    Manifest,
    Message,
    Notice,
    PeerName,
    Serve,
    Update,
)
from protocol.packing import WireError
from protocol.proof import CHUNK_BYTES, DIGEST_BYTES, Proof
from protocol.state import State

PAGE_UPDATES = 256
PAGE_BYTES = 1 << 20
"""Updates that one request gets at most; who misses more asks again once it has applied them."""
WINDOW = 8
"""Chunks that one request gets at most."""
MANIFEST_BYTES = 512
"""About what a manifest costs on the wire beside its chunk digests."""
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
MOST_EARLY = 1000
"""Words of holders that are kept until we have looked at our own snapshots."""
MANIFESTS_KEPT = 8
"""Signed manifests that are kept: who comes in one moment gets the same one."""


class Serving:
    """Answers one request of one session at a time, whoever waits longest first.

    Only a session's last request counts, so that asking in a loop gets nobody more. Tasks always go
    first: serving waits while the link has much to send.

    Attributes:
        lacking: whether somebody could have used a snapshot while there was none to be had.
    """

    def __init__(
        self,
        link: Link,
        log: UpdateLog,
        leader: Leader,
        state: Callable[[], State],
        snapshots: Snapshots,
        snapshot_bytes: int,
        initial_digest: str = "",
        random: Random | None = None,
    ) -> None:
        """`state()` is the current one; `snapshot_bytes` is how large every state of the run is;
        `initial_digest` is what the spec says of version 0."""
        self.lacking = False
        self._link = link
        self._log = log
        self._leader = leader
        self._state = state
        self._snapshots = snapshots
        self._snapshot_bytes = snapshot_bytes
        self._initial_digest = initial_digest
        self._holders = Holders(random or Random())
        self._waiting: dict[SessionId, tuple[Peer, CatchUp | ChunkRequest]] = {}
        self._wanted = asyncio.Event()
        self._allowances: dict[SessionId, Allowance] = {}
        self._early: set[tuple[int, SessionId]] | None = set()
        self._manifests: dict[tuple[bytes, tuple[PeerName, ...]], bytes] = {}

    # What the run tells.

    def reached(self, version: int, proof: Proof, candidates: Sequence[tuple[Peer, float]]) -> None:
        """The next update leads to a snapshot version: ask some of the sessions that are in step,
        each with its speed, to keep it."""
        if proof.total > LARGEST_SNAPSHOT:
            return
        peers = {peer.id: peer for peer, _ in candidates}
        speeds = [(peer.id, speed) for peer, speed in candidates]
        for id in self._holders.reached(version, proof, speeds):
            self._say(peers[id], Serve(version))

    def on_disk(self, frozen: Frozen) -> None:
        """A snapshot was written to the run directory."""
        if frozen.proof.total <= LARGEST_SNAPSHOT:
            self._holders.keep(frozen)
            self.lacking = False

    def holding(self, id: SessionId, version: int) -> None:
        """A session says that it has a snapshot."""
        if self._early is None:
            self._holders.add(version, id)
        elif len(self._early) < MOST_EARLY:
            self._early.add((version, id))

    def leave(self, id: SessionId) -> None:
        """A session is gone."""
        self._holders.leave(id)
        if self._early is not None:
            self._early = {(version, other) for version, other in self._early if other != id}

    # What sessions ask for.

    def ask(self, peer: Peer, request: CatchUp | ChunkRequest) -> None:
        """Answer the request in its turn, instead of an earlier one of that session."""
        self._waiting[peer.id] = peer, request
        self._wanted.set()

    async def run(self) -> None:
        """Serve for ever. Raises `LogError` where the log can't be read."""
        await self._find_snapshots()
        while True:
            await self._wanted.wait()
            while self._waiting:
                peer, request = self._waiting.pop(next(iter(self._waiting)))
                if isinstance(request, CatchUp):
                    await self._catch_up(peer, request)
                else:
                    await self._send_window(peer, request)
            self._wanted.clear()

    def forget_old(self) -> None:
        """Let go of allowances that are whole."""
        now = self._now()
        for id in [id for id, kept in self._allowances.items() if kept.full(now)]:
            del self._allowances[id]

    async def _find_snapshots(self) -> None:
        """Offer what an earlier epoch left on the disk: the newest that is good, and version 0."""
        versions = [v for v in self._snapshots.versions() if v <= self._state().version]
        for version in reversed([v for v in versions if v >= max(1, self._log.base)]):
            if await self._find_snapshot(version):
                break
        if 0 in versions:
            await self._find_snapshot(0)
        early, self._early = self._early or (), None
        for version, id in early:
            self._holders.add(version, id)

    async def _find_snapshot(self, version: int) -> bool:
        """Offer one of them; whether it is good."""
        try:
            frozen = await asyncio.to_thread(self._snapshots.open, version)
        except FrozenError:
            return False
        proved = self._is_proved(frozen)
        if proved:
            self.on_disk(frozen)
        return proved

    def _is_proved(self, frozen: Frozen) -> bool:
        """Whether the log, or for version 0 the spec, says that this was the state."""
        version, log = frozen.version, self._log
        if version == 0 and not log.base:
            return self._initial_digest in ("", frozen.digest.hex())
        if version == log.base:
            return log.noted(update_log.BASE_DIGEST) == frozen.digest.hex()
        if version < log.base:
            return False
        try:
            (payload,) = log.updates(version - 1, version)
            update = peek_signed(payload)  # it was checked when it came into the log
        except (ValueError, WireError):
            return False
        return isinstance(update, Update) and update.state_digest == frozen.digest

    async def _catch_up(self, peer: Peer, request: CatchUp) -> None:
        """Send what leads from the peer's version to ours, whichever way is fewer bytes."""
        self._holders.blame(peer.id, request.failed)
        version, log = request.version, self._log
        if request.want == "updates":
            if version < log.base:
                await self._refuse(
                    peer,
                    f"updates before version {log.base:,} are archived: copy the log from the "
                    "host, or begin with a snapshot",
                )
            else:
                await self._send_updates(peer, version)
            return
        after = -1 if request.want == "snapshot" else version
        found = self._holders.find(peer.id, max(after, log.base - 1), self._now())
        if found is not None and self._is_better(found[0], request):
            await self._offer(peer, *found)
            return
        self.lacking |= found is None and self._misses_much(request)
        if version >= log.base:
            await self._send_updates(peer, version)

    def _is_better(self, offer: Offer, request: CatchUp) -> bool:
        """Whether a snapshot is what the peer wants, or fewer bytes than all that it missed."""
        log, reached = self._log, self._state().version
        if request.want == "snapshot" or request.version < log.base:
            return True
        cost = MANIFEST_BYTES + len(offer.proof.digests) + offer.proof.total
        return cost + log.size(offer.version, reached) < log.size(request.version, reached)

    def _misses_much(self, request: CatchUp) -> bool:
        """Whether a snapshot might have been better than what the peer gets."""
        reached = self._state().version
        behind = request.version < self._log.base
        return request.want == "snapshot" or behind or reached - request.version > PAGE_UPDATES

    async def _offer(self, peer: Peer, offer: Offer, servers: tuple[SessionId, ...]) -> None:
        size = MANIFEST_BYTES + len(offer.proof.digests)
        if self._allowed(peer, size):
            payload = self._manifest(offer, tuple(map(peer_name, servers)))
            await self._room()
            self._holders.send(peer.id, offer, servers)
            self._tell(peer, payload)

    def _manifest(self, offer: Offer, servers: tuple[PeerName, ...]) -> bytes:
        """The signed offer of a snapshot, made once for all who get the same."""
        proof, leader = offer.proof, self._leader
        key = proof.digest, servers
        payload = self._manifests.pop(key, None)
        if payload is None:
            manifest = Manifest(offer.version, proof.digest, proof.total, proof.digests, servers)
            payload = signed(leader.identity, "manifest", (leader.run,), manifest)
        self._manifests[key] = payload
        if len(self._manifests) > MANIFESTS_KEPT:
            del self._manifests[next(iter(self._manifests))]
        return payload

    async def _send_updates(self, peer: Peer, version: int) -> None:
        """Send the next page of what the peer misses."""
        log, reached = self._log, self._state().version
        if version >= reached:
            return
        end = min(reached, log.page_end(version, PAGE_UPDATES, PAGE_BYTES))
        # Who is to lead one day needs the whole log; others shall not take it again and again.
        appointed = self._leader.may_be_succeeded_by(peer.worker_key)
        if not appointed and not self._allowed(peer, log.size(version, end)):
            return
        for payload in await asyncio.to_thread(log.updates, version, end):
            await self._room()
            self._tell(peer, payload)

    async def _send_window(self, peer: Peer, request: ChunkRequest) -> None:
        frozen = self._holders.own(request.version)
        if frozen is None:
            await self._catch_up(peer, CatchUp(self._state().version, "snapshot"))
            return
        last = min(request.first + min(request.count, WINDOW), frozen.chunks)
        if not self._allowed(peer, (last - request.first) * CHUNK_BYTES):
            return
        leader = self._leader
        topic = topics.snapshot(
            leader.run,
            topics.peer(leader.identity.worker, topics.LEADER_SESSION),
            peer_name(peer.id),
        )
        for index in range(request.first, last):
            try:
                chunk = await asyncio.to_thread(frozen.chunk, index)
            except FrozenError:
                self._holders.lose(request.version)
                return
            await self._room()
            self._link.publish(topic, plain(Chunk(request.version, index, chunk)))

    async def _refuse(self, peer: Peer, reason: str) -> None:
        if self._allowed(peer, 0):
            await self._room()
            self._say(peer, Notice("say", reason))

    def _allowed(self, peer: Peer, size: int) -> bool:
        """Whether the session may have that many bytes now; it asks again where not."""
        allowance = self._allowances.get(peer.id)
        if allowance is None:
            most = 2 * self._snapshot_bytes + ALLOWED_PER_MINUTE
            allowance = self._allowances[peer.id] = Allowance(most / 60.0, most)
        return allowance.take(REQUEST_BYTES + max(0, size), self._now())

    def _say(self, peer: Peer, message: Message) -> None:
        self._tell(peer, sealed(peer.session_key, "to worker", message))

    def _tell(self, peer: Peer, payload: bytes) -> None:
        inbox = topics.inbox(self._leader.run, peer.id.worker, peer.id.session)
        self._link.publish(inbox, payload)

    async def _room(self) -> None:
        while self._link.unsent > PATIENT_ABOVE:
            await asyncio.sleep(PATIENCE)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
