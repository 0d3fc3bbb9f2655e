"""The coordinator's shell: wires broker link, pool, log and timer; decides nothing."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coordinator import peers, update
from coordinator.directory import RunDirectory, policy_tensors
from coordinator.log import UpdateLog
from coordinator.peers import Leader, Peer
from coordinator.pool import Pool
from coordinator.pool.events import (
    CentreJudged,
    CloseBatch,
    Command,
    EndRun,
    Event,
    Happened,
    Heard,
    Joined,
    Left,
    Refused,
    SendAcknowledge,
    SendTask,
    SessionId,
    StopAsked,
    Tick,
    Updated,
)
from coordinator.results import judge
from coordinator.serving import Serving
from protocol import messages, replay, snapshot, state, topics
from protocol import spec as run_spec
from protocol.address import Address
from protocol.envelope import (
    Wrapping,
    open_plain,
    open_sealed,
    open_signed,
    plain,
    sealed,
    signed,
    wrapping_of,
)
from protocol.identity import Identity, lease_token
from protocol.link import Link, Will, client_id
from protocol.packing import MAX_MESSAGE, WireError
from protocol.spec import PROTOCOL_VERSION, RunSpec
from protocol.state import State

BEAT_SECONDS = 2.0
TICK_SECONDS = 0.05
POLICY_SECONDS = 1.0
"""The policy file is rewritten at most this often while the run goes on."""
SNAPSHOT_EVERY = 64
"""Every so many updates the signed update carries the digest of the full state."""

_LOGGER = logging.getLogger("shoal.coordinator")


@dataclass(slots=True)
class Progress:
    """What a person who watches wants to know now."""

    version: int = 0
    workers: int = 0
    episodes: int = 0
    """episodes that counted, the centre's included"""
    steps: int = 0
    mean: float = float("nan")
    centre: CentreJudged | None = None
    wire_bytes: int = 0
    accepted: int = 0
    """directions of the open batch that are here, of `batch`"""
    batch: int = 0
    quiet: str = ""

    @property
    def wire_bytes_per_episode(self) -> float:
        """Bytes for tasks, results, acknowledgements and updates, per episode used."""
        return self.wire_bytes / self.episodes if self.episodes else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """How a run ended and what it returns."""

    reached: bool
    reason: str
    version: int
    updates: int
    centre: CentreJudged | None
    """the last evaluation of the returned version"""
    params_hash: str
    progress: Progress


class Server:
    """Leads one run from version 0 to its end."""

    def __init__(
        self,
        spec: RunSpec,
        run: str,
        identity: Identity,
        directory: RunDirectory,
        address: Address,
        *,
        on_event: Callable[[str], None] = lambda line: None,
        on_update: Callable[[Progress], None] = lambda progress: None,
        on_ready: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_event` gets a line for people, `on_update` the progress after each update,
        `on_ready` is called when workers can join."""
        self.spec = spec
        self.run_id = run
        self._identity = identity
        self._directory = directory
        self._rules = replay.arithmetic(spec)
        self._state = replay.initial_state(spec)
        self._log = UpdateLog(directory.log_path, run)
        self._secret = directory.make_secret()
        self._leader = Leader(run, identity, epoch=1)
        self._pool = Pool(spec, 0, self._now())
        self._peers: dict[SessionId, Peer] = {}
        self._digests = {0: state.params_digest(self._state.theta)}
        self._kept: dict[int, State] = {0: self._state}
        self._judged: dict[int, CentreJudged] = {}
        self._on_event = on_event
        self._on_update = on_update
        self._on_ready = on_ready
        self._ended: asyncio.Future[EndRun] | None = None
        self._stop_asked = False
        self._policy_written = 0.0
        self._jobs: set[asyncio.Task[None]] = set()
        self.progress = Progress(batch=spec.directions)
        self._started = time.monotonic()
        self._link = Link(
            address,
            client_id=client_id(identity.worker, "leader"),
            on_message=self._on_message,
            on_connected=self._on_connected,
            on_disconnected=lambda reason: on_event(f"broker lost: {reason}"),
            on_retry=lambda reason, delay: on_event(
                f"broker {address.broker} unreachable ({reason}), next try in {delay:.1f} s"
            ),
            will=Will(topics.beat(run), plain(self._beat("lost")), 0, False),
            subscriptions=topics.coordinator_filters(run),
        )
        self._serving = Serving(self._link, self._log, self._leader, lambda: self._state)

    async def run(self) -> Outcome:
        """Lead the run until it ends. Raises `ShoalError` where it can't go on."""
        loop = asyncio.get_running_loop()
        self._ended = loop.create_future()
        self._directory.write_spec(self.spec)
        self._write_policy(self._state, force=True)
        tasks = [
            asyncio.create_task(self._link.run()),
            asyncio.create_task(self._tick_for_ever()),
            asyncio.create_task(self._beat_for_ever()),
        ]
        try:
            for failing in tasks:
                failing.add_done_callback(self._job_done)
            return await self._finish(await self._ended)
        finally:
            self._serving.close()
            for task in [*tasks, *self._jobs]:
                task.cancel()
            await asyncio.gather(*tasks, *self._jobs, return_exceptions=True)
            self._log.close()
            self._directory.close()

    def stop(self, reason: str) -> None:
        """End the run now, orderly; `run` returns soon after."""
        self._stop_asked = True
        self._decide(StopAsked(reason))

    # The clock.

    @staticmethod
    def _now() -> float:
        """Seconds that go on while the machine sleeps, where the platform has such a clock."""
        clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
        return time.clock_gettime(clock)

    async def _tick_for_ever(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self._decide(Tick())
            self._serving.forget_old(asyncio.get_running_loop().time())

    async def _beat_for_ever(self) -> None:
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            self._publish_beat()

    # What comes in.

    def _on_connected(self, first: bool) -> None:
        self._publish_epoch("running")
        self._publish_beat()
        if first:
            self._on_ready()

    def _on_message(self, topic: str, payload: bytes) -> None:
        parsed = topics.parse(topic)
        if parsed is None:
            return
        try:
            if parsed.kind == "who":
                self._answer_who(payload)
            elif parsed.worker is not None and parsed.session is not None:
                self._from_session(SessionId(parsed.worker, parsed.session), payload)
        except WireError as error:
            _LOGGER.debug("ignored a message on %s: %s", topic, error)

    def _answer_who(self, payload: bytes) -> None:
        if not isinstance(open_plain(payload), messages.Who):
            return
        here = messages.Here(
            self.run_id, self._identity.public_key, self.spec.environment.id, "running"
        )
        self._link.publish(topics.HERE, plain(here))

    def _from_session(self, id: SessionId, payload: bytes) -> None:
        if wrapping_of(payload) is Wrapping.SIGNED:
            peer = self._peers.get(id)
            if peer is not None and self._said_bye(peer, payload):
                return
            self._hello(id, payload)
            return
        peer = self._peers.get(id)
        if peer is None:
            self._unknown_session(id)
            return
        message = open_sealed(payload, peer.session_key, "to coordinator")
        match message:
            case messages.Result():
                self._result(peer, message)
            case messages.Refusal():
                blame = message.cause in ("worker", "spec")
                self._decide(Refused(id, message.task, blame, message.reason))
            case messages.Credit():
                self._decide(Heard(id, message.credit))
            case messages.CatchUp():
                self._decide(Heard(id))
                self._serving.catch_up(peer, message)
            case messages.ChunkRequest():
                self._decide(Heard(id))
                self._serving.chunks(peer, message)
            case messages.Status():
                self._decide(Heard(id))

    def _unknown_session(self, id: SessionId) -> None:
        """A session of an earlier life of ours: a beat tells it the epoch, so it says hello."""
        self._publish_beat()

    def _said_bye(self, peer: Peer, payload: bytes) -> bool:
        context = (self.run_id, peer.id.session)
        try:
            message = open_signed(payload, peer.worker_key, "status", context)
        except WireError:
            return False
        if not isinstance(message, messages.Bye):
            return False
        del self._peers[peer.id]
        self._decide(Left(peer.id, message.reason))
        return True

    def _hello(self, id: SessionId, payload: bytes) -> None:
        hello = peers.read_hello(self._leader, id, payload)
        digest = self._digests[self._state.version]
        peer, answer = peers.welcome(self._leader, id, hello, self._state.version, digest)
        self._link.publish(topics.inbox(self.run_id, id.worker, id.session), answer)
        if peer is None:
            self._on_event(f"{id} refused: {peers.reason_to_refuse(hello)}")
            return
        self._peers[id] = peer
        self._decide(Joined(id, hello.credit, hello.speed))

    def _result(self, peer: Peer, message: messages.Result) -> None:
        try:
            arrived = judge(self.spec, self.run_id, self._secret, peer.id, message)
        except WireError as error:
            self._on_event(f"{peer.id} sent a result that is refused: {error}")
            refusal = SendAcknowledge(peer.id, (message.task,), "refused", str(error))
            self._acknowledge(refusal)
            self._decide(Refused(peer.id, message.task, True, f"its result is refused: {error}"))
            return
        self._decide(arrived)

    # What goes out.

    def _decide(self, event: Event) -> None:
        for command in self._pool.handle(event, self._now()):
            self._obey(command)

    def _obey(self, command: Command) -> None:
        match command:
            case SendTask():
                self._send_task(command)
            case SendAcknowledge():
                self._acknowledge(command)
            case CloseBatch():
                job = asyncio.get_running_loop().create_task(self._make_update(command))
                self._jobs.add(job)
                job.add_done_callback(self._job_done)
            case CentreJudged():
                self._centre(command)
            case EndRun():
                if self._ended is not None and not self._ended.done():
                    self._ended.set_result(command)
            case Happened():
                who = f"{command.session}: " if command.session else ""
                self._on_event(f"{who}{command.what}")
                self.progress.workers = len(self._pool.sessions)
                if command.what.startswith("left") and command.session is not None:
                    self._peers.pop(command.session, None)

    def _job_done(self, job: asyncio.Task[None]) -> None:
        self._jobs.discard(job)
        if job.cancelled() or self._ended is None or self._ended.done():
            return
        failure = job.exception()
        if failure is not None:
            self._ended.set_exception(failure)

    def _send_task(self, command: SendTask) -> None:
        peer = self._peers.get(command.session)
        if peer is None:
            return
        episodes = 1 if command.kind == "centre" else self.spec.environment.episodes
        token = lease_token(
            self._secret,
            self.run_id,
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
            digest=self._digests[command.version],
            first=command.first,
            count=command.count,
            episodes=episodes,
            token=token,
            acknowledged=command.acknowledged,
        )
        self._to_worker(peer, task)

    def _acknowledge(self, command: SendAcknowledge) -> None:
        peer = self._peers.get(command.session)
        if peer is not None:
            message = messages.Acknowledge(command.tasks, command.outcome, command.reason[:500])
            self._to_worker(peer, message)

    def _to_worker(self, peer: Peer, message: messages.Message) -> None:
        topic = topics.inbox(self.run_id, peer.id.worker, peer.id.session)
        self._link.publish(topic, sealed(peer.session_key, "to worker", message))

    def _beat(self, phase: str) -> messages.Beat:
        version = self._state.version
        return messages.Beat(self._leader.epoch, version, self._digests[version], phase)  # type: ignore[arg-type]

    def _publish_beat(self) -> None:
        phase = "updating" if self._pool.updating else "open"
        self._link.publish(topics.beat(self.run_id), plain(self._beat(phase)))

    def _publish_epoch(self, status: str, version: int | None = None, reason: str = "") -> None:
        version = self._state.version if version is None else version
        epoch = messages.Epoch(
            protocol=PROTOCOL_VERSION,
            run=self.run_id,
            host_key=self._identity.public_key,
            number=self._leader.epoch,
            rank=0,
            spec=run_spec.to_bytes(self.spec),
            state=status,  # type: ignore[arg-type]
            version=version,
            digest=self._digests[version],
            reason=reason[:500],
        )
        payload = signed(self._identity, "epoch", (self.run_id,), epoch)
        self._link.publish(topics.epoch(self.run_id), payload, qos=1, retain=True)

    # Updates.

    async def _make_update(self, closed: CloseBatch) -> None:
        """Compute, keep, then publish: nobody hears of what could still be lost."""
        started = time.monotonic()
        before = self._state
        made, payload = await asyncio.to_thread(self._compute, before, closed)
        await asyncio.to_thread(self._log.append, before.version, payload, made.members, made.late)
        self._state = made.after
        version = made.after.version
        self._digests[version] = made.update.digest_after
        self._kept[version] = dataclasses.replace(made.after, slots={})
        for old in [v for v in self._kept if v < version - self.spec.versions_kept]:
            del self._kept[old], self._digests[old]
        self._link.publish(topics.update(self.run_id), payload)
        self.progress.version = version
        self.progress.mean = made.mean
        self.progress.episodes += made.update.episodes
        self.progress.steps += made.update.steps
        self._write_update_metrics(made, time.monotonic() - started)
        self._decide(Updated(version))
        self.progress.wire_bytes = self._link.wire.episode_bytes()
        self._on_update(self.progress)
        self._write_policy(made.after)

    def _compute(self, before: State, closed: CloseBatch) -> tuple[update.Made, bytes]:
        made, payload = self._signed_update(before, closed)
        if len(payload) > MAX_MESSAGE:
            made, payload = self._signed_update(before, update.without_late(closed))
        return made, payload

    def _signed_update(self, before: State, closed: CloseBatch) -> tuple[update.Made, bytes]:
        made = update.make(self.spec, self._rules, before, self._leader.epoch, closed)
        if made.after.version % SNAPSHOT_EVERY == 0:
            made = update.with_state_digest(made, snapshot.state_digest(made.after))
        return made, signed(self._identity, "update", (self.run_id,), made.update)

    def _write_update_metrics(self, made: update.Made, seconds: float) -> None:
        self._directory.write_metrics(
            {
                "kind": "update",
                "version": made.after.version,
                "seconds": round(time.monotonic() - self._started, 3),
                "members": made.members,
                "late_members": made.late,
                "dropped_directions": len(made.update.dropped),
                "mean_return": made.mean,
                "return_deviation": made.deviation,
                "best_return": made.best,
                "sigma": made.update.sigma,
                "learning_rate": made.update.learning_rate,
                "step_norm": made.step_norm,
                "update_seconds": round(seconds, 4),
                "episodes": self.progress.episodes,
                "env_steps": self.progress.steps,
                "workers": self.progress.workers,
                "wire_bytes": self._link.wire.episode_bytes(),
                "params_hash": made.update.digest_after.hex(),
            }
        )

    # The centre and the end.

    def _centre(self, judged: CentreJudged) -> None:
        self._judged[judged.version] = judged
        self.progress.centre = judged
        self.progress.episodes += judged.episodes
        self.progress.steps += judged.steps
        self._log.record_evaluation(
            judged.version, judged.episodes, judged.mean, judged.deviation, judged.full
        )
        self._directory.write_metrics(
            {
                "kind": "centre",
                "version": judged.version,
                "seconds": round(time.monotonic() - self._started, 3),
                "episodes": judged.episodes,
                "mean_return": judged.mean,
                "return_deviation": judged.deviation,
                "full": judged.full,
                "reached": judged.reached,
            }
        )

    async def _finish(self, end: EndRun) -> Outcome:
        """Keep and announce what the run returns."""
        returned = self._kept[end.version]
        self._write_policy(returned, force=True)
        status = "stopped" if self._stop_asked else "finished"
        self._publish_epoch(status, end.version, end.reason)
        self._link.publish(topics.beat(self.run_id), plain(self._beat("finished")))
        self.progress.wire_bytes = self._link.wire.episode_bytes()
        await self._link.close()
        return Outcome(
            reached=end.reached,
            reason=end.reason,
            version=end.version,
            updates=self._state.version,
            centre=self._judged.get(end.version),
            params_hash=state.params_hash(returned.theta),
            progress=self.progress,
        )

    def _write_policy(self, returned: State, force: bool = False) -> None:
        now = time.monotonic()
        if not force and now - self._policy_written < POLICY_SECONDS:
            return
        self._policy_written = now
        normalisation: tuple[NDArray[np.float32], NDArray[np.float32]] | None = None
        if returned.normalizer is not None:
            normalisation = returned.normalizer.policy_input()
        self._directory.write_policy(
            policy_tensors(self.spec, returned.theta, normalisation),
            {
                "run": self.run_id,
                "version": str(returned.version),
                "params_hash": state.params_hash(returned.theta),
            },
        )
