"""Passwords as a broker of ours keeps them: hashed, in mosquitto's own way."""

from __future__ import annotations

import base64
import hashlib
import secrets

_ROUNDS = 101
"""mosquitto's own number: ours have 128 random bits and more, so nothing is gained by more."""
_SALT_BYTES = 12


def hashed(password: str) -> str:
    """PBKDF2 with SHA-512 under a new salt."""
    salt = secrets.token_bytes(_SALT_BYTES)
    return f"$7${_ROUNDS}${_text(salt)}${_text(_derived(password, salt))}"


def matches(password: str, kept: str) -> bool:
    """Whether `hashed` made that of the password; False for what it never made."""
    try:
        _, kind, rounds, salt, expected = kept.split("$")
        if (kind, rounds) != ("7", str(_ROUNDS)):
            return False
        derived = _text(_derived(password, base64.b64decode(salt, validate=True)))
    except ValueError:
        return False
    return secrets.compare_digest(derived.encode(), expected.encode())


def _derived(password: str, salt: bytes) -> bytes:
    return hashlib.pbkdf2_hmac("sha512", password.encode(), salt, _ROUNDS)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
