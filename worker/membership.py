"""A worker's place in one run: wires link, session, evaluation processes and timers of that run."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from protocol import topics
from protocol.address import Address
from protocol.clock import now
from protocol.errors import ShoalError
from protocol.exit_codes import DONE, UNREACHABLE
from protocol.identity import Identity, new_session
from protocol.link import Link, Will, client_id
from worker import commands, news, preflight, replica, serving, session
from worker.console import Say
from worker.control import ControlError
from worker.evaluating import Evaluating
from worker.handshake import Handshake
from worker.names import label_of
from worker.session import Session
from worker.settings import Settings
from worker.spares import Spares
from worker.stepping import Stepping
from worker.threads import in_thread
from worker.turns import Turns
from worker.upload import Upload
from worker.view import View

TICK_SECONDS = 0.2
GOODBYE_SECONDS = 0.8
"""Seconds that the last words may take to reach the broker."""
EPOCH_WITHIN = 10.0
"""Seconds that the run's announcement may take where we were told not to wait for it."""


class UnreachableError(ShoalError):
    """No broker, or nobody who leads the run, and we were told not to wait."""

    exit_code = UNREACHABLE


class Membership:
    """One session of a worker in one run, from its start to how it ended.

    Attributes:
        run: its name.
        began: when.
        worked: when it had a task last, or was about to evaluate its first.
    """

    def __init__(
        self,
        settings: Settings,
        address: Address,
        identity: Identity,
        say: Say,
        say_of_link: Say,
        turns: Turns,
        spares: Spares,
        memory_limit: Callable[[], int | None],
        random: Random,
        elsewhere: Callable[[], int] = lambda: 0,
    ) -> None:
        """`address`: with the run. `say_of_link`: gets the lines on the connection to the broker.
        `memory_limit`: tells how many bytes each evaluation process may take, None for a fair part
        of what is free. `elsewhere`: tasks that count for `--max-tasks` and are of other runs."""
        assert address.run is not None
        self.run = address.run
        self.began = self.worked = now()
        self._settings = settings
        self._address = address
        self._say, self._say_of_link = say, say_of_link
        self._turns = turns
        self._over: asyncio.Future[commands.Leave] = asyncio.get_running_loop().create_future()
        self._jobs: set[asyncio.Task[None]] = set()
        self._dialled = 0.0
        handshake = Handshake(self.run, identity, new_session(), address.fingerprint)
        handshake.invite = address.invite
        private = settings.private
        chosen = session.Settings(
            credit=settings.credit,
            name="" if private else settings.name or label_of(identity.worker),
            device=""
            if private
            else news.device(settings.children, settings.cpu_share, settings.device),
            checked=settings.address.fingerprint is not None,
            upload_limit=settings.upload_limit,
            most_tasks=settings.terms.most_tasks,
            elsewhere=elsewhere,
            turns=0,
            limits=settings.limits,
        )
        self.session = Session(handshake, chosen, random)
        self.evaluating = Evaluating(
            settings,
            self.session,
            self._do,
            self._start,
            say,
            memory_limit,
            spares,
            turns.arrived,
            lambda: turns.ended(self.run),
        )
        self._stepping = Stepping(self.session, self._do, self._start)
        self.link = Link(
            address,
            client_id=client_id(handshake.worker, handshake.session),
            on_message=self._on_message,
            name=handshake.worker,
            on_connected=self._on_connected,
            on_disconnected=self._on_disconnected,
            on_retry=self._on_retry,
            on_connecting=self._on_connecting,
            subscriptions=topics.worker_filters(self.run, handshake.worker, handshake.session),
        )
        self.upload = Upload(
            self.link,
            self.session.serving,
            lambda joiner: topics.snapshot(handshake.run, handshake.peer, joiner),
        )

    async def take_part(self, weight: float) -> commands.Leave:
        """Take part until the run ends or we leave; how that was. `weight`: of the run among those
        of this worker.

        Raises FatalLinkError, UnreachableError, and what nobody foresaw.
        """
        self._turns.join(self.run, weight, self._begin_task)
        lives = [
            asyncio.create_task(life)
            for life in (self._tick_for_ever(), self.link.run(), self.upload.run())
        ]
        try:
            waited: list[asyncio.Future[Any]] = [*lives, self._over]
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if not self._over.done():
                for life in lives:
                    if life.done():
                        life.result()
                raise AssertionError("the link ended before the session")
            return self._over.result()
        finally:
            await self._stop(lives)

    # What the worker wants of it.

    @property
    def announced(self) -> bool:
        """Whether somebody proved to lead the run."""
        return self.session.handshake.epoch is not None

    @property
    def held(self) -> int:
        """Tasks that it has evaluated, or holds."""
        work = self.session.workload
        return work.done + len(work.leases) if work is not None else 0

    def silence(self, now: float) -> float:
        """Seconds for which nothing was heard of the host, where that is too long; else 0."""
        return self.session.silence(now)

    def view(self) -> View:
        """How it is."""
        return self.session.view(now(), self.link.answers_after)

    def pause(self, why: str) -> None:
        """Take no new tasks while that holds; empty: take them again."""
        self._do(self.session.pause(why, now()))

    def finish(self, why: str = "") -> None:
        """Finish what runs, and leave."""
        self._do(self.session.finish(now(), why))

    def hand_back(self) -> None:
        """Leave at once."""
        self._do(self.session.hand_back(now()))

    def leave(self, code: int, text: str) -> None:
        """Leave without a word to the host, which was never heard, or is gone."""
        self._obey(commands.Leave(code, text))

    async def policy(self) -> tuple[str, bytes]:
        """The policy as far as this worker follows the run. Raises `ControlError`."""
        spec, following = self.session.handshake.spec, self.session.replica
        if spec is None or following is None:
            raise ControlError("it follows no run yet: ask again in a moment")
        reached = following.state
        if reached is None:
            raise ControlError("it has no version of the run yet: ask again in a moment")
        from worker.keepsake import policy_file

        data = await in_thread(lambda: policy_file(spec, self.run, reached))
        return f"version {reached.version} of {self.run}", data

    # Its life.

    async def _tick_for_ever(self) -> None:
        while True:
            moment = now()
            self._do(self.session.tick(moment))
            work = self.session.workload
            if self.session.starting or (work is not None and work.leases):
                self.worked = moment
            if self._settings.once and not self.announced and moment - self.began > EPOCH_WITHIN:
                self._fail(
                    UnreachableError(
                        f"nobody announced the run {self.run} within {EPOCH_WITHIN:.0f} s: "
                        "check the join line, or ask the host"
                    )
                )
            await asyncio.sleep(TICK_SECONDS)

    async def _stop(self, lives: list[asyncio.Task[None]]) -> None:
        """Say the last words to the broker and leave nothing behind."""
        self._turns.leave(self.run)  # first: what still waits is not to begin
        tasks = [*self.evaluating.cancel(), *self._jobs]
        for task in tasks:
            task.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GOODBYE_SECONDS):
                await self.link.close()
        if self.evaluating.is_over:
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.evaluating.hand_over()
        else:
            await self.evaluating.close()
        for life in lives:
            life.cancel()
        await asyncio.gather(*lives, *tasks, return_exceptions=True)
        self.upload.close()

    def _on_message(self, topic: str, payload: bytes) -> None:
        moment = now()
        self._do(self.session.message(topic, payload, moment))
        if self.session.serving.delay(moment) is not None:
            self.upload.wake()

    def _on_connecting(self) -> None:
        """A will is of one connection: else that of an earlier one could end a later one."""
        handshake = self.session.handshake
        self._dialled = now()
        self.link.will = Will(handshake.topic(topics.status), handshake.begin_life(), 1, False)

    def _on_connected(self, first: bool) -> None:
        moment = now()
        if first:
            self._say_of_link(preflight.reached(self._address, moment - self._dialled))
        self._do(self.session.connected(moment))

    def _on_disconnected(self, reason: str) -> None:
        self._say_of_link(f"lost the broker: {reason}", warning=True)
        self._do(self.session.disconnected(now()))

    def _on_retry(self, reason: str, delay: float) -> None:
        if self._settings.once:
            self._fail(unreachable(self._address, reason))
        else:
            self._say_of_link(retrying(self._address, reason, delay), warning=True)

    def _fail(self, error: BaseException) -> None:
        if not self._over.done():
            self._over.set_exception(error)

    # What the session decided.

    def _do(self, wanted: list[commands.Command]) -> None:
        for command in wanted:
            self._obey(command)
        self._turns.offer(self.run, self.session.ready)

    def _begin_task(self) -> bool:
        """It is our turn: begin one task more; whether there was one."""
        wanted = self.session.begin(now())
        self._do(wanted)
        return any(isinstance(command, commands.Evaluate) for command in wanted)

    def _obey(self, command: commands.Command) -> None:
        match command:
            case commands.Send():
                self.link.publish(command.topic, command.payload, command.qos)
            case commands.Say():
                self._say(command.text, command.warning)
            case commands.CompareClocks():
                self._say(*preflight.clock(time.time() - command.theirs))
            case commands.Evaluate():
                self.evaluating.evaluate(command)
            case commands.Abandon():
                self.evaluating.abandon(command.task)
            case commands.StartEvaluation():
                self.evaluating.begin(command.spec)
            case commands.Leave():
                if not self._over.done():
                    self._over.set_result(command)
            case replica.Forget():
                self.evaluating.forget(command.version)
            case serving.Freeze() | serving.Keep():
                self._start(self._hold(command))
            case serving.Discard():
                self._start(self.upload.discard(command))
            case _:
                self._stepping.follow(command)

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

    async def _hold(self, command: serving.Freeze | serving.Keep) -> None:
        """Keep a snapshot for peers; without it we are as good a worker as before."""
        try:
            frozen = await self.upload.hold(command)
        except (ShoalError, MemoryError) as error:
            self._do(self.session.not_held(str(error) or "out of memory", now()))
        else:
            self._do(self.session.held(frozen, now()))


def unreachable(address: Address, reason: str) -> UnreachableError:
    """There is no broker, and nobody waits for one."""
    return UnreachableError(
        f"broker unreachable at {address.broker} ({reason}): check the join line, or ask the host"
    )


def retrying(address: Address, reason: str, delay: float) -> str:
    """There is no broker for now."""
    return f"broker unreachable at {address.broker} ({reason}), retrying in {delay:.1f} s"


LEFT = commands.Leave(DONE, "left")
"""Of who leaves before it took part."""
