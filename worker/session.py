"""What one connection life of a worker decides: who to believe, what to evaluate, what to send.

Pure: events and the time in, commands out. `worker.daemon` is its shell.

The life of a session: announced (the epoch is known, evaluation starts) -> greeting (hello sent)
-> welcomed (tasks come) -> greeting again after every reconnection, new epoch or silence of the
coordinator -> finishing (no new tasks) -> over. What is being evaluated, and what was not answered
for, outlives coordinators and brokers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from protocol import topics
from protocol.envelope import Wrapping, open_plain, peek_signed, wrapping_of
from protocol.exit_codes import DONE, NO_ENVIRONMENT, SENT_AWAY, UNREACHABLE
from protocol.greeting import Introduction
from protocol.identity import worker_id
from protocol.messages import (
    Acknowledge,
    AnyMessage,
    Beat,
    CatchUp,
    Chunk,
    ChunkRequest,
    Credit,
    Holding,
    Latest,
    Manifest,
    Notice,
    Outcome,
    Refusal,
    ResultName,
    Serve,
    Status,
    Task,
    Update,
    Welcome,
    WorkerState,
)
from protocol.packing import WireError
from worker import news, replica, serving
from worker.commands import (
    Command,
    CompareClocks,
    Leave,
    StartEvaluation,
)
from worker.evaluation.jobs import Evaluation
from worker.handshake import Handshake, UnsuitableError, WrongLineError
from worker.limits import HEARD_PER_SECOND, Hearing, Limits
from worker.news import counted
from worker.outbox import Outbox
from worker.presence import Presence
from worker.replica import Replica
from worker.serving import Serving
from worker.trial import Trial
from worker.view import View
from worker.voice import Voice
from worker.willing import LEAVING, PAUSING, Willing
from worker.workload import Deed, Workload

if TYPE_CHECKING:
    from protocol.frozen import Frozen
    from worker.following import Step

STATUS_AFTER = 9.0
"""Seconds without a word of ours after which we say that we are here, give or take one."""
SLOWED_STATUS_AFTER = 18.0
"""The same while the coordinator asks us to slow down; after 35 s it would think us gone."""
FORGOTTEN_AFTER = 3
"""Times that a result was sent without an answer, after which we think ourselves forgotten."""

WITHHELD = "it keeps the reason to itself"
EPOCH_WITHIN = 2.0
"""Seconds for the retained epoch to come; then we ask: nodes of some clusters retain it alone."""
ASK_AGAIN = 10.0


@dataclass(frozen=True, slots=True)
class Settings:
    """What the volunteer chose: tasks held at once, label, and what runs the evaluations; these two
    are empty where it keeps them to itself."""

    credit: int
    name: str
    device: str
    checked: bool
    """whether the join line named the key that must lead the run"""
    upload_limit: float = 0.0
    """bytes per second that peers get at most; 0: none"""
    most_tasks: int | None = None
    """tasks that are evaluated at most"""
    elsewhere: Callable[[], int] = lambda: 0
    """those of them that the worker has evaluated, or holds, in other runs"""
    turns: float = math.inf
    """tasks that begin by themselves, further ones when `begin` is called"""
    limits: Limits = field(default_factory=Limits)


class Session:
    """One session of a worker in one run, from the first connection to its end."""

    def __init__(self, handshake: Handshake, settings: Settings, random: Random) -> None:
        self.handshake = handshake
        self.settings = settings
        self.replica: Replica | None = None
        self.workload: Workload | None = None
        self.serving = Serving(settings.upload_limit, random)
        self._presence = Presence(random)
        self.voice = Voice(handshake, self._presence)
        self.over = False
        self._hearing = Hearing()
        self._willing = Willing(settings.credit, settings.most_tasks)
        self._trial = Trial(handshake)
        self._random = random
        self._introduction: Introduction | None = None
        self._caught_up = False
        self._credit_told = 0
        self._credits = 0
        self._hello_credit = 0
        self._ask_at = 0.0
        self._compared = False
        """whether the volunteer was told of the host's clock"""

    # Events of the connection.

    def connected(self, now: float) -> list[Command]:
        """Subscriptions are in place: the epoch will come, and we may speak."""
        self._presence.connect(now)
        self._ask_at = now + EPOCH_WITHIN
        return self._pump(now)

    def disconnected(self, now: float) -> list[Command]:
        """The broker is gone; work goes on and results are kept."""
        self._presence.disconnect()
        self._lose_session(now)
        return self._pump(now)

    def message(self, topic: str, payload: bytes, now: float) -> list[Command]:
        """Anything from the broker: hostile until proved otherwise."""
        parsed = topics.parse(topic)
        if parsed is None or parsed.run != self.handshake.run or self.over:
            return []
        if parsed.kind == "snap":
            # Anybody may write there: what was not asked for keeps nothing else from being heard.
            server = parsed.server or ""
            taken = self._is_asked(server) and self._hearing.takes_of(server, now)
            if not taken:
                return []
        elif parsed.kind != "in" and not self._takes(parsed.kind, now):
            return self.voice.take()
        try:
            if parsed.kind == "epoch":
                self._hear_epoch(payload, now)
            elif parsed.kind == "beat":
                self._hear_beat(payload, now)
            elif parsed.kind == "update":
                self._hear_broadcast(payload, now)
            elif parsed.kind == "in":
                self._hear_inbox(payload, now)
            elif parsed.kind == "snap":
                self._hear_chunk(payload, now)
            elif parsed.kind == "ask" and parsed.joiner is not None:
                self._hear_peer(parsed.joiner, payload, now)
        except WireError as error:
            self.voice.ignore(str(error), now)
        except UnsuitableError as error:
            self._tell_unable(str(error), now)
            self._leave(error.exit_code, str(error))
        except WrongLineError as error:
            self._leave(error.exit_code, str(error))
        return self._pump(now)

    def tick(self, now: float) -> list[Command]:
        """Time passed."""
        if self.replica is not None:
            self._do(self.replica.tick(now), now)
        self._do(self.serving.tick(now), now)
        if self._presence.gone(now):
            self._miss("the host is gone", now)
        if silence := self._presence.silence(now):
            self._miss(f"nothing was heard from the host for {silence:.0f} s", now)
        if self.handshake.led is None and self._presence.connected and now >= self._ask_at:
            self._ask_at = now + ASK_AGAIN
            self.voice.ask_who_leads()
        return self._pump(now)

    # Events of the slow work.

    def begun(
        self, ticket: int, step: Step | None, snapshot_bytes: int, now: float
    ) -> list[Command]:
        """Version 0 is made."""
        if self.replica is not None:
            self._do(self.replica.begun(ticket, step, snapshot_bytes, now), now)
        return self._pump(now)

    def advanced(self, ticket: int, step: Step, now: float) -> list[Command]:
        """The replica reached a version."""
        if self.replica is not None:
            self._do(self.replica.advanced(ticket, step, now), now)
        return self._pump(now)

    def failed(self, ticket: int, error: Exception, now: float) -> list[Command]:
        """The replica could not."""
        if self.replica is not None:
            self._do(self.replica.failed(ticket, error, now), now)
        return self._pump(now)

    def held(self, frozen: Frozen, now: float) -> list[Command]:
        """A snapshot is on disk, for peers."""
        self._do(self.serving.held(frozen, now), now)
        return self._pump(now)

    def not_held(self, reason: str, now: float) -> list[Command]:
        """The disk would not take it."""
        self.serving.not_held()
        self.voice.warn(reason)
        return self._pump(now)

    def can_evaluate(
        self, speed: float, numeric_class: bytes, now: float, lanes: int = 0
    ) -> list[Command]:
        """Evaluation processes are ready, or more of them than before.

        `speed` is that of all, in environment steps per second; `lanes` as in a hello, of all that
        are there or to come. More speed needs no hello of its own: the coordinator measures it.
        """
        known = self._introduction
        self._introduction = Introduction(
            self.settings.name, self.settings.device, speed, numeric_class, lanes
        )
        if known is None or known.numeric_class != numeric_class:
            self._presence.greet(now)
        return self._pump(now)

    def cannot_evaluate(self, reason: str, now: float) -> list[Command]:
        """This machine can't run the environment."""
        self._tell_unable(reason, now)
        self._leave(NO_ENVIRONMENT, reason)
        return self._pump(now)

    def evaluated(self, task: int, evaluation: Evaluation, now: float) -> list[Command]:
        """Returns of a task are here: all of them, or those of a part of it."""
        if self.workload is not None:
            self._do(self.workload.evaluated(task, evaluation, now), now)
        return self._pump(now)

    @property
    def ready(self) -> int:
        """Tasks that could be evaluated, whose turn has not come."""
        return self.workload.ready if self.workload is not None else 0

    def begin(self, now: float) -> list[Command]:
        """It is the turn of one task more."""
        if self.workload is not None:
            self._do(self.workload.begin(now), now)
        return self._pump(now)

    def abandoned(self, task: int, now: float) -> list[Command]:
        """Nothing comes any more of a task that was to be abandoned."""
        if self.workload is not None:
            self._do(self.workload.abandoned(task, now), now)
        return self._pump(now)

    def evaluation_failed(self, task: int, reason: str, now: float) -> list[Command]:
        """A task, or the rest of it, came to nothing through this machine's fault."""
        if self.workload is not None:
            self._do(self.workload.failed(task, reason, now), now)
        return self._pump(now)

    # Events of the volunteer.

    def pause(self, why: str, now: float) -> list[Command]:
        """Take no new tasks as long as that holds, and stay; empty: take them again. What runs is
        finished, what only waits goes to others."""
        if self.over or why == self._willing.paused:
            return []
        began, over = bool(why and not self._willing.paused), not why
        self._willing.paused = why
        if began:
            self._take_no_more(PAUSING, now)
            self.voice.say(why)
        elif over:
            self.voice.say("goes on: takes tasks again")
        return self._pump(now)

    def finish(self, now: float, why: str = "") -> list[Command]:
        """Take no new tasks, finish those that run, and leave once they are answered for.

        `why`: where it is not the volunteer at the keyboard who wants it.
        """
        if self._willing.leaving.finishing or self.over:
            return self._pump(now)
        self._willing.leaving.finish(why)
        self._take_no_more(LEAVING, now)
        if todo := self._todo:
            self.voice.warn(todo)
        return self._pump(now)

    def _take_no_more(self, why: str, now: float) -> None:
        # First: else what is handed back would come again at once.
        self._tell_credit(now)
        if self.workload is not None:
            self._do(self.workload.hand_back(self.workload.leases.waiting, why, now), now)

    def hand_back(self, now: float) -> list[Command]:
        """Leave at once: what is finished of the tasks that we hold is sent, the rest goes to
        others."""
        if self.over or self._willing.leaving.handing_back:
            return []
        held = self.workload.leases.held if self.workload is not None else []
        self._willing.leaving.hand_back(len(held), now)
        self._tell_credit(now)
        if self.workload is not None and held:
            self._do(self.workload.hand_back(held, LEAVING, now), now)
        else:
            self._leave(DONE, "left")
        return self._pump(now)

    # What is seen.

    @property
    def settled(self) -> bool:
        """Whether the coordinator has taken us, and has heard all that we tried."""
        return self._presence.welcomed and not self._trial.unheard

    def silence(self, now: float) -> float:
        """Seconds without a beat of whoever leads, where that is too long; else 0."""
        return self._presence.silence(now)

    @property
    def starting(self) -> bool:
        """Whether evaluation has still to begin for the first time."""
        return self._introduction is None

    def view(self, now: float, broker: float = 0.0) -> View:
        """What the volunteer may want to know; `broker`: after how many seconds it answers."""
        following, work = self.replica, self.workload
        next_in = work.rhythm.next_in(now) if work is not None else None
        idle = news.idle_because(
            self.handshake.run,
            self.handshake.epoch,
            self._presence,
            following,
            running=self._running,
            queued=self.ready,
            ready=not self.starting,
            finishing=self._willing.leaving.finishing,
            paused=self._willing.paused,
            slowed=self._presence.slowed(now),
            leased=next_in is not None,
            broker=broker,
        )
        if following is None or work is None:
            return View(idle_because=idle, paused=self._willing.paused, leaving=self._todo)
        return View(
            version=following.version,
            running=self._running,
            waiting=len(work.leases.waiting),
            done=work.done,
            episodes=work.episodes,
            steps=work.steps,
            accepted=work.outcomes["accepted"],
            late=work.outcomes["late"],
            duplicate=work.outcomes["duplicate"],
            refused=work.outcomes["refused"],
            unanswered=self._unanswered,
            counted=work.counting.updates,
            share=work.counting.share,
            given=self.serving.given,
            idle_because=idle,
            paused=self._willing.paused,
            leaving=self._todo,
            starting=self.starting,
            next_in=next_in if idle == news.fully_leased(following.version) else None,
            seconds_left=work.seconds_left,
        )

    @property
    def _todo(self) -> str:
        """What is still to be done before we leave, in words; empty while we stay."""
        if not self._willing.leaving.finishing:
            return ""
        left = self.workload.seconds_left if self.workload is not None else None
        return news.leaving(self._running, self._unanswered, left, self._willing.leaving.why)

    @property
    def _running(self) -> int:
        """Tasks that are being evaluated."""
        return len(self.workload.leases.running) if self.workload is not None else 0

    @property
    def _unanswered(self) -> int:
        """Results that the coordinator has not answered for."""
        return len(self.workload.outbox) if self.workload is not None else 0

    @property
    def _done(self) -> int:
        """Tasks that are evaluated."""
        return self.workload.done if self.workload is not None else 0

    @property
    def _done_anywhere(self) -> int:
        """The same and what other runs of this worker had of its tasks, where they are counted."""
        return self._done + self.settings.elsewhere()

    @property
    def _held(self) -> int:
        """Tasks that we hold."""
        return len(self.workload.leases) if self.workload is not None else 0

    # Who speaks.

    def _hear_epoch(self, payload: bytes, now: float) -> None:
        known = self.handshake.led
        if not self.handshake.hear_epoch(payload):
            return
        led, spec = self.handshake.led, self.handshake.spec
        assert led is not None
        assert spec is not None
        epoch = led.epoch
        was_absent = bool(self._presence.absent)
        back = self._presence.show(now)
        if epoch.state in ("finished", "stopped"):
            why = f": {epoch.reason}" if epoch.reason else ""
            self._leave(DONE, f"the run {epoch.run} is {epoch.state}{why}")
            return
        if known is None:
            if misfit := self.settings.limits.misfit(spec):
                raise UnsuitableError(misfit)
            who, checked = self.handshake.leadership(), self.settings.checked
            self.voice.say(news.introduced(epoch.run, spec, who, checked))
            self.voice.commands.append(StartEvaluation(spec))
            initial = bytes.fromhex(spec.policy.initial_digest)
            self.replica = Replica(spec.versions_kept, self._random, initial)
            most, turns = self.settings.limits.task_seconds, self.settings.turns
            self.workload = Workload(spec, self.replica, self._random, most, turns)
            self._do(self.replica.tick(now), now)
        leadership = self.handshake.leadership()
        self.voice.commands += news.changed(known, led, leadership, self._unanswered)
        if known is None or led.precedence != known.precedence:
            self._lose_session(now)
            self._presence.begin_anew(now)
        elif epoch.state == "running":
            self._see_back(was_absent, back, now)
        if self.replica is not None:
            self.replica.led(epoch.number)
            self._do(self.replica.known(epoch.version, epoch.digest, now), now)

    def _hear_beat(self, payload: bytes, now: float) -> None:
        beat = open_plain(payload)
        if not isinstance(beat, Beat):
            raise WireError("not a beat")
        presence, epoch = self._presence, self.handshake.epoch
        if epoch is not None and beat.epoch != epoch.number:
            raise WireError(f"a beat of epoch {beat.epoch}, {epoch.number} is led")
        if beat.phase == "lost":
            presence.doubt(now)
            return
        presence.phase = beat.phase
        was_absent = bool(presence.absent)
        back = presence.beat(now)
        if self.replica is not None:
            self._do(self.replica.hinted(beat.version, now), now)
        self._see_back(was_absent, back, now)

    def _see_back(self, was_absent: bool, back: bool, now: float) -> None:
        """Who led before gives a sign of life: where it was missed it may lack our session."""
        if was_absent:
            self.voice.warn("the host is back")
        if back:
            self._presence.greet_unproved(now)

    def _takes(self, kind: str, now: float) -> bool:
        """Whether a message that nothing proves yet is looked at."""
        taken = self._hearing.takes(kind, now)
        if not taken:
            self.voice.ignore(f"more than {HEARD_PER_SECOND:,.0f} a second come", now)
        return taken

    def _hear_inbox(self, payload: bytes, now: float) -> None:
        if wrapping_of(payload) is Wrapping.SIGNED:
            if self._takes("in", now):
                self._hear_signed(payload, now)
            return
        # Whatever else comes: that a MAC is right or wrong costs next to nothing to see.
        message = self.handshake.unseal(payload)
        if isinstance(message, Task):
            self._hear_task(message, now)
        elif isinstance(message, Acknowledge):
            self._answered(message.results, message.outcome, message.reason, now)
        elif isinstance(message, Notice):
            self._hear_notice(message, now)
        elif isinstance(message, Serve):
            state = self.replica.state if self.replica is not None else None
            self._do(self.serving.wish(message.version, state), now)
        else:
            raise WireError(f"a sealed {type(message).__name__.lower()} is not for workers")

    def _hear_broadcast(self, payload: bytes, now: float) -> None:
        """An update for all: of the epoch that is led. Earlier ones come to who asks for them."""
        if not payload:
            return  # a leader tries whether its broker lets it
        claimed, epoch = peek_signed(payload), self.handshake.epoch
        if not isinstance(claimed, Update):
            raise WireError(f"a signed {type(claimed).__name__.lower()} where updates are due")
        if epoch is not None and claimed.epoch != epoch.number:
            raise WireError(
                f"update {claimed.version} of epoch {claimed.epoch}, {epoch.number} is led"
            )
        self._hear_claimed(claimed, payload, now)

    def _hear_signed(self, payload: bytes, now: float) -> None:
        """A welcome, a manifest, or an update that we asked for."""
        self._hear_claimed(peek_signed(payload), payload, now)

    def _hear_claimed(self, claimed: AnyMessage, payload: bytes, now: float) -> None:
        """What a payload says, and who claims to say it; neither is proved yet."""
        if isinstance(claimed, Welcome):
            self._hear_welcome(self.handshake.hear_welcome(payload), now)
            return
        following = self.replica
        if following is None:
            raise WireError("signed before it is known who leads")
        if isinstance(claimed, Update):
            if following.wants(claimed.version):
                update = self.handshake.hear_update(payload)
                self._do(following.update(update, payload, now), now)
        elif isinstance(claimed, Manifest):
            self.handshake.from_leader(payload, "manifest")
            self._do(following.manifest(claimed, now), now)
        else:
            raise WireError(f"a signed {type(claimed).__name__.lower()} is not due here")

    def _hear_chunk(self, payload: bytes, now: float) -> None:
        chunk = open_plain(payload)
        if not isinstance(chunk, Chunk):
            raise WireError("not a chunk")
        if self.replica is not None:
            self._do(self.replica.chunk(chunk, now), now)

    def _is_asked(self, server: str) -> bool:
        """Whether we asked for a snapshot there: a peer, or whoever leads."""
        if self.replica is None or self.handshake.led is None:
            return False
        leads = topics.peer(worker_id(self.handshake.led.leader), topics.LEADER_SESSION)
        return self.replica.is_served_by("" if server == leads else server)

    def _hear_peer(self, joiner: str, payload: bytes, now: float) -> None:
        """Anybody may ask, for anything, as often as they like."""
        request = open_plain(payload)
        if not isinstance(request, CatchUp | ChunkRequest | Latest):
            raise WireError("not a request that peers answer")
        if joiner != self.handshake.peer:
            self.serving.asked(joiner, request, now)

    def _hear_notice(self, notice: Notice, now: float) -> None:
        if notice.code == "leave":
            self._leave(SENT_AWAY, f"the host sends us away: {notice.text}")
            return
        if notice.code == "slow-down":
            if self._presence.slow_down(notice.seconds, now):
                why = f": {notice.text}" if notice.text else ""
                line = f"slowed down by the host for {notice.seconds:.0f} s{why}"
                self.voice.warn(line)
            return
        if notice.text:
            self.voice.warn(f"the host says: {notice.text}")
        if notice.code == "hello-again":
            self._presence.greet(now)

    # Hello and its answer.

    def _say_hello(self, now: float) -> None:
        introduction, following, work = self._introduction, self.replica, self.workload
        if introduction is None or following is None or work is None:
            return
        if self._willing.leaving.finishing and not self._running and not self._unanswered:
            return
        if self._presence.should_greet(now):
            self._hello_credit = self._willing.room(self._done_anywhere) if self._in_step else 0
            payload = self.handshake.hello(
                introduction, self._hello_credit, following.version, work.held
            )
            self.voice.hello(payload, self._trial.topics, now)
            self._presence.said_hello(now)
            if not self._presence.welcomed and (doubt := self._trial.said_hello()):
                self.voice.warn(doubt)

    def _tell_unable(self, reason: str, now: float) -> None:
        """Let the host count who can't take part, and why; a volunteer without a label keeps the
        words to itself."""
        chosen = self.settings
        if self._presence.connected and not self.over:
            said = reason if chosen.name else WITHHELD
            who = Introduction(chosen.name, chosen.device)
            self.voice.hello(self.handshake.hello(who, 0, 0, unable=said), [], now)

    def _hear_welcome(self, welcome: Welcome, now: float) -> None:
        if welcome.refused:
            self._leave(SENT_AWAY, f"the host refuses this worker: {welcome.refused}")
            return
        again = self._trial.welcomed(welcome.heard)
        if self._trial.verdict:
            self._leave(UNREACHABLE, self._trial.verdict)
            return
        news = self._presence.welcome(now)
        if again:
            self._presence.greet(now)
        if news:
            self.voice.say(f"welcomed at version {welcome.version}")
            if welcome.clock and not self._compared:
                self._compared = True
                self.voice.commands.append(CompareClocks(welcome.clock))
        self._credit_told = self._hello_credit
        if self.workload is not None:
            self.workload.welcomed(now)
        if self.replica is not None:
            self._do(self.replica.welcomed(welcome.version, welcome.digest, now), now)
            self._caught_up = not self.replica.behind
        self._do(self.serving.holdings, now)

    @property
    def _in_step(self) -> bool:
        """Whether tasks could be worked on at once, as far as we know."""
        following = self.replica
        if following is None or following.behind:
            return False
        return following.latest_heard <= following.version

    def _lose_session(self, now: float) -> None:
        self._trial.lost()
        if self.replica is not None:
            self._do(self.replica.disconnected(now), now)

    def _miss(self, what: str, now: float) -> None:
        """The coordinator is not there: say so once, keep everything, wait."""
        epoch = self.handshake.epoch
        if epoch is not None and self._presence.miss(what):
            self._lose_session(now)
            if epoch.state == "paused":
                return  # as the host said
            kept = f"; {counted(self._unanswered, 'result')} kept" if self._unanswered else ""
            self.voice.warn(f"{what}{kept}; waiting for it")

    # Tasks.

    def _hear_task(self, task: Task, now: float) -> None:
        self._answered(task.acknowledged, "accepted", "", now)
        if why := self._willing.declines(self._done_anywhere, self._held):
            self.voice.request(Refusal(task.task, task.token, "handed-back", why), now)
        elif self.workload is not None:
            self._do(self.workload.take(task, now), now)

    def _answered(
        self, results: tuple[ResultName, ...], outcome: Outcome, reason: str, now: float
    ) -> None:
        if self.workload is not None:
            self._do(self.workload.answered(results, outcome, reason, now), now)

    def _void(self, now: float) -> None:
        """Nothing that was evaluated with wrong parameters may be sent."""
        self._caught_up = False
        if self.workload is not None:
            held, reason = self.workload.leases.held, "our parameters were not the run's"
            self._do(self.workload.give_up(held, "gone", reason, now), now)

    def _do(self, deeds: Sequence[Deed | serving.Deed], now: float) -> None:
        """What the parts want: partly ours to say, the rest is the daemon's to do."""
        for deed in deeds:
            match deed:
                case Refusal() | Holding():
                    self.voice.request(deed, now)
                case replica.Ask() if deed.server:
                    self.voice.ask(deed.server, deed.message)
                case replica.Ask():
                    if not self._presence.slowed(now):  # else it is asked again later
                        self.voice.request(deed.message, now)
                case serving.Answer():
                    self.voice.answer(deed.joiner, deed.message)
                case replica.Followed():
                    if self.workload is not None:
                        self.workload.followed(deed.update, now)
                    self._do(self.serving.followed(deed), now)
                case replica.Restored():
                    self._do(self.serving.restored(deed), now)
                case replica.Tell():
                    self.voice.warn(deed.text)
                case replica.GiveUp():
                    self._leave(SENT_AWAY, deed.reason)
                case replica.Dropped():
                    self._do(self.serving.dropped(), now)
                    self._void(now)
                case _:
                    self.voice.commands.append(deed)

    # What goes out.

    def _pump(self, now: float) -> list[Command]:
        """Say whatever is due, and hand over all commands so far."""
        if not self.over:
            self._say_hello(now)
            if self.workload is not None:
                self._do(self.workload.proceed(now), now)
            self._speak(now)
            self._leave_if_done(now)
        return self.voice.take()

    def _speak(self, now: float) -> None:
        """Results, credit, and a sign of life: what a welcomed session owes the coordinator."""
        if not self._presence.welcomed or self.replica is None or self.workload is None:
            return
        if not self.replica.behind:
            self._caught_up = True
        self._tell_credit(now)
        self._send_results(self.workload.outbox, now)
        quiet_for = SLOWED_STATUS_AFTER if self._presence.slowed(now) else STATUS_AFTER
        if now - self.voice.spoke > quiet_for + self._random.random():
            self.voice.status(Status(self._state_word(), self.replica.version), now)

    def _send_results(self, outbox: Outbox, now: float) -> None:
        slowed = self._presence.slowed(now)
        due = outbox.unsent if slowed else outbox.due(now)
        if due and not slowed and outbox.most_sent >= FORGOTTEN_AFTER:
            self.voice.say("our results are not answered: saying hello again")
            outbox.make_due(now)
            self._presence.greet(now)
            return
        for result in due:
            self.voice.result(result, now)
            outbox.sent(result.name, now)

    def _tell_credit(self, now: float) -> None:
        wanted = self._willing.room(self._done_anywhere) if self._caught_up else 0
        if wanted > self._credit_told and self._presence.slowed(now):
            return
        if self._presence.welcomed and wanted != self._credit_told and self.replica is not None:
            self._credit_told = wanted
            self._credits += 1
            self.voice.request(Credit(wanted, self.replica.version, self._credits), now)

    def _state_word(self) -> WorkerState:
        if self._running:
            return "busy"
        if self.replica is None or self.replica.behind:
            return "catching-up"
        return "paused" if self._willing.resting else "idle"

    # The end.

    def _leave_if_done(self, now: float) -> None:
        held = self.workload.leases.held if self.workload is not None else []
        words = self._willing.leaving.last_words(
            now,
            welcomed=self._presence.welcomed,
            held=len(held),
            unanswered=self._unanswered,
            done=self._done,
        )
        if not words:
            return
        if self.workload is not None:
            self._do(self.workload.give_up(held, "handed-back", LEAVING, now), now)
        self._leave(DONE, words)

    def _leave(self, code: int, text: str) -> None:
        if not self.over:
            self.over = True
            self.voice.bye()
            self.voice.commands.append(Leave(code, text))
