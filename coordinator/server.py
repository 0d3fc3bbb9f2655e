"""The coordinator's shell: wires broker link, pool, disk and timers; decides nothing."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import os
import random
import secrets
from collections.abc import Callable, Mapping
from typing import Any

from coordinator import log as update_log
from coordinator import orders, overview, remembering
from coordinator.admission import Admission
from coordinator.amending import Amending
from coordinator.directory import RunDirectory
from coordinator.leading import Contact
from coordinator.lines import Lines
from coordinator.log import UpdateLog
from coordinator.making import Maker
from coordinator.memory import spare_the_collector
from coordinator.orders import Order, Pause, Stop
from coordinator.overview import Overview
from coordinator.peers import Leader, Peers
from coordinator.pool import Pool
from coordinator.pool.events import (
    Arrived,
    CentreJudged,
    CloseBatch,
    Command,
    Deaf,
    EndRun,
    Event,
    Happened,
    Hearing,
    KeepResult,
    Kept,
    Left,
    Paused,
    Rely,
    Resumed,
    SendAcknowledge,
    SendTask,
    Sentenced,
    SessionId,
    StopAsked,
    Tick,
)
from coordinator.pool.leases import first_task
from coordinator.pool.newcomers import least_missed
from coordinator.progress import Outcome, Progress
from coordinator.reception import Reception
from coordinator.recorder import Named, Recorder
from coordinator.recovery import Recovered
from coordinator.serving import Serving
from coordinator.tallies import Tallies
from coordinator.tasks import Tasks
from coordinator.trial import Trial
from coordinator.trust import Trust
from coordinator.voice import Voice, beat_payload
from coordinator.watch import Watch
from protocol import amendments, messages, noise, replay, snapshot, topics
from protocol.address import Address
from protocol.allowance import Allowance
from protocol.authority import Announcement, precedence, read_epoch
from protocol.clock import now
from protocol.envelope import open_plain
from protocol.errors import ShoalError
from protocol.frozen import Frozen
from protocol.identity import fingerprint, new_session, worker_id
from protocol.link import Link, Will, client_id
from protocol.messages import Phase, RunState
from protocol.packing import WireError
from protocol.spec import RunSpec

BEAT_SECONDS = 2.0
TICK_SECONDS = 0.05
STALL_SECONDS = 2.0
"""For which the event loop, or this machine, stood still, after which silences and leases that ran
out meanwhile are no fault of workers."""
HERE_WITHIN = 0.3
"""Seconds in which an answer to `who` comes, so that many runs don't answer in one moment."""
EPOCH_APART = 5.0
"""Seconds between two epochs that are told again to who asks: anybody may ask, and all hear it."""
REMEMBER_SECONDS = 30.0
"""Between two notes of what is known of workers, where nobody's standing was decided."""
GOODBYE_SECONDS = 5.0
"""Seconds that the broker may take, or a lost one to come back, to have heard how the run ended."""

PROOFS_PER_SECOND, PROOFS_AT_ONCE = 20.0, 50.0
"""Announcements of others that are proved, which takes signatures. A rightful leader says its own
again as long as somebody overwrites it."""

_LOGGER = logging.getLogger("shoal.coordinator")


class SteppedAside(ShoalError):  # noqa: N818
    """Somebody else leads the run now, and may: `announcement` proves it."""

    def __init__(self, announcement: Announcement) -> None:
        epoch = announcement.epoch
        super().__init__(
            f"the run {epoch.run} is led by {fingerprint(announcement.leader)} now, in epoch "
            f"{epoch.number}: stepping aside"
        )
        self.announcement = announcement


class Behind(ShoalError):  # noqa: N818
    """The run is further than our log, by the word of a worker: it was at `version`."""

    def __init__(self, run: str, version: int, ours: int) -> None:
        super().__init__(
            f"workers of {run} are at version {version:,}, our log ends at {ours:,}: "
            "it has lost its end, which peers may still have"
        )
        self.version = version


class Server:
    """Leads one run from where it is to its end, or until somebody else has to."""

    def __init__(
        self,
        spec: RunSpec,
        leader: Leader,
        directory: RunDirectory,
        log: UpdateLog,
        recovered: Recovered,
        address: Address,
        *,
        priority: float = 1.0,
        on_event: Callable[[str], None] = lambda line: None,
        on_update: Callable[[Progress], None] = lambda progress: None,
        on_ready: Callable[[], None] = lambda: None,
        on_metrics: Callable[[Mapping[str, Any]], None] = lambda line: None,
    ) -> None:
        """`recovered` is where the run is, as `directory` and `log` have it; both stay open.

        `priority`: among the runs of workers that serve several, see `messages.Here`.
        `on_event` gets a line for people, `on_update` the progress after each update, `on_metrics`
        each line of `metrics.jsonl`; `on_ready` is called when workers can join. Needs a running
        event loop.
        """
        self.spec = spec
        self.progress = dataclasses.replace(recovered.progress)
        self._recovered = recovered
        self._leader = leader
        self._directory = directory
        self._on_ready = on_ready
        self._priority = priority
        self._versions = recovered.versions
        self._secret = directory.read_secret()
        self._recorder = Recorder(spec, directory, log, self._result_kept, self._frozen, self._fail)
        trust = Trust(spec.pool.audit_share, random.Random(secrets.randbits(256)))
        remembering.take_up(trust, remembering.read(log))
        self._remember_at = 0.0
        held = recovered.versions.current.amended
        self._pool = Pool(
            amendments.in_force(spec, held),
            recovered.version,
            now(),
            episodes=self._versions.current.episodes,
            steps=self._versions.current.steps,
            first_task=first_task(leader.epoch),
            unjudged=recovered.unjudged,
            elapsed=recovered.seconds,
            used=recovered.used,
            standing=recovered.standing,
            trust=trust,
            layout=amendments.layout(spec, held),
        )
        self._tallies = Tallies()
        self._admission = Admission.of(directory.path, leader.run)
        self._peers = Peers(leader, self._admission, self._make_room)
        self._lines = Lines(on_event, now)
        self._say = self._lines.say
        self._tasks = Tasks(self._fail)
        self._updating: asyncio.Task[None] | None = None
        self._over = asyncio.Event()
        self._end: EndRun | None = None
        self._pause: str | None = None
        self._failure: BaseException | None = None
        self._stop_asked = False
        self._hearing: messages.Result | None = None
        self._lost_at = 0.0
        self._connected = asyncio.Event()
        self._overwritten = False
        self._proofs = Allowance(PROOFS_PER_SECOND, PROOFS_AT_ONCE)
        self._kept = asyncio.Event()
        self._answering: asyncio.TimerHandle | None = None
        self._again_at = 0.0
        self._contact = Contact(address, self._say)
        session = new_session()
        self._link = Link(
            address,
            client_id=client_id(leader.identity.worker, session),
            on_message=self._on_message,
            name=leader.identity.worker,
            on_connected=self._on_connected,
            on_disconnected=self._on_disconnected,
            on_retry=self._contact.failed,
            will=Will(
                topics.beat(leader.run),
                beat_payload(leader, recovered.version, self._versions.digest, "lost"),
            ),
            subscriptions=topics.coordinator_filters(leader.run),
        )
        self._trial = Trial(self._link, leader, session, self._beat)
        self._voice = Voice(self._link, leader, spec, self._secret)
        self._serving = Serving(
            self._link,
            log,
            leader,
            lambda: self._versions.current,
            directory.snapshots,
            snapshot.state_bytes(replay.arithmetic(spec)),
            spec.policy.initial_digest,
        )

        self._reception = Reception(
            spec,
            leader,
            self._secret,
            self._peers,
            self._versions,
            first_task(leader.epoch),
            self._pool.sessions,
            self._voice,
            self._serving,
            decide=self._decide,
            on_result=self._decide_result,
            is_behind=self._is_behind,
            say=self._lines.say_of_session,
            over=self._over,
            tallies=self._tallies,
        )

        self._amending = Amending(spec, directory.wanted_path, self._say)
        self._maker = Maker(
            spec,
            leader,
            recovered,
            self._pool.sessions,
            self._peers,
            self._recorder,
            self._voice,
            self._serving,
            self._link.wire,
            self._amending,
            self.progress,
            decide=self._decide,
            on_update=on_update,
            say=self._say,
            over=self._over,
            on_metrics=on_metrics,
            tallies=self._tallies,
        )
        self._watch = Watch(
            self._link,
            self._reception.turns,
            self._pool.sessions,
            self._peers,
            self._voice,
            self.progress,
            self._decide,
            self._say,
        )

    async def run(self) -> Outcome:
        """Lead the run until it ends or is paused.

        Raises `ShoalError` where it can't go on: `SteppedAside`, `Behind`, or what it was that
        failed; workers wait then.
        """
        self._recorder.begin(self._versions.current)
        self._recorder.policy(self._versions.get(self._versions.current.version))
        for message, arrived in self._recovered.kept:
            self._decide_result(message, arrived)
        spare_the_collector()
        for service in (
            self._link.run(),
            self._try_broker(),
            self._reception.greet_for_ever(),
            self._serving.run(),
            self._tick_for_ever(),
            self._watch.run(),
            self._beat_for_ever(),
            asyncio.to_thread(noise.warm_up, self.spec.strategy.noise),
        ):
            self._tasks.start(service)
        try:
            await self._over.wait()
            return await self._finish()
        finally:
            if self._answering is not None:
                self._answering.cancel()
            await self._tasks.cancel()
            await self._recorder.close()

    def stop(self, reason: str) -> None:
        """End the run now, orderly; `run` returns soon after."""
        self._stop_asked = True
        self._decide(StopAsked(reason))

    def pause(self, reason: str) -> None:
        """Stop leading: workers keep what they have, and wait for whoever goes on with the run;
        `run` returns soon after."""
        if self._end is None:
            self._pause = reason
        self._over.set()

    def heed(self, order: Order | Paused | Resumed) -> None:
        """Do what a person orders. What would end another process that leads the run is not for
        us."""
        match order:
            case Stop():
                if order.process == os.getpid():
                    self.stop("stopped by the host (shoal stop)")
            case Pause():
                if order.process == os.getpid():
                    self.pause("paused by the host (shoal stop --pause)")
            case _:
                self._decide(order)
                self._beat()

    def rely_on(self, public_key: bytes) -> None:
        """The key is of a worker of the host's own: it is let in, whoever else may come, and its
        word holds against all others'."""
        self._admission.own.add(fingerprint(public_key))
        if worker_id(public_key) not in self._pool.trust.trusted:
            self._decide(Rely(worker_id(public_key)))

    @property
    def seconds(self) -> float:
        """For which the run has been led, by this host and before."""
        return self._maker.seconds

    def overview(self) -> Overview:
        """How the run stands at this moment."""
        self._maker.count_wire()
        return overview.look(
            self._pool.spec,
            self._leader,
            self._pool,
            self._peers,
            self.progress,
            self._tallies,
            self._run_state,
            self.seconds,
            now(),
        )

    # Failures and timers.

    def _fail(self, failure: BaseException) -> None:
        """The run can't go on; the first reason is the one to tell."""
        if self._failure is None:
            self._failure = failure
        self._over.set()

    async def _tick_for_ever(self) -> None:
        last = now()
        while True:
            await asyncio.sleep(TICK_SECONDS)
            moment = now()
            late = moment - last - TICK_SECONDS
            if late > STALL_SECONDS:
                self._say(f"this machine slept, or the host stood still, for {late:.0f} s")
                if self._connected.is_set():
                    self._decide(Hearing(last))
            self._watch.late = max(self._watch.late, late)
            last = moment
            self._decide(Tick())

    async def _beat_for_ever(self) -> None:
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            self._beat()
            if self._overwritten:
                self._announce()
            for peer, reason in self._peers.dismissed():
                self._voice.send_away(peer, reason)
                self._decide(Left(peer.id, reason))
            self._serving.forget_old()
            self._heed_orders()
            self._amending.look(self._versions.current.amended)
            if self.spec.pool.audit_share and now() >= self._remember_at:
                self._remember()
            reached = self._connected.is_set() or self._lost_at
            self._lines.look(self._pool.quiet_because() if reached else "")

    async def _try_broker(self) -> None:
        """See that the broker is there, and lets us do what we must."""
        await self._contact.wait()
        await self._connected.wait()
        await self._trial.run()

    def _heed_orders(self) -> None:
        """Do what a person left word of in the run directory."""
        try:
            for order in orders.take(self._directory.orders_path):
                self.heed(order)
        except ShoalError as error:
            self._say(str(error))

    def _remember(self) -> None:
        """Keep what is known of workers."""
        self._remember_at = now() + REMEMBER_SECONDS
        self._recorder.note(update_log.TRUST, remembering.written(self._pool.trust))

    # What comes in.

    def _on_connected(self, first: bool) -> None:
        self._announce()
        self._beat()
        self._voice.here(self._run_state, self._priority)  # workers that serve all runs wait for it
        self._contact.made(first)
        self._connected.set()
        if not first:
            self._decide(Hearing(self._lost_at))
        self._directory.announced()
        if first:
            self._on_ready()

    def _on_disconnected(self, reason: str) -> None:
        self._connected.clear()
        self._lost_at = now()
        self._decide(Deaf())
        self._say(f"broker lost: {reason}")

    def _on_message(self, topic: str, payload: bytes) -> None:
        """Anything from the broker: hostile until proved otherwise."""
        if self._trial.hear(topic, payload):
            return
        parsed = topics.parse(topic)
        if parsed is None or (self._over.is_set() and parsed.kind != "epoch"):
            return
        try:
            if parsed.kind == "epoch":
                self._hear_epoch(payload)
            elif parsed.kind == "who":
                self._hear_who(payload)
            elif parsed.run == self._leader.run and parsed.worker and parsed.session:
                id = SessionId(parsed.worker, parsed.session)
                self._reception.hear(parsed.kind, id, payload)
        except WireError as error:
            _LOGGER.debug("ignored a message on %s: %s", topic, error)

    def _hear_epoch(self, payload: bytes) -> None:
        """What newcomers will hear: ours, that of who leads instead of us, or what has to go."""
        self._overwritten = not self._voice.announced(payload)
        if not self._overwritten:
            self._kept.set()
        elif not self._over.is_set() and self._proofs.take(1.0, now()):
            leader = self._leader
            heard = read_epoch(payload, leader.run, leader.authority)
            theirs = precedence(heard.epoch.number, heard.epoch.rank)
            if theirs > precedence(leader.epoch, leader.rank):
                self._fail(SteppedAside(heard))

    def _hear_who(self, payload: bytes) -> None:
        if self._answering is None and isinstance(open_plain(payload), messages.Who):
            delay = random.uniform(0.0, HERE_WITHIN)
            self._answering = asyncio.get_running_loop().call_later(delay, self._say_here)

    def _say_here(self) -> None:
        self._answering = None
        self._voice.here(self._run_state, self._priority)
        if now() >= self._again_at:
            self._again_at = now() + EPOCH_APART
            self._voice.epoch_again()

    def _make_room(self) -> None:
        """Somebody comes, and there is no place left: who has done nothing yet gives way."""
        id = least_missed(self._pool.sessions)
        if id is not None:
            self._decide(Left(id, "its place was needed"))

    def _is_behind(self, version: int) -> bool:
        """Whether a worker at that version proves that we can't lead; then we stop."""
        ours = self._versions.current.version
        if version <= ours or self._recovered.gathered:
            return False
        self._fail(Behind(self._leader.run, version, ours))
        return True

    def _result_kept(self, results: tuple[Named, ...]) -> None:
        self._watch.unkept -= len(results)
        self._decide(Kept(results))

    def _frozen(self, frozen: Frozen) -> None:
        self._serving.on_disk(frozen)

    # What is decided.

    def _decide(self, event: Event) -> None:
        """Let the pool decide, and do it. Whatever goes wrong there ends the run."""
        try:
            for command in self._pool.handle(event, now()):
                self._obey(command)
        except Exception as error:
            self._fail(error)

    def _decide_result(self, message: messages.Result, arrived: Arrived) -> None:
        self._hearing = message
        self._decide(arrived)
        self._hearing = None

    def _obey(self, command: Command) -> None:
        match command:
            case SendTask():
                peer = self._peers.get(command.session)
                if peer is not None:
                    self._voice.task(peer, command, self._versions.get(command.version).digest)
            case SendAcknowledge():
                if command.outcome != "accepted":  # those are counted as they are kept
                    self._tallies.outcomes[command.outcome] += len(command.results)
                peer = self._peers.get(command.session)
                if peer is not None:
                    self._voice.acknowledge(peer, command)
            case KeepResult():
                assert self._hearing is not None
                self._watch.unkept += 1
                self._tallies.outcomes["accepted"] += 1
                self._recorder.result(command, self._hearing)
            case CloseBatch():
                self._updating = self._tasks.start(self._maker.make(command))
            case CentreJudged():
                self._maker.judged(command)
            case EndRun():
                self._end = command
                self._over.set()
            case Happened():
                self._tell(command)
            case Sentenced():
                self._remember()

    def _tell(self, happened: Happened) -> None:
        self.progress.workers = self._pool.workers
        id = happened.session
        if id is None:
            self._say(happened.what)
            return
        peer = self._peers.get(id)
        if id not in self._pool.sessions:
            self._peers.leave(id)
            self._serving.leave(id)
        name = f" ({peer.label})" if peer is not None else ""
        self._lines.say_of_session(f"{id}{name}: {happened.what}")

    # Announcements, and the end.

    @property
    def _run_state(self) -> RunState:
        if self._end is None:
            return "running" if self._pause is None else "paused"
        return "stopped" if self._stop_asked and not self._end.reached else "finished"

    def _announce(self) -> None:
        """Tell everybody, newcomers included, who leads what and how it stands."""
        self._kept.clear()
        if self._end is None:
            version = self._versions.get(self._versions.current.version)
            reason = self._pause or ""
        else:
            version, reason = self._versions.get(self._end.version), self._end.reason
        self._overwritten = not self._voice.epoch(
            version.point.version,
            version.digest,
            self._run_state,
            reason,
            self._maker.told,
        )

    def _beat(self) -> None:
        phase: Phase = "updating" if self._pool.updating else "open"
        if self._end is not None:
            phase = "finished"
        elif self._pause is not None:
            phase = "lost"
        elif self._pool.paused:
            phase = "paused"
        self._voice.beat(self._versions.current.version, self._versions.digest, phase)

    async def _finish(self) -> Outcome:
        """Keep and announce how the run ended, or that it waits."""
        if self._updating is not None:
            await asyncio.wait((self._updating,))
        await self._keep_the_end()
        if self._failure is not None:
            await self._give_way(self._failure)
            raise self._failure
        await self._say_goodbye()
        self._maker.count_wire()
        current = self._versions.current.version
        end = self._end or EndRun(current, False, self._pause or "")
        return Outcome(
            state=self._run_state,
            reached=end.reached,
            reason=end.reason,
            version=end.version,
            updates=current,
            centre=self._versions.judged(end.version),
            params_hash=self._versions.get(end.version).digest.hex(),
            progress=self.progress,
        )

    async def _keep_the_end(self) -> None:
        """Write what is left to write, as far as the disk takes it."""
        if self._failure is None:
            returned = self._end.version if self._end else self._versions.current.version
            self._recorder.policy(self._versions.get(returned))
            self._recorder.note(update_log.SECONDS, self._maker.seconds)
            self._recorder.note(update_log.STATE, self._run_state)
            if self.spec.pool.audit_share:
                self._remember()
            if self._end is not None and self._run_state == "finished":
                self._recorder.note(update_log.ENDED, self._end.reason)
            await self._recorder.settle()

    async def _give_way(self, failure: BaseException) -> None:
        """We can't go on: let the workers wait, with the reason, unless somebody leads them."""
        if isinstance(failure, SteppedAside | Behind):
            await self._link.close()
        elif self._connected.is_set():
            known = isinstance(failure, ShoalError)
            self._end, self._pause = None, str(failure) if known else "the coordinator failed"
            await self._say_goodbye()

    async def _say_goodbye(self) -> None:
        """Announce the end; a broker that is away just now gets some time to come back.

        It has the announcement once it tells us of it; to one that comes back, it is made again.
        """
        self._kept.clear()
        if self._connected.is_set():
            self._announce()
            self._beat()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GOODBYE_SECONDS):
                await self._kept.wait()
        await self._link.close()
