"""What proves the bytes of a state: a digest of each chunk, and one over all of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from protocol.messages import CHUNK

CHUNK_BYTES = CHUNK
DIGEST_BYTES = 16

Data = bytes | bytearray | memoryview
"""The bytes of a state."""


class Proof(NamedTuple):
    """What proves a state: how many bytes it has, and the digest of each chunk."""

    total: int
    digests: bytes
    """16 bytes for each chunk"""

    @property
    def digest(self) -> bytes:
        """16 bytes of BLAKE2b that prove the length and all chunk digests, and so every chunk."""
        return _digest(self.total.to_bytes(8, "little") + self.digests)

    @property
    def chunks(self) -> int:
        """How many there are."""
        return len(self.digests) // DIGEST_BYTES

    def covers(self, index: int, chunk: bytes) -> bool:
        """Whether these are the bytes of that chunk, index >= 0."""
        begin = index * DIGEST_BYTES
        return _digest(chunk) == self.digests[begin : begin + DIGEST_BYTES]


def proof(chunks: Iterable[bytes | memoryview]) -> Proof:
    """What proves the state of these chunks."""
    total, digests = 0, []
    for chunk in chunks:
        total += len(chunk)
        digests.append(_digest(chunk))
    return Proof(total, b"".join(digests))


def cut(data: Data) -> Iterator[memoryview]:
    """A state's bytes in chunks, not copied."""
    view = memoryview(data)
    return (view[at : at + CHUNK_BYTES] for at in range(0, len(data), CHUNK_BYTES))


def _digest(data: bytes | memoryview) -> bytes:
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest()
