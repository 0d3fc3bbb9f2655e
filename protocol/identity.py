"""Who a peer is and what proves it: keys, fingerprints, signatures, session MACs, lease tokens."""

from __future__ import annotations

import base64
import contextlib
import functools
import hmac
import logging
import os
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from protocol.disk import sync_directory
from protocol.errors import ShoalError
from protocol.topics import RUN_NAME_PATTERN

KEY_BYTES = 32
NONCE_BYTES = 16
SIGNATURE_BYTES = 64
MAC_BYTES = 16

Part = bytes | str | int
"""What signatures and MACs cover. Type and length are covered too, so no two lists of parts
have the same bytes."""

Entropy = Callable[[int], bytes]
"""n -> n random bytes that nobody can guess."""

_FILE_PATTERN = re.compile(rb"shoal-identity-1 ([0-9a-f]{64})\n")
_LOGGER = logging.getLogger("shoal.identity")


class IdentityError(ShoalError):
    """A key file that cannot be read or written."""


class AgreementError(Exception):
    """A peer's exchange key that gives no secret: the session must not begin."""


class Identity:
    """An ed25519 key pair. The secret half shows in no repr, pickle or copy."""

    __slots__ = ("_key", "_seed", "public_key")

    def __init__(self, seed: bytes) -> None:
        """The identity of 32 secret bytes (an ed25519 private key, RFC 8032)."""
        if len(seed) != KEY_BYTES:
            raise ValueError(f"an identity has {KEY_BYTES} secret bytes, not {len(seed)}")
        self._seed = bytes(seed)
        self._key = Ed25519PrivateKey.from_private_bytes(self._seed)
        self.public_key: bytes = self._key.public_key().public_bytes_raw()

    @classmethod
    def generate(cls, entropy: Entropy = os.urandom) -> Identity:
        """A new identity."""
        return cls(entropy(KEY_BYTES))

    @classmethod
    def load(cls, path: Path) -> Identity:
        """The identity that `save` wrote. Raises IdentityError; warns where others may read it."""
        try:
            with path.open("rb") as file:
                mode = os.fstat(file.fileno()).st_mode
                content = file.read(256)
        except OSError as error:
            raise IdentityError(
                f"cannot read the identity {path}: {error.strerror}; mend that or give another path"
            ) from None
        identity = cls.read(content, path)
        if os.name == "posix" and mode & 0o077:
            _LOGGER.warning(
                "others may read the secret key %s (mode %03o): run chmod 600 on it",
                path,
                mode & 0o777,
            )
        return identity

    @classmethod
    def read(cls, content: bytes, path: Path) -> Identity:
        """The identity that lay in a file, `path` for people. Raises IdentityError."""
        match = _FILE_PATTERN.fullmatch(content)
        if match is None:
            raise IdentityError(
                f"{path} holds no identity of Shoal: give another path, "
                "or move the file away to get a new identity"
            )
        return cls(bytes.fromhex(match[1].decode("ascii")))

    @classmethod
    def load_or_create(cls, path: Path, entropy: Entropy = os.urandom) -> Identity:
        """The identity in `path`, new if there was none.

        Processes that do so at the same moment all get the one that was written first.
        """
        if path.exists():
            return cls.load(path)
        identity = cls.generate(entropy)
        try:
            identity.save(path)
        except FileExistsError:
            return cls.load(path)
        return identity

    @property
    def secret(self) -> bytes:
        """What its file holds: for nobody's eyes."""
        return b"shoal-identity-1 " + self._seed.hex().encode("ascii") + b"\n"

    def save(self, path: Path) -> None:
        """Write the secret key for its owner alone (mode 0600): whole or not at all.

        Raises FileExistsError where there is a file already (a key is never overwritten), and
        IdentityError where the path cannot be written.
        """
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        except OSError as error:
            raise IdentityError(
                f"cannot write the identity {path}: {error.strerror}; "
                "give a path in a directory of yours"
            ) from None
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(self.secret)
                file.flush()
                os.fsync(file.fileno())
            _publish_file(Path(temporary), path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                Path(temporary).unlink()

    @property
    def fingerprint(self) -> str:
        """26 characters that stand for the public key."""
        return fingerprint(self.public_key)

    @property
    def worker(self) -> str:
        """16 characters that name the key in topics."""
        return worker_id(self.public_key)

    def sign(self, label: str, *parts: Part) -> bytes:
        """64 bytes that only this key can make, for these parts and this purpose."""
        return self._key.sign(framed(label, *parts))

    def __repr__(self) -> str:
        return f"Identity({self.fingerprint})"

    def __reduce__(self) -> str:
        raise TypeError("an identity is not copied or pickled: its secret would travel with it")


def verify(public_key: bytes, signature: bytes, label: str, *parts: Part) -> bool:
    """Whether the key's owner signed these parts for this purpose; False for any malformed input.

    ed25519 (RFC 8032), as OpenSSL checks it.
    """
    if len(public_key) != KEY_BYTES or len(signature) != SIGNATURE_BYTES:
        return False
    try:
        _public_key(public_key).verify(signature, framed(label, *parts))
    except (InvalidSignature, ValueError):
        return False
    return True


def fingerprint(public_key: bytes) -> str:
    """26 characters (lower-case base32 of 16 bytes of blake2b) that stand for a public key."""
    return _base32(key_digest(public_key))


def digest_of(fingerprint: str) -> bytes:
    """The `key_digest` that a fingerprint writes out. Raises IdentityError for any other text."""
    with contextlib.suppress(ValueError):
        digest = base64.b32decode(fingerprint.upper() + "======")
        if _base32(digest) == fingerprint and len(digest) == NONCE_BYTES:
            return digest
    raise IdentityError(
        f"{fingerprint[:80]!r} is no fingerprint of a key: it has 26 characters a-z and 2-7, "
        "as `shoal identity show` prints it"
    )


def worker_id(public_key: bytes) -> str:
    """The first 16 characters of the fingerprint: how topics name a worker."""
    return fingerprint(public_key)[:16]


def worker_of(digest: bytes) -> str:
    """How topics name the worker whose key has that `key_digest`."""
    return _base32(digest)[:16]


def run_id(name: str, host_key: bytes) -> str:
    """`<name>-<8 hex digits of the host's key>`. Raises IdentityError for an impossible name."""
    if RUN_NAME_PATTERN.fullmatch(name) is None:
        raise IdentityError(
            f"{name[:80]!r} cannot name a run: use lower-case letters, digits and dashes, "
            "at most 40, not a dash first"
        )
    return f"{name}-{key_digest(host_key)[:4].hex()}"


def run_belongs_to(run: str, host_key: bytes) -> bool:
    """Whether the run's id ends as the host's key says it must."""
    return run.rpartition("-")[2] == key_digest(host_key)[:4].hex()


def new_session(entropy: Entropy = os.urandom) -> str:
    """A name for one connection life: 6 random base32 characters."""
    return _base32(entropy(4))[:6]


def new_secret(entropy: Entropy = os.urandom) -> bytes:
    """32 secret bytes, such as a run's secret for lease tokens."""
    return entropy(KEY_BYTES)


def new_nonce(entropy: Entropy = os.urandom) -> bytes:
    """16 bytes that were never used before."""
    return entropy(NONCE_BYTES)


@dataclass(frozen=True, slots=True)
class Transcript:
    """Everything that a session key is bound to; both sides must hold the same, or MACs fail.

    Keys are ed25519 public keys, exchange keys are X25519 public keys (32 bytes each), the
    nonce has 16 bytes; `host` is the coordinator that answers, in its `epoch`.
    """

    run: str
    epoch: int
    session: str
    worker_key: bytes
    host_key: bytes
    worker_exchange: bytes
    host_exchange: bytes
    worker_nonce: bytes

    def parts(self) -> tuple[Part, ...]:
        """What the session key is bound to."""
        return (
            self.run,
            self.epoch,
            self.session,
            self.worker_key,
            self.host_key,
            self.worker_exchange,
            self.host_exchange,
            self.worker_nonce,
        )


class SessionKeys:
    """One side's ephemeral X25519 key (RFC 7748): made for one agreement, then forgotten.

    On its own it proves nothing about who is there: the two exchange keys must have come in
    messages that the two identities signed.
    """

    __slots__ = ("_key", "public_key")

    def __init__(self, secret: bytes) -> None:
        """The key of 32 secret bytes."""
        self._key = X25519PrivateKey.from_private_bytes(secret)
        self.public_key: bytes = self._key.public_key().public_bytes_raw()

    @classmethod
    def generate(cls, entropy: Entropy = os.urandom) -> SessionKeys:
        """A new ephemeral key."""
        return cls(entropy(KEY_BYTES))

    def agree(self, transcript: Transcript) -> bytes:
        """The 32-byte session key of this side and the other one in the transcript.

        Raises AgreementError where the transcript is not about this key, or the other side's key
        is one of the few that give everybody the same secret.
        """
        exchanges = (transcript.worker_exchange, transcript.host_exchange)
        if self.public_key not in exchanges or exchanges[0] == exchanges[1]:
            raise AgreementError("the transcript is not between this key and another one")
        other = exchanges[1] if exchanges[0] == self.public_key else exchanges[0]
        try:
            shared = self._key.exchange(X25519PublicKey.from_public_bytes(other))
        except ValueError:
            raise AgreementError("the other side's exchange key gives no secret") from None
        message = framed("session key", *transcript.parts())
        return blake2b(message, key=shared, digest_size=KEY_BYTES).digest()

    def __repr__(self) -> str:
        return f"SessionKeys({self.public_key.hex()[:8]}...)"

    def __reduce__(self) -> str:
        raise TypeError("session keys are not copied or pickled")


def mac(key: bytes, label: str, *parts: Part) -> bytes:
    """16 bytes that only who has the key can make: keyed BLAKE2b (RFC 7693)."""
    return blake2b(framed(label, *parts), key=key, digest_size=MAC_BYTES).digest()


def verify_mac(key: bytes, code: bytes, label: str, *parts: Part) -> bool:
    """Whether `code` is the MAC of the parts; takes the same time wherever they differ."""
    return hmac.compare_digest(mac(key, label, *parts), code)


def lease_token(
    run_secret: bytes,
    run: str,
    task_id: int,
    worker: str,
    version: int,
    first: int,
    count: int,
    episodes: int,
    kind: str,
) -> bytes:
    """16 bytes that come back with a result: proof that this work was leased to this worker.

    It needs no table of leases, so a later epoch with the same secret can check it with
    `verify_lease_token`.
    """
    return mac(run_secret, "lease", run, task_id, worker, version, first, count, episodes, kind)


def verify_lease_token(
    run_secret: bytes,
    token: bytes,
    run: str,
    task_id: int,
    worker: str,
    version: int,
    first: int,
    count: int,
    episodes: int,
    kind: str,
) -> bool:
    """Whether `token` is the lease token of exactly this work and worker; constant time."""
    expected = lease_token(run_secret, run, task_id, worker, version, first, count, episodes, kind)
    return hmac.compare_digest(expected, token)


def framed(label: str, *parts: Part) -> bytes:
    """The label and the parts as bytes that read back one way only: type, length, content.

    Integers are little-endian two's complement in as few bytes as hold them.
    """
    pieces = [b"shoal/1", _framed_text(label)]
    for part in parts:
        if isinstance(part, str):
            pieces.append(_framed_text(part))
        elif isinstance(part, int):
            size = part.bit_length() // 8 + 1
            pieces.append(b"i" + size.to_bytes(8, "little"))
            pieces.append(part.to_bytes(size, "little", signed=True))
        else:
            pieces.append(b"b" + len(part).to_bytes(8, "little"))
            pieces.append(part)
    return b"".join(pieces)


@functools.lru_cache(maxsize=16_384)
def _framed_text(text: str) -> bytes:
    """Names of runs, workers and sessions come again with each message; no secret is a text."""
    content = text.encode("utf-8", "surrogatepass")
    return b"s" + len(content).to_bytes(8, "little") + content


def key_digest(public_key: bytes) -> bytes:
    """16 bytes that stand for a public key."""
    return blake2b(public_key, digest_size=16).digest()


def _base32(data: bytes) -> str:
    return base64.b32encode(data).decode("ascii").rstrip("=").lower()


@lru_cache(maxsize=1024)
def _public_key(public_key: bytes) -> Ed25519PublicKey:
    return Ed25519PublicKey.from_public_bytes(public_key)


def _publish_file(temporary: Path, path: Path) -> None:
    """Give the finished file its name, unless another one has it."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError:
        # A file system without hard links: the check and the renaming are two steps here.
        if path.exists():
            raise FileExistsError(path) from None
        temporary.replace(path)
    sync_directory(path.parent)
