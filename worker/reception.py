"""A snapshot on its way from several servers: which chunks are here, whom to ask for which. Pure.

Every server that is asked owes one window of chunks at a time. Whoever sends a chunk, the manifest
proves it; what is wrong counts for nothing, so a liar is to us like one who says nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from mmap import mmap
from random import Random

from protocol import amended
from protocol.messages import CHUNK, Chunk, ChunkRequest, Manifest
from protocol.proof import DIGEST_BYTES, Proof
from protocol.topics import PEER_PATTERN

WINDOW = 8
"""Chunks asked for at once of a server: 1.5 MiB on their way."""
AT_ONCE = 4
"""Servers that are asked at the same time."""
PATIENCE = 4.0
"""Seconds without a chunk of its window after which a server is late; on a slow line as long as all
windows together take, since they may come one after the other."""
SLOWEST = 1.0
"""Seconds that one chunk after the other may take, for that."""
LATE = 3
"""Windows in a row with which a server may be late although something came; the first one of which
nothing came is enough to drop it."""
HURRY = 1.0
"""Seconds without a chunk after which a server with nothing else to fetch takes the window over."""
COORDINATOR = ""
"""In place of a server's name."""

_MISSING, _ASKED, _HERE = 0, 1, 2


def unusable(manifest: Manifest, snapshot_bytes: int) -> str:
    """Why no state of this run can come of a signed manifest; empty where one can.

    `snapshot_bytes`: how long a state is, without settings that updates have changed.
    """
    if not 0 <= manifest.total - snapshot_bytes <= amended.MOST_BYTES:
        return f"{manifest.total:,} bytes, this run's states have {snapshot_bytes:,}"
    if len(manifest.chunks) != DIGEST_BYTES * -(-manifest.total // CHUNK):
        return "another number of chunk digests than chunks"
    if Proof(manifest.total, manifest.chunks).digest != manifest.digest:
        return "chunk digests that its own digest does not prove"
    if not all(map(PEER_PATTERN.fullmatch, manifest.servers)):
        return "a server that can't be the name of a peer"
    return ""


@dataclass(slots=True)
class _Server:
    name: str
    window: set[int] = field(default_factory=set)
    moved: float = 0.0
    """when it was asked, or something of its window came"""
    gave: bool = False
    """whether anything of this window came"""
    late: int = 0


class Reception:
    """Collects the chunks of one manifest.

    Attributes:
        version, digest: of the snapshot.
        failed: servers of the last offer that were dropped.
    """

    def __init__(self, manifest: Manifest, random: Random) -> None:
        """`manifest` must not be `unusable`."""
        self.version = manifest.version
        self.digest = manifest.digest
        self.failed: tuple[str, ...] = ()
        self._random = random
        self._proof = Proof(manifest.total, manifest.chunks)
        self._data = mmap(-1, manifest.total)  # takes memory as chunks come, not at once
        self._chunks = bytearray(self._proof.chunks)
        self._left = len(self._chunks)
        self._pace: float | None = None
        self._took_at: float | None = None
        self._servers: list[_Server] = []
        self._offered: set[str] = set()
        self.offer(manifest.servers)

    @property
    def complete(self) -> bool:
        """Whether all chunks are here."""
        return self._left == 0

    @property
    def share(self) -> float:
        """How much of it is here, 0 to 1."""
        return 1.0 - self._left / len(self._chunks)

    @property
    def data(self) -> memoryview:
        """The snapshot, once complete; not a copy."""
        return memoryview(self._data)

    @property
    def deserted(self) -> bool:
        """Whether nobody is left to ask for what is missing."""
        return not self._servers and not self.complete

    def offer(self, servers: Sequence[str]) -> None:
        """The same snapshot is offered by these servers, or by the coordinator where there are
        none; what is here stays."""
        self._let_go(*self._servers)
        names = list(dict.fromkeys(servers)) or [COORDINATOR]
        self._random.shuffle(names)
        self._offered.update(names)
        self._servers = [_Server(name) for name in names]
        self.failed = ()

    def is_offered(self, server: str) -> bool:
        """Whether that server was ever offered for this snapshot, be it late or dropped by now."""
        return server in self._offered

    def interrupted(self) -> None:
        """Nothing that was asked for will come: the connection was lost."""
        self._let_go(*self._servers)
        self._took_at = None

    def take(self, chunk: Chunk, now: float) -> bool:
        """Keep a chunk that the manifest proves and that was missing; whether it was one."""
        index = chunk.index
        if chunk.version != self.version or index >= len(self._chunks):
            return False
        if self._chunks[index] == _HERE or not self._proof.covers(index, chunk.data):
            return False
        self._data[index * CHUNK : index * CHUNK + len(chunk.data)] = chunk.data
        self._chunks[index] = _HERE
        self._left -= 1
        if self._took_at is not None:
            gap = min(now - self._took_at, SLOWEST)
            self._pace = gap if self._pace is None else 0.8 * self._pace + 0.2 * gap
        self._took_at = now
        for server in self._servers:
            if index in server.window:
                server.window.discard(index)
                server.moved, server.gave = now, True
                if not server.window:
                    server.late = 0
        return True

    def requests(self, now: float) -> list[tuple[str, ChunkRequest]]:
        """(server, window) to ask for now; a server that is late is asked for less, or dropped."""
        patience = max(PATIENCE, (AT_ONCE + 1) * WINDOW * (self._pace or 0.0))
        for server in self._servers[:AT_ONCE]:
            if server.window and now - server.moved >= patience:
                self._let_go(server)
                server.late += 1
                if not server.gave or server.late >= LATE:
                    self._servers.remove(server)
                    self.failed += (server.name,) if server.name != COORDINATOR else ()
        wanted = []
        for server in self._servers[:AT_ONCE]:
            if not server.window and (window := self._next_window(now)):
                for index in window:
                    self._chunks[index] = _ASKED
                server.window, server.moved, server.gave = set(window), now, False
                request = ChunkRequest(self.version, window[0], len(window))
                wanted.append((server.name, request))
        return wanted

    def _next_window(self, now: float) -> range:
        """Consecutive chunks that nobody was asked for; where there are none, those of whom we
        have waited for longest, unless somebody else owes them too."""
        first = self._chunks.find(_MISSING)
        if first >= 0:
            last = first
            while last - first < WINDOW and self._chunks[last : last + 1] == b"\x00":
                last += 1
            return range(first, last)
        slow = [s for s in self._servers if s.window and now - s.moved >= HURRY]
        for server in sorted(slow, key=lambda s: s.moved):
            owed = [i for i in server.window if self._owing(i) == 1]
            if owed:
                first = last = min(owed)
                while last in owed:
                    last += 1
                return range(first, last)
        return range(0)

    def _owing(self, index: int) -> int:
        return sum(index in server.window for server in self._servers)

    def _let_go(self, *servers: _Server) -> None:
        """Wait for what they owe no longer, and let others be asked for it."""
        for server in servers:
            window, server.window = server.window, set()
            for index in window:
                if self._chunks[index] == _ASKED and not self._owing(index):
                    self._chunks[index] = _MISSING
