"""The worker's shell: wires link, session, evaluation processes and timers; decides nothing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from protocol import topics
from protocol.address import Address
from protocol.clock import now
from protocol.errors import ShoalError
from protocol.exit_codes import DONE, UNREACHABLE
from protocol.identity import Identity, new_session
from protocol.link import FatalLinkError, Link, Will, client_id
from protocol.spec import RunSpec
from worker import commands, news, preflight, replica, serving, session
from worker.console import Console
from worker.control import ControlError
from worker.discovery import find_run
from worker.evaluation.jobs import EnvironmentUnavailable, Evaluation, WorkerFailure
from worker.governor import Course
from worker.handshake import Handshake
from worker.limits import Limits
from worker.names import label_of
from worker.permission import Readings, Terms, memory_of_child
from worker.places import Place
from worker.session import Session
from worker.steering import Steering
from worker.threads import in_thread
from worker.upload import Upload
from worker.view import View

if TYPE_CHECKING:
    from worker.evaluation.children import Evaluators
    from worker.following import Follower, Point, Step

TICK_SECONDS = 0.2
SHOW_SECONDS = 0.5
"""Seconds between two looks of the console: to make what it sees costs half as much as a tick."""
GOODBYE_SECONDS = 0.8
"""Seconds that the last words may take to reach the broker."""
INLINE_COST = 2_000_000
"""Parameters times directions up to which an update is applied at once, in about a millisecond;
larger ones go to a thread."""
STEP_COST = 50
"""As many directions the optimizer's step and the digests cost."""
GAUSSIAN_COST = 15
"""How many times more a direction of gaussian noise costs."""
UPLOAD_LIMIT = 4e6
"""Bytes per second."""
EPOCH_WITHIN = 10.0
"""Seconds that the run's announcement may take where we were told not to wait for it."""


class UnreachableError(ShoalError):
    """No broker, or nobody who leads the run, and we were told not to wait."""

    exit_code = UNREACHABLE


@dataclass(frozen=True, slots=True)
class Settings:
    """What the volunteer chose.

    Attributes:
        address: of the broker, with or without a run.
        children: evaluation processes.
        cpu_share: of a core that each of them may use.
        memory_limit: bytes that each of them may take; None for a fair part of what is free.
        credit: tasks held at once.
        allowed: modules that may register environments, hold the policy, add a strategy or an
            optimizer.
        device: that policies are computed on; see `devices`.
        lanes: of each evaluation process; 0 for as many as suit.
        once: end, instead of waiting, where broker or run are not there.
        upload_limit: bytes per second that peers get at most; 0: none.
        limits: what the machine does for a run at most.
        private: keep label and machine from the host, and so from whom it shows its workers.
        terms: when the machine may work, and when the worker leaves.
    """

    address: Address
    name: str = ""
    children: int = 1
    cpu_share: float = 1.0
    memory_limit: int | None = None
    credit: int = 2
    allowed: tuple[str, ...] = ()
    device: str = "cpu"
    lanes: int = 0
    once: bool = False
    upload_limit: float = UPLOAD_LIMIT
    limits: Limits = field(default_factory=Limits)
    private: bool = False
    terms: Terms = field(default_factory=Terms)


class Daemon:
    """One worker process, from its start to its exit code."""

    def __init__(
        self,
        settings: Settings,
        identity: Identity,
        console: Console,
        random: Random | None = None,
        place: Place | None = None,
    ) -> None:
        """`place`: where a second terminal reaches it, and its volunteer's words are kept."""
        self.settings = settings
        self.session: Session | None = None
        self._identity = identity
        self._console = console
        self._random = random or Random()
        self._steering = Steering(settings.terms, place, self)
        self._link: Link | None = None
        self._evaluators: Evaluators | None = None
        self._follower: Follower | None = None
        self._upload: Upload | None = None
        self._thetas: dict[int, asyncio.Task[None]] = {}
        self._evaluations: dict[int, asyncio.Task[None]] = {}
        self._jobs: set[asyncio.Task[None]] = set()
        self._over: asyncio.Future[commands.Leave] | None = None
        self._stops = 0
        self._dialled = 0.0
        self._tested = False

    async def run(self) -> int:
        """Take part until the run ends or the volunteer leaves; the exit code.

        Raises `ShoalError`, with its exit code, where only a person can help.
        """
        self._over = asyncio.get_running_loop().create_future()
        # What takes longest to load is needed by the first task at the latest.
        warming = in_thread(_load_following)
        working = asyncio.ensure_future(self._take_part())
        steering = asyncio.ensure_future(self._steering.run())
        lives = (working, steering)
        try:
            await asyncio.wait((*lives, self._over), return_when=asyncio.FIRST_COMPLETED)
            if not self._over.done():
                for life in lives:
                    if life.done():
                        life.result()
                raise AssertionError("the link ended before the session")
            leave = self._over.result()
            self._console.say(leave.text, warning=leave.code != DONE)
            return leave.code
        except FatalLinkError as error:
            raise UnreachableError(str(error)) from None
        finally:
            warming.cancel()
            await self._stop(working)
            steering.cancel()
            await asyncio.gather(steering, return_exceptions=True)

    def interrupt(self) -> None:
        """Ctrl-C: the first finishes what runs, the second hands it back."""
        self._stops += 1
        if self._stops > 1:
            self.terminate()
        elif self.session is None:
            self._obey(commands.Leave(DONE, "left"))
        else:
            self._do(self.session.finish(now()))

    def terminate(self) -> None:
        """SIGTERM: hand everything back and leave at once."""
        if self.session is None:
            self._obey(commands.Leave(DONE, "left"))
        else:
            self._do(self.session.hand_back(now()))

    # What the volunteer's terms and words come to, and what a second terminal asks.

    def view(self) -> View:
        """How the worker is."""
        broker = self._link.answers_after if self._link is not None else 0.0
        return View() if self.session is None else self.session.view(now(), broker)

    def follow(self, course: Course) -> None:
        """Pause, go on, or leave."""
        if self.session is None:
            if course.leave:
                self._obey(commands.Leave(DONE, f"{course.leave}: left"))
        elif course.leave:
            self._do(self.session.finish(now(), course.leave))
        else:
            self._do(self.session.pause(course.paused, now()))

    def has_read(self, readings: Readings) -> None:
        """Let evaluation processes have what the rest of the worker leaves of its memory."""
        if self._evaluators is not None and self.settings.terms.memory is not None:
            self._evaluators.memory_limit = self._memory_of_child(readings)

    def _memory_of_child(self, readings: Readings) -> int | None:
        """Bytes that each evaluation process may take; None for a fair part of what is free."""
        each, whole = self.settings.memory_limit, self.settings.terms.memory
        if whole is None:
            return each
        most = memory_of_child(whole, readings, self.settings.children)
        return min(each or most, most)

    def say(self, text: str, warning: bool = False) -> None:
        """A line for the volunteer."""
        self._console.say(text, warning)

    def whereabouts(self) -> tuple[str, str, str]:
        """The worker's own name, that of its run, and the broker."""
        run = self.session.handshake.run if self.session is not None else ""
        return self._identity.worker, run, str(self.settings.address.broker)

    async def policy(self) -> tuple[str, bytes]:
        """The policy as far as this worker follows the run. Raises `ControlError`."""
        session = self.session
        spec = session.handshake.spec if session is not None else None
        if session is None or spec is None or session.replica is None:
            raise ControlError("it follows no run yet: ask again in a moment")
        reached = session.replica.state
        if reached is None:
            raise ControlError("it has no version of the run yet: ask again in a moment")
        from worker.keepsake import policy_file

        run = session.handshake.run
        data = await in_thread(lambda: policy_file(spec, run, reached))
        return f"version {reached.version} of {run}", data

    # The life of the process.

    async def _take_part(self) -> None:
        address = self.settings.address
        if address.run is None:
            address = await find_run(
                address, self._identity, self._console.say, self._on_retry, self.settings.once
            )
        assert address.run is not None
        handshake = Handshake(address.run, self._identity, new_session(), address.fingerprint)
        handshake.invite = address.invite
        private = self.settings.private
        chosen = session.Settings(
            credit=self.settings.credit,
            name="" if private else self._label,
            device=""
            if private
            else news.device(self.settings.children, self.settings.cpu_share, self.settings.device),
            checked=self.settings.address.fingerprint is not None,
            upload_limit=self.settings.upload_limit,
            most_tasks=self.settings.terms.most_tasks,
            limits=self.settings.limits,
        )
        self.session = Session(handshake, chosen, self._random)
        self._console.say(f"worker {self._label} ({self._identity.worker}) joins {address}")
        self._prepare_evaluators()
        self._link = Link(
            address,
            client_id=client_id(handshake.worker, handshake.session),
            on_message=self._on_message,
            name=handshake.worker,
            on_connected=self._on_connected,
            on_disconnected=self._on_disconnected,
            on_retry=self._on_retry,
            on_connecting=self._on_connecting,
            subscriptions=topics.worker_filters(address.run, handshake.worker, handshake.session),
        )
        self._upload = Upload(
            self._link,
            self.session.serving,
            lambda joiner: topics.snapshot(handshake.run, handshake.peer, joiner),
        )
        lives = [
            asyncio.ensure_future(life)
            for life in (self._tick_for_ever(), self._link.run(), self._upload.run())
        ]
        try:
            done, _ = await asyncio.wait(lives, return_when=asyncio.FIRST_COMPLETED)
            for ended in done:
                ended.result()
        finally:
            for life in lives:
                life.cancel()
            await asyncio.gather(*lives, return_exceptions=True)

    async def _tick_for_ever(self) -> None:
        began = shown = now()
        while True:
            moment = now()
            self._do(self._the_session.tick(moment))
            if moment - shown >= SHOW_SECONDS:
                shown = moment
                self._console.show(self.view(), moment)
            unseen = self._the_session.handshake.epoch is None
            if self.settings.once and unseen and moment - began > EPOCH_WITHIN:
                run = self._the_session.handshake.run
                self._fail(
                    UnreachableError(
                        f"nobody announced the run {run} within {EPOCH_WITHIN:.0f} s: "
                        "check the join line, or ask the host"
                    )
                )
            await asyncio.sleep(TICK_SECONDS)

    async def _stop(self, working: asyncio.Future[None]) -> None:
        """Say the last words to the broker and leave nothing behind."""
        tasks = [*self._thetas.values(), *self._jobs]
        for task in tasks:
            task.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GOODBYE_SECONDS):
                if self._link is not None:
                    await self._link.close()
                if self._evaluators is not None:
                    await self._evaluators.close()
        working.cancel()
        await asyncio.gather(working, *tasks, return_exceptions=True)
        if self._upload is not None:
            self._upload.close()
        self._console.close()

    @property
    def _label(self) -> str:
        return self.settings.name or label_of(self._identity.worker)

    @property
    def _the_session(self) -> Session:
        assert self.session is not None
        return self.session

    def _on_message(self, topic: str, payload: bytes) -> None:
        moment = now()
        self._do(self._the_session.message(topic, payload, moment))
        if self._upload is not None and self._the_session.serving.delay(moment) is not None:
            self._upload.wake()

    def _on_connecting(self) -> None:
        """A will is of one connection: else that of an earlier one could end a later one."""
        handshake = self._the_session.handshake
        assert self._link is not None
        self._dialled = now()
        self._link.will = Will(handshake.topic(topics.status), handshake.begin_life(), 1, False)

    def _on_connected(self, first: bool) -> None:
        moment = now()
        if first:
            self._console.say(preflight.reached(self.settings.address, moment - self._dialled))
        self._do(self._the_session.connected(moment))

    def _on_disconnected(self, reason: str) -> None:
        self._console.say(f"lost the broker: {reason}", warning=True)
        self._do(self._the_session.disconnected(now()))

    def _on_retry(self, reason: str, delay: float) -> None:
        broker = self.settings.address.broker
        if self.settings.once:
            self._fail(
                UnreachableError(
                    f"broker unreachable at {broker} ({reason}): "
                    "check the join line, or ask the host"
                )
            )
            return
        self._console.say(
            f"broker unreachable at {broker} ({reason}), retrying in {delay:.1f} s", warning=True
        )

    def _fail(self, error: BaseException) -> None:
        if self._over is not None and not self._over.done():
            self._over.set_exception(error)

    # What the session decided.

    def _do(self, wanted: list[commands.Command]) -> None:
        for command in wanted:
            self._obey(command)

    def _obey(self, command: commands.Command) -> None:
        match command:
            case commands.Send():
                if self._link is not None:
                    self._link.publish(command.topic, command.payload, command.qos)
            case commands.Say():
                self._console.say(command.text, command.warning)
            case commands.Evaluate():
                self._evaluations[command.task] = self._start(self._evaluate(command))
            case commands.Abandon():
                self._abandon(command.task)
            case commands.StartEvaluation():
                self._start(self._start_evaluators(command.spec))
            case commands.Leave():
                if self._over is not None and not self._over.done():
                    self._over.set_result(command)
            case replica.Forget():
                giving = self._thetas.pop(command.version, None)
                if giving is not None:
                    giving.cancel()
                if self._evaluators is not None:
                    self._evaluators.drop(command.version)
            case serving.Freeze() | serving.Keep():
                self._start(self._hold(command))
            case serving.Discard():
                if self._upload is not None:
                    self._start(self._upload.discard(command))
            case _:
                self._follow(command)

    def _start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Do something beside the rest; what goes wrong there ends the worker."""
        job = asyncio.create_task(work)
        self._jobs.add(job)
        job.add_done_callback(self._job_done)
        return job

    def _job_done(self, job: asyncio.Task[None]) -> None:
        self._jobs.discard(job)
        if not job.cancelled() and (failure := job.exception()) is not None:
            self._fail(failure)

    # Evaluation.

    def _prepare_evaluators(self) -> None:
        """Let the children load what any run needs while the epoch is on its way."""
        from worker.evaluation.children import Evaluators

        self._evaluators = Evaluators(
            share=self.settings.cpu_share,
            memory_limit=self._memory_of_child(Readings()),
            on_ready=self._on_ready,
            on_lost=lambda how: self._console.say(how, warning=True),
        )
        self._evaluators.prepare(self.settings.children)

    async def _start_evaluators(self, spec: RunSpec) -> None:
        evaluators = self._evaluators
        assert evaluators is not None
        self._console.say(preflight.accepted())
        try:
            await evaluators.start(
                spec,
                self.settings.children,
                self.settings.allowed,
                self.settings.device,
                self.settings.lanes,
                self.settings.limits.episode,
            )
        except EnvironmentUnavailable as error:
            self._do(self._the_session.cannot_evaluate(str(error), now()))

    def _on_ready(self) -> None:
        """One more evaluation process is ready."""
        evaluators, settings = self._evaluators, self.settings
        assert evaluators is not None
        speed, ready = evaluators.speed, evaluators.ready
        spec = self._the_session.handshake.spec
        assert spec is not None
        if ready == 1 and not self._tested:
            self._tested = True
            self._console.say(preflight.tested(spec, evaluators.numeric_class))
        if ready == 1 and evaluators.remark:
            self._console.say(evaluators.remark)
        if ready in (1, settings.children):
            share, memory = settings.cpu_share, evaluators.memory_limit
            lanes = evaluators.lanes_each
            assert memory is not None
            self._console.say(news.ready(speed, lanes, settings.children, share, memory))
        self._do(
            self._the_session.can_evaluate(speed, evaluators.numeric_class, now(), evaluators.lanes)
        )

    async def _evaluate(self, command: commands.Evaluate) -> None:
        session, task = self._the_session, command.task

        def on_evaluated(evaluation: Evaluation) -> None:
            self._do(session.evaluated(task, evaluation, now()))

        try:
            await self._give_theta(command.point)
            assert self._evaluators is not None
            await self._evaluators.evaluate(command.job, on_evaluated)
        except (WorkerFailure, ShoalError) as error:
            self._do(session.evaluation_failed(task, str(error), now()))
        finally:
            self._evaluations.pop(task, None)

    def _abandon(self, task: int) -> None:
        """Stop evaluating a task; what is finished of it is told first, which takes a moment."""
        evaluation = self._evaluations.pop(task, None)
        if evaluation is None:
            self._do(self._the_session.abandoned(task, now()))
        else:
            evaluation.add_done_callback(
                lambda _: self._do(self._the_session.abandoned(task, now()))
            )
            evaluation.cancel()

    async def _give_theta(self, point: Point) -> None:
        """See that the processes have a version's parameters; they are sent once."""
        giving = self._thetas.get(point.version)
        if giving is None:
            assert self._evaluators is not None
            giving = asyncio.ensure_future(
                self._evaluators.set_theta(point.version, point.basis, point.normalization)
            )
            self._thetas[point.version] = giving
        try:
            await asyncio.shield(giving)
        except WorkerFailure:
            self._thetas.pop(point.version, None)  # the next task tries again
            raise

    # Following the run.

    def _follow(self, command: replica.Begin | replica.Apply | replica.Restore) -> None:
        match command:
            case replica.Begin():
                spec = self._the_session.handshake.spec
                assert spec is not None
                self._start(self._begin(command, spec))
            case replica.Apply() if self._is_cheap(command):
                asyncio.get_running_loop().call_soon(self._apply_here, command)
            case _:
                self._start(self._step(command))

    def _is_cheap(self, command: replica.Apply) -> bool:
        assert self._follower is not None
        directions = sum(len(cohort.weights) for cohort in command.update.cohorts)
        gaussian = self._follower.spec.strategy.noise == "gaussian"
        factor = GAUSSIAN_COST if gaussian else 1
        return self._follower.spec.size * (directions * factor + STEP_COST) <= INLINE_COST

    async def _begin(self, command: replica.Begin, spec: RunSpec) -> None:
        try:
            follower, step = await in_thread(lambda: _begin(spec))
        except Exception as error:
            self._do(self._the_session.failed(command.ticket, error, now()))
        else:
            self._follower = follower
            size = follower.snapshot_bytes
            self._do(self._the_session.begun(command.ticket, step, size, now()))

    async def _step(self, command: replica.Apply | replica.Restore) -> None:
        try:
            step = await in_thread(lambda: self._take_step(command))
        except Exception as error:
            self._do(self._the_session.failed(command.ticket, error, now()))
        else:
            self._do(self._the_session.advanced(command.ticket, step, now()))

    async def _hold(self, command: serving.Freeze | serving.Keep) -> None:
        """Keep a snapshot for peers; without it we are as good a worker as before."""
        assert self._upload is not None
        try:
            frozen = await self._upload.hold(command)
        except (ShoalError, MemoryError) as error:
            self._do(self._the_session.not_held(str(error) or "out of memory", now()))
        else:
            self._do(self._the_session.held(frozen, now()))

    def _apply_here(self, command: replica.Apply) -> None:
        try:
            step = self._take_step(command)
        except Exception as error:
            self._do(self._the_session.failed(command.ticket, error, now()))
        else:
            self._do(self._the_session.advanced(command.ticket, step, now()))

    def _take_step(self, command: replica.Apply | replica.Restore) -> Step:
        assert self._follower is not None
        if isinstance(command, replica.Apply):
            return self._follower.apply(command.before, command.update)
        return self._follower.restore(command.data, command.version)


def _begin(spec: RunSpec) -> tuple[Follower, Step | None]:
    from worker.following import Follower

    follower = Follower(spec)
    return follower, follower.begin()


def _load_following() -> None:
    import worker.following  # noqa: F401
