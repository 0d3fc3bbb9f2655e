"""Server-sent events, made and compressed once for all who listen; pure."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import msgspec

GZIP_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
"""Of a gzip stream without a name or a time."""
LEVEL = 3
"""zlib's: higher ones cost a multiple, and save little."""
RETRY_MS = 2000
"""After which a page that lost us tries again."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """An event: as it is, and as a part of a gzip stream after any others.

    A part is deflated by itself and ends at a byte, and no part refers to what came before it: so
    the same bytes fit into the stream of every page. A stream never ends.
    """

    plain: bytes
    deflated: bytes


def fragment(told: Any) -> Fragment:
    """An event that says this in JSON."""
    return _compressed(b"data: " + msgspec.json.encode(told) + b"\n\n")


def opening() -> Fragment:
    """What a stream begins with."""
    return _compressed(b"retry: %d\n\n" % RETRY_MS)


def _compressed(plain: bytes) -> Fragment:
    deflate = zlib.compressobj(LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    return Fragment(plain, deflate.compress(plain) + deflate.flush(zlib.Z_FULL_FLUSH))
