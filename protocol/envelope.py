"""The wrapping of a message on the wire: plain, signed, or sealed with a session MAC."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

from protocol.packing import MAX_MESSAGE, WireError

SIGNATURE_SIZE = 64
MAC_SIZE = 16


class Wrapping(IntEnum):
    """The first byte of every payload."""

    PLAIN = 0
    SIGNED = 1
    SEALED = 2


_PROOF_SIZE = {Wrapping.PLAIN: 0, Wrapping.SIGNED: SIGNATURE_SIZE, Wrapping.SEALED: MAC_SIZE}


def wrap(wrapping: Wrapping, body: bytes, prove: Callable[[bytes], bytes] | None = None) -> bytes:
    """Payload: wrapping byte, proof of `body` (signature or MAC; nothing for plain), body."""
    proof = prove(body) if prove is not None else b""
    if len(proof) != _PROOF_SIZE[wrapping]:
        size = _PROOF_SIZE[wrapping]
        raise ValueError(f"a {wrapping.name} payload needs a proof of {size} bytes")
    return bytes([wrapping]) + proof + body


def unwrap(payload: bytes) -> tuple[Wrapping, bytes, bytes]:
    """(wrapping, proof, body) of a payload; the proof is not checked yet. Raises `WireError`."""
    if len(payload) > MAX_MESSAGE:
        raise WireError(f"{len(payload):,} bytes where {MAX_MESSAGE:,} are the most")
    if not payload or payload[0] not in _PROOF_SIZE:
        raise WireError("the first byte names no known wrapping")
    wrapping = Wrapping(payload[0])
    end = 1 + _PROOF_SIZE[wrapping]
    if len(payload) <= end:
        raise WireError("cut short")
    return wrapping, payload[1:end], payload[end:]
