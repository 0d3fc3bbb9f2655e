"""The wrapping of a message on the wire: plain, signed, or sealed with a session MAC."""

from __future__ import annotations

from enum import IntEnum
from typing import Literal

from protocol.identity import (
    MAC_BYTES,
    SIGNATURE_BYTES,
    Identity,
    mac,
    verify,
    verify_mac,
)
from protocol.messages import AnyMessage, Message, decode, encode
from protocol.packing import MAX_MESSAGE, WireError


class Wrapping(IntEnum):
    """The first byte of every payload."""

    PLAIN = 0
    SIGNED = 1
    SEALED = 2


_PROOF_SIZE = {Wrapping.PLAIN: 0, Wrapping.SIGNED: SIGNATURE_BYTES, Wrapping.SEALED: MAC_BYTES}

Direction = Literal["to worker", "to coordinator"]


def plain(message: Message) -> bytes:
    """A payload that proves nothing: hints, and chunks that a manifest proves."""
    return bytes([Wrapping.PLAIN]) + encode(message)


def signed(identity: Identity, label: str, context: tuple[str, ...], message: Message) -> bytes:
    """A payload that `identity` signed for this use (`label`) and place (`context`)."""
    body = encode(message)
    return bytes([Wrapping.SIGNED]) + identity.sign(label, *context, body) + body


def sealed(session_key: bytes, direction: Direction, message: Message) -> bytes:
    """A payload with a MAC that only the two ends of a session can make."""
    body = encode(message)
    return bytes([Wrapping.SEALED]) + mac(session_key, direction, body) + body


def open_plain(payload: bytes) -> AnyMessage:
    """The message of a plain payload. Raises `WireError`."""
    return decode(_body(payload, Wrapping.PLAIN)[1])


def open_signed(
    payload: bytes, public_key: bytes, label: str, context: tuple[str, ...]
) -> AnyMessage:
    """The message that the owner of `public_key` signed for this use and place.

    Raises `WireError`, also where the signature is somebody else's.
    """
    return decode(_proved(payload, public_key, label, context))


def require_signed(payload: bytes, public_key: bytes, label: str, context: tuple[str, ...]) -> None:
    """Raises `WireError` where `open_signed` does for the signature: for a message that
    `peek_signed` gave."""
    _proved(payload, public_key, label, context)


def peek_signed(payload: bytes) -> AnyMessage:
    """The message of a signed payload, its signature unchecked: only to learn whose it claims.

    Raises `WireError`.
    """
    return decode(_body(payload, Wrapping.SIGNED)[1])


def open_sealed(payload: bytes, session_key: bytes, direction: Direction) -> AnyMessage:
    """The message that the other end of the session sealed. Raises `WireError`."""
    proof, body = _body(payload, Wrapping.SEALED)
    if not verify_mac(session_key, proof, direction, body):
        raise WireError("the MAC is not of this session")
    return decode(body)


def wrapping_of(payload: bytes) -> Wrapping:
    """How a payload is wrapped. Raises `WireError`."""
    return _unwrap(payload)[0]


def _proved(payload: bytes, public_key: bytes, label: str, context: tuple[str, ...]) -> bytes:
    proof, body = _body(payload, Wrapping.SIGNED)
    if not verify(public_key, proof, label, *context, body):
        raise WireError(f"the signature of this {label} is not by the expected key")
    return body


def _unwrap(payload: bytes) -> tuple[Wrapping, bytes, bytes]:
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


def _body(payload: bytes, expected: Wrapping) -> tuple[bytes, bytes]:
    wrapping, proof, body = _unwrap(payload)
    if wrapping is not expected:
        raise WireError(f"a {wrapping.name.lower()} payload where {expected.name.lower()} is due")
    return proof, body
