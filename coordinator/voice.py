"""What the coordinator says: tasks, answers and notices to one session, the rest to everybody."""

from __future__ import annotations

from coordinator.peers import Leader, Peer
from coordinator.pool.events import SendAcknowledge, SendTask, SessionId
from protocol import messages, topics
from protocol import spec as run_spec
from protocol.entrust import seal_secret
from protocol.envelope import plain, sealed, signed
from protocol.identity import lease_token
from protocol.link import Link
from protocol.messages import Phase, RunState
from protocol.spec import PROTOCOL_VERSION, RunSpec


class Voice:
    """Puts what was decided into messages, each proved as `protocol.envelope` says."""

    def __init__(self, link: Link, leader: Leader, spec: RunSpec, secret: bytes) -> None:
        """`secret` is what lease tokens are made with."""
        self._link = link
        self._leader = leader
        self._spec = spec
        self._secret = secret
        self._epoch = b""

    # To one session.

    def welcome(self, id: SessionId, answer: bytes) -> None:
        """The answer to a hello, signed already."""
        self._link.publish(topics.inbox(self._leader.run, id.worker, id.session), answer)

    def task(self, peer: Peer, command: SendTask, digest: bytes) -> None:
        """A lease; `digest` proves the parameters of its version."""
        episodes = 1 if command.kind == "centre" else self._spec.environment.episodes
        token = lease_token(
            self._secret,
            self._leader.run,
            command.task,
            command.session.worker,
            command.version,
            command.first,
            command.count,
            episodes,
            command.kind,
        )
        task = messages.Task(
            task=command.task,
            kind=command.kind,
            version=command.version,
            digest=digest,
            first=command.first,
            count=command.count,
            episodes=episodes,
            token=token,
            acknowledged=command.acknowledged,
        )
        self._tell(peer, task)

    def acknowledge(self, peer: Peer, command: SendAcknowledge) -> None:
        """The answer for results."""
        reason = command.reason[: messages.MAX_REASON]
        self._tell(peer, messages.Acknowledge(command.results, command.outcome, reason))

    def ask_for_hello(self, peer: Peer) -> None:
        """The session should introduce itself again; nothing for the volunteer to read."""
        self._tell(peer, messages.Notice("hello-again", ""))

    def send_away(self, peer: Peer, why: str) -> None:
        """The session is not welcome any more."""
        self._tell(peer, messages.Notice("leave", why[: messages.MAX_REASON]))

    def slow_down(self, peer: Peer, seconds: float, why: str) -> None:
        """The session should say nothing that can wait for so long."""
        self._tell(peer, messages.Notice("slow-down", why[: messages.MAX_REASON], seconds))

    def entrust(self, peer: Peer) -> None:
        """The run's secret, to a session of somebody who may lead the run after us."""
        self._tell(peer, messages.Entrust(seal_secret(peer.session_key, self._secret)))

    # To everybody.

    def update(self, payload: bytes) -> None:
        """An update, signed already."""
        self._link.publish(topics.update(self._leader.run), payload)

    def beat(self, version: int, digest: bytes, phase: Phase) -> None:
        """How far the run is."""
        payload = beat_payload(self._leader, version, digest, phase)
        self._link.publish(topics.beat(self._leader.run), payload)

    def epoch(
        self,
        version: int,
        digest: bytes,
        state: RunState,
        reason: str,
        judged: tuple[messages.Judged, ...],
    ) -> bool:
        """Who leads what: retained, all that a newcomer needs; whether it is on its way."""
        leader = self._leader
        epoch = messages.Epoch(
            protocol=PROTOCOL_VERSION,
            run=leader.run,
            host_key=leader.authority.root,
            number=leader.epoch,
            rank=leader.rank,
            spec=run_spec.to_bytes(self._spec),
            state=state,
            version=version,
            digest=digest,
            reason=reason[: messages.MAX_REASON],
            leader=leader.signer,
            charters=leader.authority.charters,
            judged=judged,
        )
        payload = signed(leader.identity, "epoch", (leader.run,), epoch)
        self._epoch = payload
        return self._link.publish(topics.epoch(leader.run), payload, qos=1, retain=True)

    def epoch_again(self) -> None:
        """The same once more, for whoever did not get what the broker retains."""
        if self._epoch:
            self._link.publish(topics.epoch(self._leader.run), self._epoch, qos=1, retain=True)

    def announced(self, payload: bytes) -> bool:
        """Whether this is our latest announcement."""
        return payload == self._epoch

    def here(self, state: RunState, priority: float) -> None:
        """The answer to who asks which runs are here."""
        leader, environment = self._leader, self._spec.environment.id
        here = messages.Here(leader.run, leader.authority.root, environment, state, priority)
        self._link.publish(topics.HERE, plain(here))

    def _tell(self, peer: Peer, message: messages.Message) -> None:
        topic = topics.inbox(self._leader.run, peer.id.worker, peer.id.session)
        self._link.publish(topic, sealed(peer.session_key, "to worker", message))


def beat_payload(leader: Leader, version: int, digest: bytes, phase: Phase) -> bytes:
    """A beat as it goes over the wire; also the will that the broker publishes for us."""
    return plain(messages.Beat(leader.epoch, version, digest, phase))
