"""A coordinator as a script: real keys, real messages, real updates, and no mind of its own."""

from __future__ import annotations

from typing import Any, Self

import msgspec
import numpy as np

from protocol import messages, replay, snapshot, state, topics
from protocol import spec as run_spec_module
from protocol.authority import Authority
from protocol.envelope import open_sealed, open_signed, peek_signed, plain, sealed, signed
from protocol.identity import (
    Identity,
    SessionKeys,
    Transcript,
    key_digest,
    lease_token,
    run_id,
)
from protocol.normalizer import ObservationSums, to_bytes
from protocol.packing import pack_integers
from protocol.proof import cut, proof
from protocol.spec import PROTOCOL_VERSION, RunSpec
from protocol.state import State


class Host:
    """Leads a run; `grow` makes versions, the rest makes the bytes that a test wants to send.

    `identity` is the key that the run's name was made from, `leader` the one that leads.
    """

    def __init__(self, spec: RunSpec, seed: int = 0) -> None:
        self.spec = spec
        self.identity = Identity(bytes([seed]) * 32)
        self.run = run_id(spec.name, self.identity.public_key)
        self.leader = self.identity
        self.authority = Authority(self.run, self.identity.public_key)
        self.number = 1
        self.rules = replay.arithmetic(spec)
        self.states: list[State] = [replay.initial_state(spec)]
        self.updates: list[messages.Update] = []
        self._signed: list[bytes] = []
        self.key = b""
        self.hello: messages.Hello | None = None
        self.worker = self.session = ""
        self._random = np.random.default_rng(seed)
        self._tasks = 0

    def amend(self, epoch: int, *delegates: Identity, key: Identity | None = None) -> None:
        """From that epoch on `key`, by default the same, is in charge, and these may take over."""
        key = key or self.identity
        digests = [key_digest(delegate.public_key) for delegate in delegates]
        self.authority = self.authority.amended(self.identity, epoch, key.public_key, digests)

    def other(self, number: int, leader: Identity | None = None) -> Self:
        """Somebody who leads another epoch, and goes on from all that was made so far."""
        other = type(self).__new__(type(self))
        other.__dict__ |= self.__dict__
        other.states, other.updates = list(self.states), list(self.updates)
        other._signed, other._tasks = list(self._signed), (number - 1) << 32
        other.number, other.leader = number, leader or self.identity
        other._random = np.random.default_rng(1000 * number + other.rank)
        return other

    @property
    def rank(self) -> int:
        rank = self.authority.rank(self.number, self.leader.public_key)
        return 0 if rank is None else rank

    @property
    def signer(self) -> bytes:
        return self.leader.public_key if self.rank else b""

    @property
    def version(self) -> int:
        return len(self.updates)

    def digest(self, version: int | None = None) -> bytes:
        return state.params_digest(self.states[self.version if version is None else version].theta)

    def grow(self, versions: int) -> None:
        """Make more versions, of random weights."""
        for _ in range(versions):
            before = self.states[-1]
            weights = self._random.integers(-50, 50, self.spec.directions)
            observed: tuple[messages.Observed, ...] = ()
            if self.spec.normalizer.enabled:
                dims = self.spec.environment.observation.size
                sums = ObservationSums(3, (5,) * dims, (2**41,) * dims)
                observed = (messages.Observed(before.version, to_bytes(sums)),)
            draft = messages.Update(
                epoch=self.number,
                version=before.version,
                cohorts=(
                    messages.Cohort(
                        before.version * self.spec.directions,
                        before.version,
                        60,
                        pack_integers(weights),
                    ),
                ),
                scale=1e-4,
                learning_rate=0.1,
                sigma=self.spec.strategy.sigma,
                observed=observed,
                episodes=2 * self.spec.directions,
                steps=3,
                digest_before=self.digest(),
                digest_after=bytes(16),
                signer=self.signer,
            )
            after = state.apply(self.rules, before, replay.terms(self.spec, draft))
            self.states.append(after)
            digest = state.params_digest(after.theta)
            self.updates.append(msgspec.structs.replace(draft, digest_after=digest))
            self._signed.append(self.signed("update", self.updates[-1]))

    # What everybody hears.

    def epoch(self, status: str = "running", **changes: Any) -> bytes:
        epoch = messages.Epoch(
            protocol=PROTOCOL_VERSION,
            run=self.run,
            host_key=self.identity.public_key,
            number=self.number,
            rank=self.rank,
            spec=run_spec_module.to_bytes(self.spec),
            state=status,  # type: ignore[arg-type]
            version=self.version,
            digest=self.digest(),
            leader=self.signer,
            charters=self.authority.charters,
        )
        return self.signed("epoch", msgspec.structs.replace(epoch, **changes))

    def signed(self, label: str, message: messages.Message) -> bytes:
        return signed(self.leader, label, (self.run,), message)

    def beat(self, phase: str = "open", **changes: Any) -> bytes:
        beat = messages.Beat(self.number, self.version, self.digest(), phase)  # type: ignore[arg-type]
        return plain(msgspec.structs.replace(beat, **changes))

    def update(self, version: int) -> bytes:
        """As who made it signed it."""
        return self._signed[version]

    def snapshot(self, version: int | None = None) -> tuple[messages.Manifest, list[bytes]]:
        """A manifest and the chunks that it proves."""
        version = self.version if version is None else version
        data = snapshot.to_bytes(self.states[version])
        proved = proof(cut(data))
        manifest = messages.Manifest(version, proved.digest, *proved)
        size = messages.CHUNK
        return manifest, [data[at : at + size] for at in range(0, len(data), size)]

    # What one session hears.

    def welcome(self, topic: str, hello_payload: bytes, **changes: Any) -> bytes:
        """Check a hello as a coordinator must, agree on a key, and answer."""
        parsed = topics.parse(topic)
        assert parsed is not None
        assert parsed.kind == "req"
        assert parsed.worker is not None
        assert parsed.session is not None
        claimed = peek_signed(hello_payload)
        assert isinstance(claimed, messages.Hello)
        context = (self.run, parsed.session)
        hello = open_signed(hello_payload, claimed.worker_key, "hello", context)
        assert isinstance(hello, messages.Hello)
        self.hello, self.worker, self.session = hello, parsed.worker, parsed.session
        keys = SessionKeys.generate()
        welcome = messages.Welcome(
            nonce=hello.nonce,
            exchange_key=keys.public_key,
            epoch=self.number,
            version=self.version,
            digest=self.digest(),
        )
        self.key = keys.agree(
            Transcript(
                run=self.run,
                epoch=self.number,
                session=self.session,
                worker_key=hello.worker_key,
                host_key=self.leader.public_key,
                worker_exchange=hello.exchange_key,
                host_exchange=keys.public_key,
                worker_nonce=hello.nonce,
            )
        )
        message = msgspec.structs.replace(welcome, **changes)
        return signed(self.leader, "welcome", (self.run, self.worker, self.session), message)

    @property
    def inbox(self) -> str:
        return topics.inbox(self.run, self.worker, self.session)

    def sealed(self, message: messages.Message) -> bytes:
        return sealed(self.key, "to worker", message)

    def unsealed(self, payload: bytes) -> messages.AnyMessage:
        return open_sealed(payload, self.key, "to coordinator")

    def task(
        self,
        first: int = 0,
        count: int = 2,
        kind: messages.TaskKind = "members",
        version: int | None = None,
        **changes: Any,
    ) -> messages.Task:
        self._tasks += 1
        version = self.version if version is None else version
        episodes = self.spec.environment.episodes if kind == "members" else 1
        token = lease_token(
            b"s" * 32,
            self.run,
            self._tasks,
            self.worker,
            version,
            first,
            count,
            episodes,
            kind,
        )
        digest = self.digest(version) if version <= self.version else bytes(16)
        task = messages.Task(self._tasks, kind, version, digest, first, count, episodes, token)
        return msgspec.structs.replace(task, **changes)
