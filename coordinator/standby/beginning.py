"""Version 0 of a run that was given one, on its way here from the leader, in chunks; pure."""

from __future__ import annotations

from protocol import proof, replay, snapshot
from protocol.messages import CHUNK, Chunk, ChunkRequest
from protocol.spec import RunSpec

WINDOW = 8
"""Chunks asked for at once."""
PATIENCE = 2.0
"""Seconds without a chunk after which the rest is asked for again."""


class Beginning:
    """Collects the chunks. Whoever sent them: the digest in the run spec proves the whole, and
    where it does not, all is fetched anew."""

    def __init__(self, spec: RunSpec) -> None:
        self._total = snapshot.state_bytes(replay.arithmetic(spec))
        self._digest = spec.policy.initial_digest
        self._chunks: dict[int, bytes] = {}
        self._window = range(0)
        self._ask_at = 0.0

    @property
    def complete(self) -> bool:
        """Whether all is here and proved."""
        if len(self._chunks) < self._count:
            return False
        data = self.data
        if proof.proof(proof.cut(data)).digest.hex() == self._digest:
            return True
        self._chunks.clear()
        self._window = range(0)
        return False

    @property
    def data(self) -> bytes:
        """The snapshot, once it is complete."""
        return b"".join(self._chunks[index] for index in range(self._count))

    def request(self, now: float) -> ChunkRequest | None:
        """What to ask for now, if anything."""
        missing = [index for index in range(self._count) if index not in self._chunks]
        waits = any(index not in self._chunks for index in self._window)
        if not missing or (waits and now < self._ask_at):
            return None
        self._window = range(missing[0], min(missing[0] + WINDOW, self._count))
        self._ask_at = now + PATIENCE
        return ChunkRequest(0, missing[0], len(self._window))

    def take(self, chunk: Chunk) -> None:
        """A chunk, from anybody."""
        index = chunk.index
        wanted = chunk.version == 0 and index in self._window and index not in self._chunks
        if wanted and len(chunk.data) == min(CHUNK, self._total - index * CHUNK):
            self._chunks[index] = chunk.data

    @property
    def _count(self) -> int:
        return -(-self._total // CHUNK)
