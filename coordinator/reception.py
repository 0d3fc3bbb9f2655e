"""What sessions say: hostile until proved otherwise, then an event of the pool or a request."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from coordinator.patience import REFUSED, Patience
from coordinator.peers import Leader, Peer, Peers, label
from coordinator.pool.events import (
    Arrived,
    Event,
    Heard,
    Joined,
    Left,
    Refused,
    SendAcknowledge,
    SessionId,
)
from coordinator.pool.roster import Session
from coordinator.results import genuine, judge
from coordinator.serving import Serving
from coordinator.tallies import Tallies
from coordinator.turns import Turns, Word
from coordinator.versions import Versions
from coordinator.voice import Voice
from protocol import amendments, messages, topics
from protocol.clock import now
from protocol.envelope import Wrapping, open_sealed, wrapping_of
from protocol.greeting import STANDBY
from protocol.packing import WireError
from protocol.spec import RunSpec

SLICE_SECONDS = 0.01
"""For which hellos and goodbyes are answered at once; as long again is left to all else."""
BROKEN = "its connection broke"
"""Why a session is gone whose will the broker published."""

_TOPICS: dict[str, tuple[type[messages.Message], ...]] = {
    "req": (
        messages.Refusal,
        messages.Credit,
        messages.CatchUp,
        messages.ChunkRequest,
        messages.Holding,
    ),
    "results": (messages.Result,),
    "status": (messages.Status,),
}
"""What a session may say under its key, by the kind of topic."""

_LOGGER = logging.getLogger("shoal.coordinator")


class Reception:
    """Hears the sessions of a run that we lead.

    What is sealed under a session's key is cheap to prove, and heard at once: results come first.
    What is signed waits for its turn, of which `greet_for_ever` sees to a slice at a time.
    """

    def __init__(
        self,
        spec: RunSpec,
        leader: Leader,
        secret: bytes,
        peers: Peers,
        versions: Versions,
        first_task: int,
        sessions: dict[SessionId, Session],
        voice: Voice,
        serving: Serving,
        *,
        decide: Callable[[Event], None],
        on_result: Callable[[messages.Result, Arrived], None],
        is_behind: Callable[[int], bool],
        say: Callable[[str], None],
        over: asyncio.Event,
        tallies: Tallies,
    ) -> None:
        """`first_task` is the first number that we give out; `sessions` are the pool's.

        Events go to `decide`, results to `on_result`. `is_behind` says whether a session of that
        version proves that we can't lead. Nobody is heard once the run is `over`.
        """
        self.turns = Turns()
        self._patience = Patience()
        self._peers = peers
        self._spec = spec
        self._leader = leader
        self._secret = secret
        self._versions = versions
        self._first_task = first_task
        self._first_version = versions.current.version
        self._sessions = sessions
        self._voice = voice
        self._serving = serving
        self._decide = decide
        self._on_result = on_result
        self._is_behind = is_behind
        self._say = say
        self._over = over
        self._tallies = tallies
        self._wanted = asyncio.Event()

    def hear(self, kind: topics.Kind, id: SessionId, payload: bytes) -> None:
        """A message on a session's topic. Raises `WireError`."""
        if not payload:
            self._peers.tried(id, kind)
            return
        if wrapping_of(payload) is not Wrapping.SIGNED:
            self._hear_sealed(kind, id, payload)
        elif kind == "req" or kind == "status":
            self.turns.put(id, Word(kind, payload))
            self._wanted.set()

    async def greet_for_ever(self) -> None:
        """Answer what is signed, in turn."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            while self.turns:
                began = time.monotonic()
                while self.turns and time.monotonic() - began < SLICE_SECONDS:
                    self._hear_signed(*self.turns.take())
                await asyncio.sleep(time.monotonic() - began)

    def _hear_signed(self, id: SessionId, word: Word) -> None:
        if self._over.is_set():
            return
        try:
            if word.kind == "req":
                self._hear_hello(id, word.payload)
            else:
                bye = self._peers.read_bye(id, word.payload)
                self._decide(Left(id, BROKEN if bye.reason == "lost" else bye.reason))
        except WireError as error:
            _LOGGER.debug("ignored a signed word of %s: %s", id, error)

    def _hear_hello(self, id: SessionId, payload: bytes) -> None:
        version, digest = self._versions.current.version, self._versions.digest
        greeting = self._peers.greet(id, payload, version, digest, int(time.time()))
        self.turns.greeted(id)
        hello = greeting.hello
        if hello.unable:
            self._hear_unable(id, hello, greeting.refused)
            return
        if not greeting.refused and self._is_behind(hello.version):
            return
        self._voice.welcome(id, greeting.answer)
        if greeting.refused:
            self._tallies.cannot(id.worker, f"not let in: {greeting.refused}")
            who = label(hello.name, hello.device)
            self._say(f"{id} ({who}) is not let in: {greeting.refused}")
            return
        peer = self._peers.get(id)
        if peer is not None and self._leader.may_be_succeeded_by(peer.worker_key):
            self._voice.entrust(peer)
        session = self._sessions.get(id)
        if session is not None and not (session.leases or session.credit or hello.credit):
            self._decide(Heard(id))  # who takes no tasks only wants to know that we live
            return
        current = [h for h in hello.held if not self._went_without(h.task, h.version)]
        held = genuine(self._leader.run, self._secret, id, current)
        stands_by = hello.device == STANDBY
        numeric = hello.numeric_class
        self._decide(Joined(id, hello.credit, hello.speed, held, stands_by, hello.lanes, numeric))

    def _hear_unable(self, id: SessionId, hello: messages.Hello, refused: str) -> None:
        """A worker says why it can't take part, and is gone."""
        if not refused:
            self._tallies.cannot(id.worker, hello.unable)
            who = label(hello.name, hello.device)
            self._say(f"{id} ({who}) can't take part: {hello.unable}")

    def _hear_sealed(self, kind: topics.Kind, id: SessionId, payload: bytes) -> None:
        peer = self._peers.get(id)
        if peer is None:
            return  # of an earlier life of ours: it says hello once it hears our epoch
        moment = now()
        if not self._patience.listens(id, moment):
            return  # before it is proved: that is most of what a message costs
        message = open_sealed(payload, peer.session_key, "to coordinator")
        self._charge(id, 1.0, moment)
        if not isinstance(message, _TOPICS.get(kind, ())):
            raise WireError(f"a {type(message).__name__.lower()} where it does not belong")
        if self._peers.should_remind(id, moment):
            self._voice.ask_for_hello(peer)
        match message:
            case messages.Result():
                self._hear_result(peer, message)
            case messages.Refusal():
                blame = message.cause in ("worker", "spec")
                self._decide(Refused(id, message.task, blame, message.reason))
            case messages.Credit():
                self._peers.take_credit(id, message)
                self._decide(Heard(id, message.credit))
            case messages.CatchUp() | messages.ChunkRequest():
                self._decide(Heard(id))
                self._serving.ask(peer, message)
            case messages.Holding():
                self._decide(Heard(id))
                self._serving.holding(id, message.version)
            case _:
                self._decide(Heard(id))

    def _hear_result(self, peer: Peer, message: messages.Result) -> None:
        spec, cap = self._spec, self._versions.cap(message.version)
        largest = amendments.layout(spec, self._versions.current.amended).most
        try:
            arrived = judge(spec, self._leader.run, self._secret, peer.id, message, cap, largest)
        except WireError as error:
            reason = f"its result is refused: {error}"
            self._tallies.outcomes["refused"] += 1
            self._say(f"{peer.id}: {reason}")
            self._charge(peer.id, REFUSED, now())
            self._voice.acknowledge(
                peer, SendAcknowledge(peer.id, (message.name,), "refused", str(error))
            )
            self._decide(Refused(peer.id, message.task, True, reason))
            return
        if self._went_without(message.task, message.version):
            why = f"the run went another way before version {message.version}"
            self._tallies.outcomes["late"] += 1
            self._voice.acknowledge(peer, SendAcknowledge(peer.id, (message.name,), "late", why))
            self._decide(Heard(peer.id))
        else:
            self._on_result(message, arrived)

    def _charge(self, id: SessionId, cost: float, moment: float) -> None:
        if self._patience.heard(id, moment, cost):
            self._say(f"{id}: says more than anybody has to say, and is not heard for a moment")

    def _went_without(self, task: int, version: int) -> bool:
        """Whether somebody before us gave the task at a version that only its own updates led to:
        ours of that number has other parameters."""
        return task < self._first_task and version > self._first_version
