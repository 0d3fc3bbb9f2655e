"""Has the tasks of one run evaluated by processes of its own, and tells the session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from protocol.clock import now
from protocol.errors import ShoalError
from protocol.spec import RunSpec
from worker import commands, news, preflight
from worker.console import Say
from worker.evaluation.jobs import EnvironmentUnavailable, Evaluation, WorkerFailure
from worker.session import Session
from worker.settings import Settings
from worker.spares import Spares
from worker.stepping import Do, Start

if TYPE_CHECKING:
    from worker.evaluation.children import Evaluators
    from worker.following import Point


OVER = ("finished", "stopped")
"""States of a run that has ended."""


class Evaluating:
    """The evaluation processes of a run, from their start to their end.

    Attributes:
        evaluators: None before they are prepared.
    """

    def __init__(
        self,
        settings: Settings,
        session: Session,
        do: Do,
        start: Start,
        say: Say,
        memory_limit: Callable[[], int | None],
        spares: Spares,
        on_arrived: Callable[[], None],
        on_ended: Callable[[], None],
    ) -> None:
        """`memory_limit`: tells how many bytes each process may take, None for a fair part of what
        is free; `spares`: those of runs that are over. `on_arrived`: called once a task is with the
        processes; `on_ended`: once it is evaluated, or given up."""
        self.evaluators: Evaluators | None = None
        self._settings = settings
        self._session = session
        self._do = do
        self._start = start
        self._say = say
        self._memory_limit = memory_limit
        self._spares = spares
        self._on_arrived, self._on_ended = on_arrived, on_ended
        self._thetas: dict[int, asyncio.Task[None]] = {}
        self._evaluations: dict[int, asyncio.Task[None]] = {}
        self._tested = False

    def prepare(self) -> None:
        """Let new children load what any run needs."""
        from worker.evaluation.children import Evaluators

        self.evaluators = self._ours(Evaluators(share=self._settings.cpu_share))
        self.evaluators.prepare(self._settings.children)

    def _ours(self, evaluators: Evaluators) -> Evaluators:
        """The same, which tell us how they are, and may take what this run may."""
        evaluators.memory_limit = self._memory_limit()
        evaluators.on_ready = self._on_ready
        evaluators.on_lost = lambda how: self._say(how, True)
        return evaluators

    def begin(self, spec: RunSpec) -> None:
        """The run is known: the children try it out."""
        self._start(self._begin(spec))

    def evaluate(self, command: commands.Evaluate) -> None:
        """Evaluate a task."""
        evaluation = self._start(self._evaluate(command))
        self._evaluations[command.task] = evaluation
        evaluation.add_done_callback(lambda _: self._on_ended())

    def abandon(self, task: int) -> None:
        """Stop evaluating a task; what is finished of it is told first, which takes a moment."""
        evaluation = self._evaluations.pop(task, None)
        if evaluation is None:
            self._do(self._session.abandoned(task, now()))
        else:
            evaluation.add_done_callback(lambda _: self._do(self._session.abandoned(task, now())))
            evaluation.cancel()

    def forget(self, version: int) -> None:
        """A version's parameters are needed no more."""
        giving = self._thetas.pop(version, None)
        if giving is not None:
            giving.cancel()
        if self.evaluators is not None:
            self.evaluators.drop(version)

    def cancel(self) -> list[asyncio.Task[None]]:
        """Give no process any more parameters; what is left to wait for."""
        givings = list(self._thetas.values())
        for giving in givings:
            giving.cancel()
        return givings

    @property
    def is_over(self) -> bool:
        """Whether nobody evaluates the run any more."""
        epoch = self._session.handshake.epoch
        return epoch is not None and epoch.state in OVER

    async def hand_over(self) -> None:
        """Let the next run have the processes, where they can be of use to it."""
        if self.evaluators is not None:
            await self._spares.give(self.evaluators, now())

    async def close(self) -> None:
        """End all processes at once."""
        if self.evaluators is not None:
            await self.evaluators.close()

    async def _begin(self, spec: RunSpec) -> None:
        settings = self._settings
        self._say(preflight.accepted())
        if self.evaluators is None and (spare := self._spares.take(spec)) is not None:
            self.evaluators = self._ours(spare)
        if self.evaluators is None:
            self.prepare()
        evaluators = self.evaluators
        assert evaluators is not None
        try:
            await evaluators.start(
                spec,
                settings.children,
                settings.allowed,
                settings.device,
                settings.lanes,
                settings.limits.episode,
            )
        except EnvironmentUnavailable as error:
            self._do(self._session.cannot_evaluate(str(error), now()))

    def _on_ready(self) -> None:
        """One more evaluation process is ready."""
        evaluators, settings = self.evaluators, self._settings
        assert evaluators is not None
        speed, ready = evaluators.speed, evaluators.ready
        spec = self._session.handshake.spec
        assert spec is not None
        if ready == 1 and not self._tested:
            self._tested = True
            self._say(preflight.tested(spec, evaluators.numeric_class))
        if ready == 1 and evaluators.remark:
            self._say(evaluators.remark)
        if ready in (1, settings.children):
            share, memory = settings.cpu_share, evaluators.memory_limit
            lanes = evaluators.lanes_each
            assert memory is not None
            self._say(news.ready(speed, lanes, settings.children, share, memory))
        self._do(
            self._session.can_evaluate(speed, evaluators.numeric_class, now(), evaluators.lanes)
        )

    async def _evaluate(self, command: commands.Evaluate) -> None:
        session, task = self._session, command.task

        def on_evaluated(evaluation: Evaluation) -> None:
            self._do(session.evaluated(task, evaluation, now()))

        try:
            await self._give_theta(command.point)
            assert self.evaluators is not None
            self._on_arrived()
            await self.evaluators.evaluate(command.job, on_evaluated)
        except (WorkerFailure, ShoalError) as error:
            self._do(session.evaluation_failed(task, str(error), now()))
        finally:
            self._evaluations.pop(task, None)

    async def _give_theta(self, point: Point) -> None:
        """See that the processes have a version's parameters; they are sent once."""
        giving = self._thetas.get(point.version)
        if giving is None:
            assert self.evaluators is not None
            giving = asyncio.ensure_future(
                self.evaluators.set_theta(point.version, point.basis, point.normalization)
            )
            self._thetas[point.version] = giving
        try:
            await asyncio.shield(giving)
        except WorkerFailure:
            self._thetas.pop(point.version, None)  # the next task tries again
            raise
