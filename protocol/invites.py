"""Invites: a token that admits workers to a run, and the proof of it that goes over the wire."""

from __future__ import annotations

import base64
import re
from hashlib import blake2b

from protocol.errors import ShoalError
from protocol.identity import KEY_BYTES, SIGNATURE_BYTES, Identity, framed, verify

PREFIX = "shoal-invite-"
_TOKEN_PATTERN = re.compile(r"shoal-invite-[a-z2-7]{52}")


def token_of(seed: bytes) -> str:
    """The token that stands for an invite's 32 secret bytes."""
    return PREFIX + base64.b32encode(seed).decode().rstrip("=").lower()


def seed_of(token: str) -> bytes:
    """The secret bytes of a token. Raises ShoalError, which does not repeat it."""
    text = token.strip()
    if _TOKEN_PATTERN.fullmatch(text) is None:
        raise ShoalError(
            f"the invite (--invite, or SHOAL_INVITE) is none: it begins with {PREFIX}, and 52 "
            "letters and digits follow; ask the host for it"
        )
    return base64.b32decode(text.removeprefix(PREFIX).upper() + "====")


def login_of(token: str) -> tuple[str, str]:
    """User name and password that a token is at the broker of a host that asks for one.

    The name is the fingerprint of the invite's key; neither tells the token. Raises ShoalError for
    what is no token.
    """
    seed = seed_of(token)
    secret = blake2b(framed("broker"), key=seed, digest_size=20).digest()
    return Identity(seed).fingerprint, base64.b32encode(secret).decode().lower()


def proof_of(token: str, run: str, worker_key: bytes) -> bytes:
    """96 bytes that show to the host of a run that the owner of a key has the token.

    They are of no use to anybody else, so the token itself never leaves this machine. Raises
    ShoalError for what is no token.
    """
    identity = Identity(seed_of(token))
    return identity.public_key + identity.sign("invite", run, worker_key)


def invited_by(run: str, worker_key: bytes, proof: bytes) -> bytes | None:
    """The public key of the invite that a proof shows, None where it shows none."""
    key, signature = proof[:KEY_BYTES], proof[KEY_BYTES:]
    if len(signature) != SIGNATURE_BYTES:
        return None
    return key if verify(key, signature, "invite", run, worker_key) else None
