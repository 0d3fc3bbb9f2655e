"""What one connection life of a worker decides: who to believe, what to evaluate, what to send.

Pure: events and the time in, commands out. `worker.daemon` is its shell.

The life of a session: announced (the epoch is known, evaluation starts) -> greeting (hello sent)
-> welcomed (tasks come) -> greeting again after every reconnection, new epoch or silence of the
coordinator -> finishing (no new tasks) -> over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Literal

from protocol import normalizer, topics
from protocol.envelope import Wrapping, open_plain, peek_signed, wrapping_of
from protocol.messages import (
    Acknowledge,
    Beat,
    Chunk,
    Credit,
    Epoch,
    Manifest,
    Message,
    Notice,
    Refusal,
    Result,
    Status,
    Task,
    Update,
    Welcome,
    encode,
    pack_returns,
)
from protocol.packing import MAX_MESSAGE, WireError
from protocol.spec import RunSpec
from worker import replica
from worker.evaluation.jobs import Evaluation, EvaluationJob
from worker.handshake import Handshake, Introduction, UnsuitableError
from worker.leases import MOST_HELD, Lease, Leases, unfit
from worker.outbox import Outbox
from worker.replica import Replica
from worker.view import View

if TYPE_CHECKING:
    from worker.following import Point, Step

STATUS_AFTER = 9.0
"""Seconds without a word of ours after which we say that we are here, give or take one."""
BEAT_LATE = 10.0
"""Seconds without a beat (there should be one every 2 s) after which the coordinator is silent."""
HELLO_AFTER = 3.0
"""Seconds without a welcome after which we say hello again; doubled each time."""
LONGEST_HELLO = 30.0
HELLO_APART = 1.0
"""Seconds between two hellos at least, whatever the reason."""
HELLO_APART_UNPROVED = 10.0
"""The same where only a beat, which anybody may forge, is the reason."""
FORGOTTEN_AFTER = 3
"""Times that a result was sent without an answer, after which we think ourselves forgotten."""
WAIT_FOR_VERSION = 30.0
"""Seconds that a task may wait for its version."""
WAIT_FOR_ANSWERS = 5.0
"""Seconds that we wait for answers to our last results before we leave."""
MOST_FAILURES = 256
"""Failed directions that one result can name."""
COMPLAIN_EVERY = 30.0
"""Seconds between two lines about messages that were ignored."""

LEFT, NO_ENVIRONMENT, SENT_AWAY = 0, 4, 6
"""Exit codes."""


@dataclass(frozen=True, slots=True)
class Send:
    """Publish a payload."""

    topic: str
    payload: bytes
    qos: int


@dataclass(frozen=True, slots=True)
class StartEvaluation:
    """Start the evaluation processes; answered by `can_evaluate` or `cannot_evaluate`."""

    spec: RunSpec


@dataclass(frozen=True, slots=True, eq=False)
class Evaluate:
    """Evaluate a task; answered by `evaluated` or `evaluation_failed`."""

    task: int
    job: EvaluationJob
    point: Point


@dataclass(frozen=True, slots=True)
class Abandon:
    """Stop evaluating a task."""

    task: int


@dataclass(frozen=True, slots=True)
class Say:
    """A line for the volunteer; a warning is shown even to who wants quiet."""

    text: str
    warning: bool = False


@dataclass(frozen=True, slots=True)
class Leave:
    """End the process with this exit code, after what was sent has left."""

    code: int
    text: str


Command = (
    Send
    | StartEvaluation
    | Evaluate
    | Abandon
    | Say
    | Leave
    | replica.Begin
    | replica.Apply
    | replica.Restore
    | replica.Forget
)


@dataclass(frozen=True, slots=True)
class Settings:
    """What the volunteer chose: tasks held at once, label, and what runs the evaluations."""

    credit: int
    name: str
    device: str
    checked: bool
    """whether the join line named the key that must lead the run"""


class Session:
    """One session of a worker in one run, from the first connection to its end."""

    def __init__(self, handshake: Handshake, settings: Settings, random: Random) -> None:
        self.handshake = handshake
        self.settings = settings
        self.replica: Replica | None = None
        self.leases = Leases()
        self.outbox = Outbox(random)
        self.tasks_done = 0
        self.episodes = 0
        self.steps = 0
        self.outcomes: Counter[str] = Counter()
        self.ignored = 0
        self.over = False
        self._random = random
        self._introduction: Introduction | None = None
        self._connected = False
        self._welcomed = False
        self._caught_up = False
        self._finishing = False
        self._leave_by: float | None = None
        self._credit = settings.credit
        self._credit_told = 0
        self._hello_at: float | None = None
        self._hello_patience = HELLO_AFTER
        self._hello_credit = 0
        self._last_hello = float("-inf")
        self._spoke = 0.0
        self._beat_at = 0.0
        self._phase = ""
        self._absent = ""
        self._complained = float("-inf")
        self._commands: list[Command] = []

    # Events of the connection.

    def connected(self, now: float) -> list[Command]:
        """Subscriptions are in place: the epoch will come, and we may speak."""
        self._connected = True
        self._beat_at = now
        self._greet(now)
        return self._pump(now)

    def disconnected(self, now: float) -> list[Command]:
        """The broker is gone; work goes on and results are kept."""
        self._connected = False
        self._lose_session(now)
        return self._pump(now)

    def message(self, topic: str, payload: bytes, now: float) -> list[Command]:
        """Anything from the broker: hostile until proved otherwise."""
        parsed = topics.parse(topic)
        if parsed is None or parsed.run != self.handshake.run or self.over:
            return []
        try:
            if parsed.kind == "epoch":
                self._hear_epoch(payload, now)
            elif parsed.kind == "beat":
                self._hear_beat(payload, now)
            elif parsed.kind == "update":
                self._hear_signed(payload, now)
            elif parsed.kind == "in":
                self._hear_inbox(payload, now)
            elif parsed.kind == "snap":
                self._hear_chunk(payload, now)
        except WireError as error:
            self._ignore(str(error), now)
        except UnsuitableError as error:
            self._leave(error.exit_code, str(error))
        return self._pump(now)

    def tick(self, now: float) -> list[Command]:
        """Time passed."""
        if self.replica is not None:
            self._follow(self.replica.tick(now), now)
        self._check_beat(now)
        return self._pump(now)

    # Events of the slow work.

    def begun(self, ticket: int, step: Step, snapshot_bytes: int, now: float) -> list[Command]:
        """Version 0 is made."""
        if self.replica is not None:
            self._follow(self.replica.begun(ticket, step, snapshot_bytes, now), now)
        return self._pump(now)

    def advanced(self, ticket: int, step: Step, now: float) -> list[Command]:
        """The replica reached a version."""
        if self.replica is not None:
            self._follow(self.replica.advanced(ticket, step, now), now)
        return self._pump(now)

    def failed(self, ticket: int, error: Exception, now: float) -> list[Command]:
        """The replica could not."""
        if self.replica is not None:
            self._follow(self.replica.failed(ticket, error, now), now)
        return self._pump(now)

    def can_evaluate(self, speed: float, numeric_class: bytes, now: float) -> list[Command]:
        """The evaluation processes are ready; `speed` in environment steps per second."""
        self._introduction = Introduction(
            self.settings.name, self.settings.device, speed, numeric_class
        )
        self._commands.append(Say(f"evaluation is ready: {speed:,.0f} steps/s"))
        self._greet(now)
        return self._pump(now)

    def cannot_evaluate(self, reason: str, now: float) -> list[Command]:
        """This machine can't run the environment."""
        self._leave(NO_ENVIRONMENT, reason)
        return self._pump(now)

    def evaluated(self, task: int, evaluation: Evaluation, now: float) -> list[Command]:
        """A task's returns are here."""
        lease = self._end_lease(task, now)
        if lease is not None:
            self._answer(lease.task, evaluation, now)
        return self._pump(now)

    def evaluation_failed(self, task: int, reason: str, now: float) -> list[Command]:
        """A task came to nothing through this machine's fault."""
        lease = self._end_lease(task, now)
        if lease is not None:
            self._commands.append(Say(f"task {task} failed here: {reason}", warning=True))
            self._refuse(lease.task, "worker", reason, now)
        return self._pump(now)

    # Events of the volunteer.

    def finish(self, now: float) -> list[Command]:
        """Take no new tasks, finish those that run, and leave once they are answered for."""
        if not self._finishing and not self.over:
            self._finishing = True
            self._tell_credit(now)
            for lease in self.leases.waiting:
                self._hand_back(lease, now)
            running, unanswered = len(self.leases.running), len(self.outbox)
            if running:
                todo = f"finishing {counted(running, 'task')}"
            elif unanswered:
                todo = f"waiting for the answer to {counted(unanswered, 'result')}"
            else:
                return self._pump(now)
            self._commands.append(
                Say(f"{todo}; press Ctrl-C again to hand back and leave at once", warning=True)
            )
        return self._pump(now)

    def hand_back(self, now: float) -> list[Command]:
        """Leave at once: whatever we hold goes to others."""
        if self.over:
            return []
        self._finishing = True
        self._tell_credit(now)
        held = [*self.leases.running, *self.leases.waiting]
        for lease in held:
            self._hand_back(lease, now)
        self._leave(LEFT, f"handed {counted(len(held), 'task')} back and left" if held else "left")
        return self._pump(now)

    # What is seen.

    def view(self, now: float) -> View:
        """What the volunteer may want to know now."""
        following = self.replica
        return View(
            version=following.version if following is not None else 0,
            running=len(self.leases.running),
            waiting=len(self.leases.waiting),
            done=self.tasks_done,
            episodes=self.episodes,
            steps=self.steps,
            accepted=self.outcomes["accepted"],
            late=self.outcomes["late"],
            duplicate=self.outcomes["duplicate"],
            refused=self.outcomes["refused"],
            unanswered=len(self.outbox),
            idle_because=self._idle_because(now),
        )

    def _idle_because(self, now: float) -> str:
        """Why nothing is being evaluated; empty while something is."""
        epoch, following = self.handshake.epoch, self.replica
        share = following.snapshot_share if following is not None else None
        if self.leases.running:
            return ""
        if not self._connected:
            return "no connection to the broker"
        if epoch is None or following is None:
            return f"waiting for the coordinator of {self.handshake.run} to announce itself"
        if self._introduction is None:
            return "starting evaluation"
        if self._absent:
            return self._absent
        if not self._welcomed:
            return "said hello, waiting for the welcome"
        if share is not None:
            return f"fetching a snapshot, {share:.0%} is here"
        if following.behind:
            return f"catching up from version {following.version} to {following.latest_heard}"
        if epoch.state == "paused" or self._phase == "paused":
            return "the run is paused by its host"
        if self._finishing:
            return "waiting for answers to the last results"
        if self._phase == "updating":
            return "the update is being made"
        return "waiting for a task"

    # Who speaks.

    def _hear_epoch(self, payload: bytes, now: float) -> None:
        known = self.handshake.epoch
        if not self.handshake.hear_epoch(payload):
            return
        epoch, spec = self.handshake.epoch, self.handshake.spec
        assert epoch is not None
        assert spec is not None
        self._absent, self._beat_at = "", now
        if epoch.state in ("finished", "stopped"):
            why = f": {epoch.reason}" if epoch.reason else ""
            self._leave(LEFT, f"the run {epoch.run} is {epoch.state}{why}")
            return
        if known is None:
            self._introduce_run(epoch, spec)
            self._commands.append(StartEvaluation(spec))
            self.replica = Replica(spec.versions_kept, self._random)
            self._follow(self.replica.tick(now), now)
        elif epoch.state != known.state:
            self._commands.append(Say(f"the run is {epoch.state}"))
        if self.replica is not None and epoch.version > self.replica.latest_heard:
            self._follow(self.replica.hinted(epoch.version, now), now)
        if epoch.number != self.handshake.number:
            self._greet(now)

    def _introduce_run(self, epoch: Epoch, spec: RunSpec) -> None:
        checked = "NOT checked against a join line"
        if self.settings.checked:
            checked = "as the join line says"
        self._commands.append(
            Say(
                f"run {epoch.run}: {spec.environment.id}, {spec.policy.kind} policy with "
                f"{spec.size:,} parameters; led by {self.handshake.fingerprint} ({checked})"
            )
        )

    def _hear_beat(self, payload: bytes, now: float) -> None:
        beat = open_plain(payload)
        if not isinstance(beat, Beat):
            raise WireError("not a beat")
        self._phase = beat.phase
        if beat.phase == "lost":
            self._absence("the coordinator is gone", now)
            return
        self._beat_at = now
        was_absent, self._absent = self._absent, ""
        if was_absent:
            self._commands.append(Say("the coordinator is back", warning=True))
        if self.replica is not None:
            self._follow(self.replica.hinted(beat.version, now), now)
        if was_absent or (self._welcomed and beat.epoch > self.handshake.number):
            self._hello_by(max(now, self._last_hello + HELLO_APART_UNPROVED))

    def _hear_inbox(self, payload: bytes, now: float) -> None:
        if wrapping_of(payload) is Wrapping.SIGNED:
            self._hear_signed(payload, now)
            return
        message = self.handshake.unseal(payload)
        if isinstance(message, Task):
            self._hear_task(message, now)
        elif isinstance(message, Acknowledge):
            self._acknowledged(message.tasks, message.outcome, message.reason)
        elif isinstance(message, Notice):
            self._hear_notice(message, now)
        else:
            raise WireError(f"a sealed {type(message).__name__.lower()} is not for workers")

    def _hear_signed(self, payload: bytes, now: float) -> None:
        """An update, or in the inbox also a welcome or a manifest."""
        claimed = peek_signed(payload)
        if isinstance(claimed, Welcome):
            self._hear_welcome(self.handshake.hear_welcome(payload), now)
            return
        following = self.replica
        if following is None:
            raise WireError("signed before the coordinator's key is known")
        if isinstance(claimed, Update):
            if following.wants(claimed.version):
                self.handshake.from_host(payload, "update")
                self._follow(following.update(claimed, len(payload), now), now)
        elif isinstance(claimed, Manifest):
            self.handshake.from_host(payload, "manifest")
            self._follow(following.manifest(claimed, now), now)
        else:
            raise WireError(f"a signed {type(claimed).__name__.lower()} is not due here")

    def _hear_chunk(self, payload: bytes, now: float) -> None:
        chunk = open_plain(payload)
        if not isinstance(chunk, Chunk):
            raise WireError("not a chunk")
        if self.replica is not None:
            self._follow(self.replica.chunk(chunk, now), now)

    def _hear_notice(self, notice: Notice, now: float) -> None:
        if notice.code == "leave":
            self._leave(SENT_AWAY, f"the coordinator sends us away: {notice.text}")
            return
        if notice.text:
            self._commands.append(Say(f"the host says: {notice.text}", warning=True))
        if notice.code == "hello-again":
            self._greet(now)
        elif notice.code == "slow-down":
            self._credit = max(1, self._credit // 2)

    # Hello and its answer.

    def _greet(self, now: float) -> None:
        """Say hello as soon as that is possible: a session begins, or begins anew."""
        self._hello_patience = HELLO_AFTER
        self._hello_by(max(now, self._last_hello + HELLO_APART))

    def _hello_by(self, at: float) -> None:
        self._hello_at = at if self._hello_at is None else min(self._hello_at, at)

    def _say_hello(self, now: float) -> None:
        epoch = self.handshake.epoch
        ready = self._connected and epoch is not None and not self._finishing
        if self._hello_at is None or now < self._hello_at or not ready or self._absent:
            return
        if self._introduction is None:
            return
        self._hello_credit = self._credit if self._in_step else 0
        payload = self.handshake.hello(self._introduction, self._hello_credit)
        self._publish(topics.request, payload, now)
        self._last_hello = now
        self._hello_at = now + self._hello_patience * (0.75 + 0.5 * self._random.random())
        self._hello_patience = min(2.0 * self._hello_patience, LONGEST_HELLO)

    def _hear_welcome(self, welcome: Welcome, now: float) -> None:
        if welcome.refused:
            self._leave(SENT_AWAY, f"the coordinator refuses this worker: {welcome.refused}")
            return
        if not self._welcomed:
            self._commands.append(Say(f"welcomed at version {welcome.version}"))
        self._welcomed = True
        self._absent = ""
        self._beat_at = now
        self._hello_at = None
        self._credit_told = self._hello_credit
        for lease in self.leases.waiting:
            # The coordinator freed all leases of the session that this welcome replaces.
            self.leases.end(lease.task.task)
        self.outbox.make_due(now)
        if self.replica is not None:
            self._follow(self.replica.welcomed(welcome.version, welcome.digest, now), now)
            self._caught_up = not self.replica.behind

    @property
    def _in_step(self) -> bool:
        """Whether tasks could be worked on at once, as far as we know."""
        following = self.replica
        return following is not None and following.latest_heard <= following.version

    def _lose_session(self, now: float) -> None:
        self._welcomed = False
        if self.replica is not None:
            self._follow(self.replica.disconnected(now), now)

    def _absence(self, what: str, now: float) -> None:
        """The coordinator is not there: say so once, keep everything, wait."""
        if not self._absent and self._connected and self.handshake.epoch is not None:
            kept = f"; {counted(len(self.outbox), 'result')} kept" if len(self.outbox) else ""
            self._commands.append(Say(f"{what}{kept}; waiting for it", warning=True))
            self._absent = what
            self._lose_session(now)

    def _check_beat(self, now: float) -> None:
        silence = now - self._beat_at
        if self._connected and silence > BEAT_LATE:
            self._absence(f"the coordinator has been silent for {silence:.0f} s", now)

    # Tasks.

    def _hear_task(self, task: Task, now: float) -> None:
        self._acknowledged(task.acknowledged, "accepted")
        following, spec = self.replica, self.handshake.spec
        assert following is not None
        assert spec is not None
        if self._finishing:
            self._refuse(task, "handed-back", "leaving", now)
            return
        if len(self.leases) >= MOST_HELD:
            self._refuse(task, "handed-back", f"{MOST_HELD} tasks are held already", now)
            return
        if not self.leases.take(task, now):
            raise WireError(f"task {task.task} came twice")
        misfit = unfit(task, spec)
        if misfit:
            self.leases.end(task.task)
            self._commands.append(Say(f"refused task {task.task}: {misfit}", warning=True))
            self._refuse(task, "spec", misfit, now)
            return
        self._follow(following.known(task.version, task.digest, now), now)

    def _run_tasks(self, now: float) -> None:
        """Start what can be started, refuse what never can."""
        following, spec = self.replica, self.handshake.spec
        if following is None or spec is None or self.over:
            return
        for lease in self.leases.waiting:
            task = lease.task
            standing = following.standing(task.version, task.digest)
            if standing == "ready":
                self._run(lease, following)
            elif standing == "ahead" and now - lease.since < WAIT_FOR_VERSION:
                continue
            else:
                self.leases.end(task.task)
                self._refuse(task, "gone", self._why_gone(standing, task, following), now)

    def _run(self, lease: Lease, following: Replica) -> None:
        task, point = lease.task, following.points[lease.task.version]
        lease.running = True
        following.pin(task.version)
        job = EvaluationJob(
            kind=task.kind,
            version=task.version,
            first=task.first,
            count=task.count,
            episodes=task.episodes,
            sigma=point.sigma,
        )
        self._commands.append(Evaluate(task.task, job, point))

    @staticmethod
    def _why_gone(standing: str, task: Task, following: Replica) -> str:
        if standing == "ahead":
            waited = f"did not get from version {following.version} to {task.version}"
            return f"{waited} in {WAIT_FOR_VERSION:.0f} s"
        if standing == "differs":
            return f"our version {task.version} has other parameters"
        return f"version {task.version} is no longer kept, we are at {following.version}"

    def _answer(self, task: Task, evaluation: Evaluation, now: float) -> None:
        """Send a task's result, unless no message could hold it."""
        self.tasks_done += 1
        self.steps += int(evaluation.lengths.sum())
        self.episodes += evaluation.returns.size * (task.episodes if task.kind == "members" else 1)
        if len(evaluation.failed) > MOST_FAILURES:
            first = evaluation.failed[0][1]
            reason = f"{len(evaluation.failed)} of {task.count} directions fail, at first: {first}"
            self._refuse(task, "spec", reason, now)
            return
        returns, lengths = pack_returns(evaluation.returns, evaluation.lengths)
        observed = evaluation.observed
        result = Result(
            task=task.task,
            kind=task.kind,
            version=task.version,
            first=task.first,
            count=task.count,
            episodes=task.episodes,
            token=task.token,
            returns=returns,
            lengths=lengths,
            observed=b"" if observed is None else normalizer.to_bytes(observed),
            failed=tuple((direction, reason[:200]) for direction, reason in evaluation.failed),
        )
        size = len(encode(result))
        if size > MAX_MESSAGE - 64:
            self._refuse(task, "spec", f"its result has {size:,} bytes, over the limit", now)
            return
        self.outbox.add(result, now)

    def _end_lease(self, task: int, now: float) -> Lease | None:
        lease = self.leases.end(task)
        if lease is not None and lease.running and self.replica is not None:
            self._follow(self.replica.unpin(lease.task.version, now), now)
        return lease

    def _hand_back(self, lease: Lease, now: float) -> None:
        if lease.running:
            self._commands.append(Abandon(lease.task.task))
        self._end_lease(lease.task.task, now)
        self._refuse(lease.task, "handed-back", "the volunteer leaves", now)

    def _drop_all(self, now: float) -> None:
        """Nothing that was evaluated with wrong parameters may be sent."""
        self._caught_up = False
        for lease in [*self.leases.running, *self.leases.waiting]:
            if lease.running:
                self._commands.append(Abandon(lease.task.task))
            self._end_lease(lease.task.task, now)
            self._refuse(lease.task, "gone", "our parameters were not the run's", now)

    def _refuse(
        self,
        task: Task,
        cause: Literal["handed-back", "gone", "worker", "spec"],
        reason: str,
        now: float,
    ) -> None:
        self._request(Refusal(task.task, task.token, cause, reason[:500]), now)

    def _acknowledged(self, tasks: tuple[int, ...], outcome: str, reason: str = "") -> None:
        found = self.outbox.acknowledge(tasks)
        self.outcomes[outcome] += found
        if found and outcome == "refused":
            self._commands.append(
                Say(f"the coordinator refused {found} of our results: {reason}", warning=True)
            )

    # What the replica wants.

    def _follow(self, commands: list[replica.Command], now: float) -> None:
        for command in commands:
            match command:
                case replica.Ask():
                    self._request(command.message, now)
                case replica.Tell():
                    self._commands.append(Say(command.text, warning=True))
                case replica.GiveUp():
                    self._leave(SENT_AWAY, command.reason)
                case replica.Dropped():
                    self._drop_all(now)
                case _:
                    self._commands.append(command)

    # What goes out.

    def _pump(self, now: float) -> list[Command]:
        """Say whatever is due, and hand over all commands so far."""
        if not self.over:
            self._say_hello(now)
            self._run_tasks(now)
            self._speak(now)
            self._leave_if_finished(now)
        commands, self._commands = self._commands, []
        return commands

    def _speak(self, now: float) -> None:
        """Results, credit, and a sign of life: what a welcomed session owes the coordinator."""
        if not self._welcomed or not self._connected:
            return
        if self.replica is not None and not self.replica.behind:
            self._caught_up = True
        self._tell_credit(now)
        for result in self.outbox.due(now):
            if self.outbox.most_sent >= FORGOTTEN_AFTER:
                self._commands.append(Say("our results are not answered: saying hello again"))
                self.outbox.make_due(now)
                self._greet(now)
                return
            self._publish(topics.results, self.handshake.seal(result), now)
            self.outbox.sent(result.task, now)
        if now - self._spoke > STATUS_AFTER + self._random.random():
            status = Status(self._state_word(), self.replica.version if self.replica else 0)
            self._publish(topics.status, self.handshake.seal(status), now)

    def _tell_credit(self, now: float) -> None:
        wanted = self._credit if self._caught_up and not self._finishing else 0
        if self._welcomed and wanted != self._credit_told and self.replica is not None:
            self._credit_told = wanted
            self._request(Credit(wanted, self.replica.version), now)

    def _state_word(self) -> Literal["idle", "busy", "paused", "catching-up"]:
        if self.leases.running:
            return "busy"
        if self.replica is None or self.replica.behind:
            return "catching-up"
        return "paused" if self._finishing else "idle"

    def _request(self, message: Message, now: float) -> None:
        """Tell the coordinator, where there is a session; else the lease simply runs out."""
        if self._connected and self.handshake.agreed:
            self._publish(topics.request, self.handshake.seal(message), now)

    def _publish(self, kind: Callable[[str, str, str], str], payload: bytes, now: float) -> None:
        self._commands.append(Send(self.handshake.topic(kind), payload, 1))
        self._spoke = now

    def _ignore(self, reason: str, now: float) -> None:
        """Count a message that is not what it should be; say so now and then.

        Before there is any epoch it may be why nothing happens, so it is a warning.
        """
        self.ignored += 1
        if now - self._complained >= COMPLAIN_EVERY:
            self._complained = now
            ignored = counted(self.ignored, "message")
            warning = self.handshake.epoch is None
            self._commands.append(Say(f"ignored {ignored} so far: {reason}", warning))

    # The end.

    def _leave_if_finished(self, now: float) -> None:
        if not self._finishing or self.leases.running:
            return
        if self._leave_by is None:
            self._leave_by = now + WAIT_FOR_ANSWERS
        unanswered = len(self.outbox)
        if unanswered == 0 or not self.handshake.agreed:
            self._leave(LEFT, "left; every result is answered for" if self.tasks_done else "left")
        elif now >= self._leave_by:
            waited = f"within {WAIT_FOR_ANSWERS:.0f} s"
            self._leave(LEFT, f"left; no answer to {counted(unanswered, 'result')} {waited}")

    def _leave(self, code: int, text: str) -> None:
        if self.over:
            return
        self.over = True
        if self._connected and self._last_hello > float("-inf"):
            topic = self.handshake.topic(topics.status)
            self._commands.append(Send(topic, self.handshake.bye(lost=False), 1))
        self._commands.append(Leave(code, text))


def counted(count: int, word: str) -> str:
    """A count and its word: `1 task`, `2 tasks`."""
    return f"{count} {word}{'s' * (count != 1)}"
