"""An identity in a file that travels between machines: encrypted under a passphrase, or not."""

from __future__ import annotations

import base64
import os
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from protocol.identity import KEY_BYTES, Entropy, Identity, IdentityError, framed

LEAST_CHARACTERS = 8
"""Of a passphrase."""

_HEAD = b"shoal-identity-encrypted-1 "
_SALT_BYTES, _NONCE_BYTES = 16, 12
_COST, _BLOCK = 1 << 15, 8
"""Of scrypt (RFC 7914): 32 MiB and about a tenth of a second for each guess."""
_MOST_BYTES = 1024
_PURPOSE = framed("identity")


def exported(identity: Identity, passphrase: str, entropy: Entropy = os.urandom) -> bytes:
    """The content of a file that only who knows the passphrase can read.

    A salt, a nonce, and the key's file under ChaCha20-Poly1305 (RFC 8439), in base64.
    """
    salt, nonce = entropy(_SALT_BYTES), entropy(_NONCE_BYTES)
    box = _cipher(passphrase, salt).encrypt(nonce, identity.secret, _PURPOSE)
    return _HEAD + base64.b64encode(salt + nonce + box) + b"\n"


def is_encrypted(content: bytes) -> bool:
    """Whether a passphrase is needed to read it."""
    return content.startswith(_HEAD)


def imported(content: bytes, passphrase: str, path: Path) -> Identity:
    """The identity in what `exported` made, or in a key file as it is.

    Raises IdentityError, which names `path`, for all else, and for another passphrase.
    """
    if not is_encrypted(content):
        return Identity.read(content, path)
    try:
        data = base64.b64decode(content[len(_HEAD) :].removesuffix(b"\n"), validate=True)
        salt, nonce = data[:_SALT_BYTES], data[_SALT_BYTES:][:_NONCE_BYTES]
        box = data[_SALT_BYTES + _NONCE_BYTES :]
        secret = _cipher(passphrase, salt).decrypt(nonce, box, _PURPOSE)
    except (InvalidTag, ValueError):
        raise IdentityError(
            f"{path} can't be opened: the passphrase is another one, or the file is damaged; "
            "try again, or export the identity anew"
        ) from None
    return Identity.read(secret, path)


def read_file(path: Path) -> bytes:
    """The content of an exported file, which is short. Raises IdentityError."""
    try:
        with path.open("rb") as file:
            return file.read(_MOST_BYTES)
    except OSError as error:
        raise IdentityError(
            f"cannot read {path}: {error.strerror}; give a file that `shoal identity export` wrote"
        ) from None


def write_file(path: Path, content: bytes) -> None:
    """Write an exported file for its owner only (mode 0600). Raises IdentityError, also where there
    is a file already."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError:
        raise IdentityError(f"{path} exists, and is not overwritten: give another name") from None
    except OSError as error:
        raise IdentityError(
            f"cannot write {path}: {error.strerror}; give a path in a directory of yours"
        ) from None


def _cipher(passphrase: str, salt: bytes) -> ChaCha20Poly1305:
    kdf = Scrypt(salt=salt, length=KEY_BYTES, n=_COST, r=_BLOCK, p=1)
    return ChaCha20Poly1305(kdf.derive(passphrase.encode()))
