"""Workers without an environment: the real wire and the real replica, returns from a formula."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

import msgspec
import numpy as np
from numpy.typing import NDArray

from protocol import kernels, noise, normalizer, replay, topics
from protocol.address import parse_address
from protocol.authority import Announcement, precedence, read_epoch
from protocol.envelope import (
    Wrapping,
    open_plain,
    open_sealed,
    open_signed,
    peek_signed,
    plain,
    sealed,
    signed,
    wrapping_of,
)
from protocol.identity import Identity, SessionKeys, Transcript, new_nonce, new_session
from protocol.invites import proof_of
from protocol.link import Link, Will, client_id
from protocol.messages import (
    Acknowledge,
    Beat,
    Bye,
    CatchUp,
    Chunk,
    Epoch,
    Held,
    Hello,
    Latest,
    Manifest,
    Message,
    Notice,
    Part,
    Reached,
    Result,
    ResultName,
    Task,
    Update,
    Welcome,
    pack_returns,
)
from protocol.packing import WireError
from protocol.spec import PROTOCOL_VERSION, RunSpec, from_bytes
from protocol.state import State, params_digest

GOAL = 0.7
"""Every parameter is best there."""
DIMS = 2
DEADLINE = 20.0
"""Seconds that anything in a test may take before it counts as failed."""
UPDATES_KEPT = 64
"""The last signed updates, that whoever takes over may ask for."""


class Impatient(Random):
    """Hardly any delay before the next attempt to connect."""

    def uniform(self, a: float, b: float) -> float:
        return 0.05


def members_returns(spec: RunSpec, state: State, first: int, count: int) -> NDArray[np.float64]:
    """What members are worth, shape (count, signs): on any worker, in a task of any size."""
    signs = spec.members_per_direction
    members = noise.members(
        spec.strategy.noise,
        spec.seed,
        first,
        count,
        state.theta,
        state.spread,
        per_direction=signs,
    )
    return worths(state, members).reshape(count, signs)


def centre_return(state: State, parameters: NDArray[np.float32]) -> float:
    """Highest, 0, where all parameters are GOAL; a normaliser has its say, as it has in life."""
    return float(worths(state, parameters))


def worths(state: State, parameters: NDArray[np.float32]) -> NDArray[np.float64]:
    """That of each row of parameters."""
    wide = parameters.astype(np.float64)
    worth = -np.square(wide - GOAL).sum(axis=-1)
    if state.normalizer is not None:
        mean, inverse = state.normalizer.policy_input()
        worth = worth + 0.01 * float(mean[0]) * float(inverse[0]) * wide[..., 0]
    return np.asarray(worth)


@functools.cache
def frames_of(phase: int, sign: int) -> NDArray[np.float64]:
    """What a member observes, shape (frames, DIMS); `phase` is its direction's remainder by 35."""
    frames = np.arange(1 + (3 * phase + sign) % 5, dtype=np.float64)
    return np.stack([frames * 0.3 + phase % 7, np.sin(frames + sign)], axis=1)


def evaluate(spec: RunSpec, state: State, task: Task) -> Result:
    """The result of a task, as an honest worker would send it."""
    observed = b""
    if task.kind == "centre":
        returns = np.full(task.count, centre_return(state, state.theta))
        lengths = np.ones(task.count, dtype=np.int64)
    else:
        returns = members_returns(spec, state, task.first, task.count)
        directions = range(task.first, task.first + task.count)
        signs = (1, -1)[: spec.members_per_direction]
        frames = [frames_of(direction % 35, sign) for direction in directions for sign in signs]
        lengths = np.array([len(member) for member in frames]).reshape(returns.shape)
        if state.normalizer is not None:
            words = np.zeros((DIMS, 4), dtype=np.uint64)
            kernels.observe_frames(np.concatenate(frames), *state.normalizer.measure(), words)
            observed = normalizer.to_bytes(normalizer.from_words(int(lengths.sum()), words))
    packed_returns, packed_lengths = pack_returns(returns, lengths)
    return Result(
        task=task.task,
        kind=task.kind,
        version=task.version,
        first=task.first,
        count=task.count,
        episodes=task.episodes,
        token=task.token,
        returns=packed_returns,
        lengths=packed_lengths,
        observed=observed,
    )


def evaluate_part(spec: RunSpec, state: State, task: Task, before: int, count: int) -> Result:
    """The result of `count` units of a task, so many of it before them."""
    piece = msgspec.structs.replace(task, first=task.first + before, count=count)
    part = Part(before, task.count - before - count)
    return msgspec.structs.replace(evaluate(spec, state, piece), part=part)


@dataclass
class Heard:
    """What came in, by kind, for tests to look at."""

    tasks: list[Task] = field(default_factory=list)
    acknowledged: dict[ResultName, str] = field(default_factory=dict)
    reasons: dict[ResultName, str] = field(default_factory=dict)
    welcomes: list[Welcome] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    manifests: list[Manifest] = field(default_factory=list)
    chunks: dict[int, bytes] = field(default_factory=dict)
    missed: list[bytes] = field(default_factory=list)
    updates: list[bytes] = field(default_factory=list)
    epochs: list[Epoch] = field(default_factory=list)
    beats: list[Beat] = field(default_factory=list)


class ScriptedWorker:
    """One session, which outlives coordinators and brokers.

    It follows the rightful leader of the greatest precedence, says hello at each new epoch, and
    sends again what was not answered for; where `names_held`, hellos name the tasks that wait here,
    and a worker that does not forgets them. It answers who gathers signed updates.

    Tasks stay unanswered while `busy` is False, and from version `pause_at` on; those of the centre
    until version `judge_at` is here. Where `cut` tells pieces of a task, each as (units before it,
    units), they are its results, in that order.
    """

    def __init__(
        self,
        url: str,
        run: str,
        *,
        identity: Identity | None = None,
        credit: int = 2,
        speed: float = 0.0,
        busy: bool = True,
        pause_at: int = 1 << 40,
        judge_at: int = 0,
        names_held: bool = True,
        cut: Callable[[Task], Sequence[tuple[int, int]]] = lambda task: (),
        alter: Callable[[Result], Result] = lambda result: result,
        numeric: bytes = b"",
    ) -> None:
        self.identity = identity or Identity.generate()
        self.session = new_session()
        self.run_id = run
        self.invite = ""
        self.name, self.device, self.unable = "scripted", "formula", ""
        self.credit = credit
        self.numeric = numeric
        self.speed = speed
        self.busy = busy
        self.pause_at = pause_at
        self.judge_at = judge_at
        self.names_held = names_held
        self.cut = cut
        self.alter = alter
        self.heard = Heard()
        self.spec: RunSpec | None = None
        self.state: State | None = None
        self.key: bytes | None = None
        self.sent: dict[ResultName, Result] = {}
        self.unanswered: dict[ResultName, Result] = {}
        self.hellos: list[bytes] = []
        self.led: Announcement | None = None
        self.kept: dict[int, bytes] = {}
        self._news = asyncio.Event()
        self.states: dict[int, State] = {}
        self._waiting: list[Task] = []
        self._exchange: dict[bytes, SessionKeys] = {}
        self._later: dict[int, Update] = {}
        self._running: asyncio.Task[None] | None = None
        worker = self.identity.worker
        bye = signed(self.identity, "status", (run, self.session), Bye("lost"))
        self.link = Link(
            parse_address(url),
            client_id=client_id(worker, self.session),
            name=worker,
            on_message=self._hear,
            on_connected=self._connected,
            will=Will(topics.status(run, worker, self.session), bye, 1, False),
            subscriptions=topics.worker_filters(run, worker, self.session),
            random=Impatient(),
        )

    # What tests do with it.

    async def __aenter__(self) -> ScriptedWorker:
        self._running = asyncio.create_task(self.link.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.link.close()
        await self._stop()

    async def vanish(self) -> None:
        """As a cut cable: no goodbye of ours, the broker publishes the will."""
        self.busy = False
        self.link.abort()
        await self._stop()

    async def _stop(self) -> None:
        if self._running is not None:
            self._running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._running
            self._running = None

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something that was heard makes the condition true."""
        async with asyncio.timeout(DEADLINE):
            while not condition():
                self._news.clear()
                await self._news.wait()

    def say_hello(self) -> bytes:
        """Introduce the session, anew or for the first time."""
        keys, nonce = SessionKeys.generate(), new_nonce()
        self._exchange[nonce] = keys
        hello = Hello(
            protocol=PROTOCOL_VERSION,
            client="0",
            worker_key=self.identity.public_key,
            exchange_key=keys.public_key,
            nonce=nonce,
            name=self.name,
            device=self.device,
            unable=self.unable,
            credit=self.credit,
            speed=self.speed,
            numeric_class=self.numeric,
            version=self.version,
            held=self.held if self.names_held else (),
            invite=proof_of(self.invite, self.run_id, self.identity.public_key)
            if self.invite
            else b"",
        )
        payload = signed(self.identity, "hello", (self.run_id, self.session), hello)
        self.hellos.append(payload)
        self.publish(topics.request, payload)
        return payload

    @property
    def version(self) -> int:
        """That it has reached."""
        return 0 if self.state is None else self.state.version

    @property
    def held(self) -> tuple[Held, ...]:
        """The leases of tasks that wait here."""
        return tuple(
            Held(t.task, t.kind, t.version, t.first, t.count, t.episodes, t.token)
            for t in self._waiting
        )

    def bye(self) -> None:
        """Leave as one should."""
        bye = signed(self.identity, "status", (self.run_id, self.session), Bye("left"))
        self.publish(topics.status, bye)

    def ask(self, message: Message) -> None:
        self.publish(topics.request, self.sealed(message))

    def sealed(self, message: Message) -> bytes:
        assert self.key is not None
        return sealed(self.key, "to coordinator", message)

    def publish(self, kind: Callable[[str, str, str], str], payload: bytes) -> None:
        self.link.publish(kind(self.run_id, self.identity.worker, self.session), payload, qos=1)

    def send(self, result: Result) -> None:
        self.sent[result.name] = self.unanswered[result.name] = result
        self.publish(topics.results, self.sealed(result))

    def begin(self) -> None:
        """Be busy from now on."""
        self.busy = True
        self._work()

    def resume(self) -> None:
        """Answer what waited, whatever the version."""
        self.pause_at = 1 << 40
        self.begin()

    # What it does by itself.

    def _connected(self, first: bool) -> None:
        if self.spec is not None:
            self.say_hello()

    def _hear(self, topic: str, payload: bytes) -> None:
        if not payload:
            return  # the leader tries whether its broker lets it
        parsed = topics.parse(topic)
        assert parsed is not None
        try:
            if parsed.kind == "snap":
                chunk = open_plain(payload)
                assert isinstance(chunk, Chunk)
                self.heard.chunks[chunk.index] = chunk.data
            elif parsed.kind == "beat":
                beat = open_plain(payload)
                assert isinstance(beat, Beat)
                self.heard.beats.append(beat)
            elif parsed.kind == "ask":
                assert parsed.joiner is not None
                self._serve(open_plain(payload), parsed.joiner)
            elif wrapping_of(payload) is Wrapping.SIGNED:
                self._hear_signed(parsed.kind, payload)
            elif self.key is not None:
                self._hear_sealed(open_sealed(payload, self.key, "to worker"))
        except WireError:
            return
        self._news.set()

    def _hear_signed(self, kind: str, payload: bytes) -> None:
        claimed = peek_signed(payload)
        if isinstance(claimed, Epoch):
            self._hear_epoch(payload)
            return
        if self.led is None:
            return
        if isinstance(claimed, Update):
            update = self.led.authority.open_update(payload)
            (self.heard.missed if kind == "in" else self.heard.updates).append(payload)
            self._keep(update, payload)
            self._follow()
            return
        context: tuple[str, ...] = (self.run_id,)
        if isinstance(claimed, Welcome):
            context = (self.run_id, self.identity.worker, self.session)
        message = open_signed(payload, self.led.leader, type(claimed).__name__.lower(), context)
        if isinstance(message, Welcome) and message.epoch == self.led.epoch.number:
            self._hear_welcome(message, self.led.leader)
        elif isinstance(message, Manifest):
            self.heard.manifests.append(message)

    def _hear_epoch(self, payload: bytes) -> None:
        known = self.led
        heard = read_epoch(payload, self.run_id, known.authority if known else None)
        epoch = heard.epoch
        rank = precedence(epoch.number, epoch.rank)
        if known and rank < precedence(known.epoch.number, known.epoch.rank):
            return
        self.led = heard
        self.heard.epochs.append(epoch)
        if self.spec is None:
            self.spec = from_bytes(epoch.spec)
            self._reach(replay.initial_state(self.spec))
        if known is None or rank > precedence(known.epoch.number, known.epoch.rank):
            self.key = None
            if not self.names_held:
                self._waiting.clear()
            self.say_hello()

    def _serve(self, question: Message, joiner: str) -> None:
        """Tell who gathers, or who takes over, what was signed so far."""
        us = topics.peer(self.identity.worker, self.session)
        answer = topics.snapshot(self.run_id, us, joiner)
        if isinstance(question, Latest) and self.version > question.version:
            last = peek_signed(self.kept[self.version - 1])
            assert isinstance(last, Update)
            self.link.publish(answer, plain(Reached(self.version, last.epoch)))
        elif isinstance(question, CatchUp) and question.version in self.kept:
            for version in range(question.version, self.version):
                self.link.publish(answer, self.kept[version])

    def _hear_welcome(self, welcome: Welcome, host_key: bytes) -> None:
        self.heard.welcomes.append(welcome)
        keys = self._exchange.pop(welcome.nonce, None)
        if keys is None or welcome.refused:
            return
        self.key = keys.agree(
            Transcript(
                run=self.run_id,
                epoch=welcome.epoch,
                session=self.session,
                worker_key=self.identity.public_key,
                host_key=host_key,
                worker_exchange=keys.public_key,
                host_exchange=welcome.exchange_key,
                worker_nonce=welcome.nonce,
            )
        )
        if self.state is not None and welcome.version > self.state.version:
            self.ask(CatchUp(self.state.version))
        for result in list(self.unanswered.values()):
            self.send(result)

    def _hear_sealed(self, message: Message) -> None:
        if isinstance(message, Task):
            self._answered(message.acknowledged, "accepted")
            self.heard.tasks.append(message)
            if message not in self._waiting:
                self._waiting.append(message)
            self._work()
        elif isinstance(message, Acknowledge):
            self._answered(message.results, message.outcome, message.reason)
        elif isinstance(message, Notice):
            self.heard.notices.append(message)
            if message.code == "hello-again":
                self.say_hello()

    def _answered(self, names: Sequence[ResultName], outcome: str, reason: str = "") -> None:
        for name in names:
            self.heard.acknowledged[name] = outcome
            self.heard.reasons[name] = reason
            self.unanswered.pop(name, None)

    def _keep(self, update: Update, payload: bytes) -> None:
        """Of two updates for one version the later epoch's holds, whatever was applied before."""
        version, reached = update.version, self.states.get(update.version + 1)
        earlier = self._later.get(version)
        if version >= self.version:
            if earlier is None or update.epoch >= earlier.epoch:
                self._later[version] = update
                self.kept[version] = payload
                self.kept.pop(version - UPDATES_KEPT, None)
        elif reached is not None and params_digest(reached.theta) != update.digest_after:
            applied = peek_signed(self.kept[version])
            assert isinstance(applied, Update)
            if update.epoch > applied.epoch:
                self._start_anew()

    def _start_anew(self) -> None:
        """The run went another way than we did."""
        assert self.spec is not None
        self.states.clear()
        self._later.clear()
        self.kept.clear()
        self._reach(replay.initial_state(self.spec))
        if self.key is not None:
            self.ask(CatchUp(0))

    def _follow(self) -> None:
        """Apply what is in order; ask for what is missing."""
        assert self.spec is not None and self.state is not None
        rules = replay.arithmetic(self.spec)
        while self.state.version in self._later:
            update = self._later.pop(self.state.version)
            try:
                self._reach(replay.follow(self.spec, rules, self.state, update))
            except (replay.MismatchError, WireError):
                self._start_anew()
        if self._later and max(self._later) > self.state.version and self.key is not None:
            self.ask(CatchUp(self.state.version))
        self._work()

    def _reach(self, state: State) -> None:
        assert self.spec is not None
        self.state = state
        self.states[state.version] = state
        self.states.pop(state.version - self.spec.versions_kept, None)

    def _work(self) -> None:
        """Answer the tasks whose version is here."""
        assert self.spec is not None and self.state is not None
        if not self.busy or self.state.version >= self.pause_at:
            return
        judges = self.state.version >= self.judge_at
        ready = [
            task
            for task in self._waiting
            if task.version in self.states and (judges or task.kind == "members")
        ]
        self._waiting = [task for task in self._waiting if task not in ready]
        unanswered = {result.task for result in self.unanswered.values()}
        for task in ready:
            if task.task in unanswered:
                continue
            state = self.states[task.version]
            assert params_digest(state.theta) == task.digest, "the task names other parameters"
            pieces = [evaluate_part(self.spec, state, task, *piece) for piece in self.cut(task)]
            for result in pieces or [evaluate(self.spec, state, task)]:
                self.send(self.alter(result))
