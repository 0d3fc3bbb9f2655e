"""The sessions that said hello: whose they are, and the key that each shares with us."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.pool.events import SessionId
from protocol.envelope import open_signed, peek_signed, signed
from protocol.identity import Identity, SessionKeys, Transcript, worker_id
from protocol.messages import Hello, Welcome
from protocol.packing import WireError
from protocol.spec import PROTOCOL_VERSION


@dataclass(frozen=True, slots=True)
class Peer:
    """A welcomed session: its identity key, the key shared with it, and what it said of itself."""

    id: SessionId
    worker_key: bytes
    session_key: bytes
    name: str
    device: str


@dataclass(frozen=True, slots=True)
class Leader:
    """Who we are to workers: run, epoch number, and the key that signs for them."""

    run: str
    identity: Identity
    epoch: int


def read_hello(leader: Leader, id: SessionId, payload: bytes) -> Hello:
    """The hello of the session whose topic it came on. Raises `WireError`."""
    claimed = peek_signed(payload)
    if not isinstance(claimed, Hello):
        raise WireError("a signed request that is not a hello")
    if worker_id(claimed.worker_key) != id.worker:
        raise WireError("a hello on another worker's topic")
    open_signed(payload, claimed.worker_key, "hello", (leader.run, id.session))
    return claimed


def reason_to_refuse(hello: Hello) -> str:
    """Why this worker can't take part, empty if it can."""
    if hello.protocol != PROTOCOL_VERSION:
        newer = "upgrade the worker" if hello.protocol < PROTOCOL_VERSION else "upgrade the host"
        return f"protocol {hello.protocol} is spoken there, {PROTOCOL_VERSION} here: {newer}"
    return ""


def welcome(
    leader: Leader, id: SessionId, hello: Hello, version: int, digest: bytes
) -> tuple[Peer | None, bytes]:
    """The peer, or None if it is refused, and the signed answer to it."""
    keys = SessionKeys.generate()
    refused = reason_to_refuse(hello)
    answer = Welcome(hello.nonce, keys.public_key, leader.epoch, version, digest, refused)
    payload = signed(leader.identity, "welcome", (leader.run, id.worker, id.session), answer)
    if refused:
        return None, payload
    transcript = Transcript(
        run=leader.run,
        epoch=leader.epoch,
        session=id.session,
        worker_key=hello.worker_key,
        host_key=leader.identity.public_key,
        worker_exchange=hello.exchange_key,
        host_exchange=keys.public_key,
        worker_nonce=hello.nonce,
    )
    peer = Peer(id, hello.worker_key, keys.agree(transcript), hello.name, hello.device)
    return peer, payload
