"""A snapshot on its way: which chunks are here, which window to ask for next. Pure."""

from __future__ import annotations

import hashlib

from protocol.messages import CHUNK, Chunk, ChunkRequest, Manifest

DIGEST_BYTES = 16
"""As in `protocol.state`, which is not imported at the top: it loads the compiled kernels."""
WINDOW = 8
"""Chunks asked for at once: 1.5 MiB on their way."""
PATIENCE = 3.0
"""Seconds without a chunk of use after which what is missing of the window is asked for again."""
FRUITLESS = 5
"""Windows asked for in vain, one after the other, after which the snapshot is given up."""


def unusable(manifest: Manifest, snapshot_bytes: int) -> str:
    """Why no state of this run can come of a signed manifest; empty where one can."""
    from protocol.snapshot import manifest_digest

    if manifest.total != snapshot_bytes:
        return f"{manifest.total:,} bytes, this run's states have {snapshot_bytes:,}"
    if len(manifest.chunks) != DIGEST_BYTES * -(-manifest.total // CHUNK):
        return "another number of chunk digests than chunks"
    if manifest_digest(manifest.total, manifest.chunks) != manifest.digest:
        return "chunk digests that its own digest does not prove"
    return ""


class Reception:
    """Collects the chunks of one manifest, in windows; whoever sent them, their digests decide."""

    def __init__(self, manifest: Manifest, now: float) -> None:
        """`manifest` must not be `unusable`."""
        self.version = manifest.version
        self._digests = manifest.chunks
        self._data = bytearray(manifest.total)
        self._missing = [True] * (len(manifest.chunks) // DIGEST_BYTES)
        self._left = len(self._missing)
        self._window = range(0)
        self._moved = now
        self._fruitless = 0

    @property
    def complete(self) -> bool:
        """Whether all chunks are here."""
        return self._left == 0

    @property
    def share(self) -> float:
        """How much of it is here, 0 to 1."""
        return 1.0 - self._left / len(self._missing)

    @property
    def data(self) -> bytes:
        """The snapshot, once complete."""
        return bytes(self._data)

    def take(self, chunk: Chunk, now: float) -> bool:
        """Keep a chunk that the manifest proves and that was missing; whether it was one."""
        index = chunk.index
        if chunk.version != self.version or index >= len(self._missing):
            return False
        if not self._missing[index]:
            return False
        digest = hashlib.blake2b(chunk.data, digest_size=DIGEST_BYTES).digest()
        if digest != self._digests[index * DIGEST_BYTES : (index + 1) * DIGEST_BYTES]:
            return False
        self._data[index * CHUNK : index * CHUNK + len(chunk.data)] = chunk.data
        self._missing[index] = False
        self._left -= 1
        self._moved = now
        self._fruitless = 0
        return True

    def request(self, now: float) -> ChunkRequest | None:
        """What to ask for now: the next window, or again what a window still lacks."""
        lacking = [index for index in self._window if self._missing[index]]
        if lacking:
            if now - self._moved < PATIENCE:
                return None
            self._fruitless += 1
        else:
            first = next((i for i, missing in enumerate(self._missing) if missing), None)
            if first is None:
                return None
            lacking = list(range(first, min(first + WINDOW, len(self._missing))))
            self._window = range(lacking[0], lacking[-1] + 1)
        self._moved = now
        return ChunkRequest(self.version, lacking[0], lacking[-1] - lacking[0] + 1)

    @property
    def hopeless(self) -> bool:
        """Whether nobody seems to serve it any more."""
        return self._fruitless > FRUITLESS
