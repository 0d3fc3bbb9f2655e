"""Carries the run's secret to a delegate, encrypted for one session: no broker can read it."""

from __future__ import annotations

import os
from hashlib import blake2b

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from protocol.identity import KEY_BYTES, Entropy, framed
from protocol.packing import WireError

_NONCE_BYTES = 12
_PURPOSE = framed("entrust")


def seal_secret(session_key: bytes, secret: bytes, entropy: Entropy = os.urandom) -> bytes:
    """The 32-byte secret in a box that only the two ends of the session can open.

    A random nonce, then the ciphertext of ChaCha20-Poly1305 (RFC 8439) under a key that is made
    from the session's for this purpose alone.
    """
    nonce = entropy(_NONCE_BYTES)
    return nonce + _cipher(session_key).encrypt(nonce, secret, _PURPOSE)


def open_secret(session_key: bytes, box: bytes) -> bytes:
    """The secret of a box. Raises `WireError` for any box that was not sealed in this session."""
    nonce, ciphertext = box[:_NONCE_BYTES], box[_NONCE_BYTES:]
    try:
        secret = _cipher(session_key).decrypt(nonce, ciphertext, _PURPOSE)
    except (InvalidTag, ValueError):
        raise WireError("a secret that was not sealed in this session") from None
    if len(secret) != KEY_BYTES:
        raise WireError(f"a secret of {len(secret)} bytes: must have {KEY_BYTES}")
    return secret


def _cipher(session_key: bytes) -> ChaCha20Poly1305:
    return ChaCha20Poly1305(blake2b(_PURPOSE, key=session_key, digest_size=KEY_BYTES).digest())
