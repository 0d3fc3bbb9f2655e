"""The daemon's side of evaluation: child processes, fed with parts of jobs, replaced on failure."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from protocol import spec
from protocol.packing import WireError
from protocol.spec import RunSpec
from worker.evaluation import answers, pipe
from worker.evaluation.jobs import (
    EnvironmentUnavailable,
    Evaluation,
    EvaluationJob,
    Normalization,
    WorkerFailure,
)
from worker.evaluation.memory import fair_limit
from worker.evaluation.parts import Part, Waiting
from worker.evaluation.process import Child, Lost
from worker.evaluation.progress import Work
from worker.evaluation.thetas import Thetas

HELD = 2  # parts a child has at once: the last episodes of one, and the next
PARTS_PER_CHILD = 2  # of a job, so that who is done early takes some of another's share
SMALLEST_PART = 16  # episodes, or as many as lanes step together: fewer would leave some empty
TRIES = 4
"""Children that may be lost one after the other, whatever killed them, before a start is given up:
the first two over the same trial episodes, each further one over others."""
MOST_CRASHED = 3
"""Directions of a job that may end the process they are alone in: more are no fault of theirs."""
STARTS_LONGER = 10  # times the patience: kernels may have to be compiled on a slow machine
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0  # seconds before a child that did not start is tried again
LOOK_SECONDS = 0.5  # between two looks at whether there is something to tell, or nothing is heard
HAND_OVER_SECONDS = 1.0
"""How long a job that is cancelled waits for its children to say what is finished of it."""


class Evaluators:
    """Evaluates jobs in child processes; used from one event loop.

    A child that dies, or says nothing for `patience` seconds while it has work, is replaced. What
    it had not finished is tried once more by a fresh process, one direction after the other: a
    direction that ends this process too has failed, as if its episode had raised, and is known by
    name; the others get their returns. Use it on a thread that lives as long, since Linux ends a
    child with the thread that started it.

    A child that takes more memory than `memory_limit` is lost as well, but nothing is blamed for it
    unless it was all that the process ever had; and nothing ever for what others did to a child: a
    job that meets that twice fails.

    Args:
        patience: in seconds; longer than any one step or reset of an environment takes, and than
            the second or so between the signs of life of a child at work.
        share: of a core that each child may use.
        memory_limit: bytes that each may take; None for a fair part of what is free at the start.
        on_ready: called whenever a child becomes able to evaluate.
        on_lost: told how, in words, whenever one is lost.
    """

    def __init__(
        self,
        patience: float = 60.0,
        share: float = 1.0,
        memory_limit: int | None = None,
        on_ready: Callable[[], None] = lambda: None,
        on_lost: Callable[[str], None] = lambda how: None,
    ) -> None:
        self.patience = patience
        self.share = share
        self.memory_limit = memory_limit
        self.on_ready, self.on_lost = on_ready, on_lost
        self._spec: RunSpec | None = None
        self._configure = pipe.Configure(b"", (), share)
        self._configured = asyncio.Event()
        self._started: asyncio.Future[None] | None = None
        self._tried = 0
        """tries at a start that were lost, which counts until one has succeeded"""
        self._thetas = Thetas()
        self._keepers: list[asyncio.Task[None]] = []
        self._watching: asyncio.Task[None] | None = None
        self._children: list[Child] = []
        self._waiting = Waiting()
        self._telling: dict[Work, Callable[[], None]] = {}
        """how what is finished of each job in hand is told"""
        self._resting = 0
        """children that did not start and will be tried again"""
        self._trouble = "evaluation has not been started"

    @property
    def speed(self) -> float:
        """Environment steps per second of the children that can evaluate, as they found it."""
        return sum(found.speed for found in self._findings)

    @property
    def lanes(self) -> int:
        """Those of all children, also of those that are to come, where they step together; or 0."""
        return len(self._keepers) * self._child_lanes

    @property
    def lanes_each(self) -> list[int]:
        """Those of each child that can evaluate."""
        return [found.lanes for found in self._findings]

    @property
    def ready(self) -> int:
        """How many children can evaluate."""
        return len(self._findings)

    @property
    def numeric_class(self) -> bytes:
        """16 bytes, or none where the environment does not repeat itself."""
        classes = {found.numeric_class for found in self._findings}
        return classes.pop() if len(classes) == 1 else b""

    @property
    def remark(self) -> str:
        """A line on how the policy is computed, empty where there is nothing to say."""
        return next((found.remark for found in self._findings if found.remark), "")

    def prepare(self, children: int = 1) -> None:
        """Start children before their run is known, since what any run needs takes time to load."""
        self._started = asyncio.get_running_loop().create_future()
        self._keepers = [asyncio.create_task(self._keep()) for _ in range(children)]
        self._watching = asyncio.create_task(self._watch())

    async def start(
        self,
        run_spec: RunSpec,
        children: int = 1,
        allowed: Sequence[str] = (),
        device: str = "cpu",
        lanes: int = 0,
        longest: int = spec.LONGEST_EPISODE,
    ) -> None:
        """Start the children, unless they are prepared or free, and wait until one can evaluate.

        Args:
            allowed: modules that the volunteer lets register environments or hold the policy.
            device: that policies are computed on; see `devices`.
            lanes: of each child; 0 for as many as suit.
            longest: steps of an episode that may be played.

        Raises:
            EnvironmentUnavailable: this machine can't run the environment, and why.
        """
        self._spec = run_spec
        if self._started is None:
            self.prepare(children)
        assert self._started is not None
        if self.memory_limit is None:
            self.memory_limit = fair_limit(len(self._keepers), run_spec.basis_size)
        self._configure = pipe.Configure(
            spec.to_bytes(run_spec),
            tuple(allowed),
            self.share,
            device,
            lanes=lanes,
            longest=longest,
            memory=self.memory_limit,
        )
        self._configured.set()
        for child in self._children:
            if child.configured:  # of the run before
                self._tell_run(child, 0)
        try:
            await self._started
        except BaseException as error:
            await self.close()
            if isinstance(error, Lost):
                raise EnvironmentUnavailable(
                    f"{run_spec.environment.id} can't be evaluated here: "
                    f"an evaluation process {error}"
                ) from None
            raise

    async def set_theta(
        self,
        version: int,
        theta: NDArray[np.float32],
        normalization: Normalization | None = None,
    ) -> None:
        """Give all children a version's parameters, to be kept until `drop`.

        Args:
            theta: float32, shape (size,); of a version that has a sigma for each parameter, these
                follow.
            normalization: of the version, where the spec has the normaliser on.

        Raises:
            WorkerFailure: there is no room for them.
        """
        frame = await self._thetas.keep(version, theta, normalization)
        self._send(frame)

    def drop(self, version: int) -> None:
        """Forget a version's parameters; jobs that still wait in the queue for them fail."""
        if self._thetas.drop(version):
            self._send(pipe.frame(pipe.Drop(version)))

    def _send(self, frame: bytes) -> None:
        """Tell all children something, before the next part that they get."""
        for child in self._children:
            child.send_soon(frame)

    async def evaluate(
        self, job: EvaluationJob, on_evaluated: Callable[[Evaluation], None]
    ) -> None:
        """Evaluate a job; jobs asked for at the same time are evaluated in that order.

        `on_evaluated` is told what is finished, in runs of consecutive directions: at the end, and
        of a job that takes long every few seconds before. Each direction comes once. A job that
        fails, or is cancelled, is stopped within a step of the environment, and what is finished of
        it by then is told; this takes at most `HAND_OVER_SECONDS`.

        Raises:
            WorkerFailure: it can't be done here, or its version is not here.
        """
        if self._resting == len(self._keepers):
            raise WorkerFailure(self._trouble)
        if job.version not in self._thetas:
            raise WorkerFailure(f"version {job.version} is not among the parameters kept here")
        work = Work(job)
        self._waiting.add(work, self._pieces(job))
        self._hand_out()

        def tell() -> None:
            for evaluation in work.take(_now()):
                on_evaluated(evaluation)

        self._telling[work] = tell
        try:
            await work.over
        except BaseException:
            await self._recall(work)
            raise
        finally:
            del self._telling[work]
            tell()

    def free(self) -> bool:
        """Forget the run, which is over, so that another one may be started; whether all children
        are there and idle, without which that can't be."""
        children = self._children
        if len(children) < len(self._keepers) or self._started is None or self._telling:
            return False
        if not all(child.ready and not child.parts and not child.ending for child in children):
            return False
        for version in self._thetas.versions:
            self.drop(version)
        self._configured.clear()
        self._started = asyncio.get_running_loop().create_future()
        self._tried = 0
        for child in children:
            child.found = None
        return True

    def suits(self, run_spec: RunSpec) -> bool:
        """Whether what the children have loaded for the run before is all that this one needs: the
        same environment, and no module of its own."""
        known = self._spec
        return known is None or (
            known.environment == run_spec.environment
            and known.objective == run_spec.objective
            and not known.policy.module
            and not run_spec.policy.module
        )

    async def close(self) -> None:
        """End all children at once; jobs that are still waited for fail."""
        for child in self._children:
            child.kill()
        tasks, self._keepers = [*self._keepers], []
        if self._watching is not None:
            tasks.append(self._watching)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._thetas.close()
        self._trouble = "evaluation has been closed"
        self._waiting.fail(self._trouble)

    @property
    def _findings(self) -> list[pipe.Ready]:
        return [child.found for child in self._children if child.found is not None]

    @property
    def _child_lanes(self) -> int:
        return max((found.lanes for found in self._findings if found.together), default=0)

    def _pieces(self, job: EvaluationJob) -> int:
        """Into how many parts a job is cut."""
        seats = self.ready
        if seats <= 1:
            return 1
        episodes = math.prod(job.shape) * job.episodes_per_return
        return max(
            seats, min(PARTS_PER_CHILD * seats, episodes // max(SMALLEST_PART, self._child_lanes))
        )

    def _hand_out(self) -> None:
        """Give parts that wait to the children that have the fewest."""
        while (found := self._match()) is not None:
            child, part = found
            part.work.begin(_now())
            child.fresh &= part.suspect
            child.parts.append(part)
            child.send(part.frame)
            if len(child.parts) == 1:
                child.silent = 0.0

    def _match(self) -> tuple[Child, Part] | None:
        """A child that has room and the next part for it, which waits no more."""
        free = [child for child in self._children if child.ready and child.room(HELD)]
        for child in sorted(free, key=lambda child: len(child.parts)):
            part = self._waiting.take(fresh=child.fresh)
            if part is not None:
                return child, part
        return None

    async def _recall(self, work: Work) -> None:
        """Stop work on a job, and wait a moment for the children to say what is finished of it."""
        if not work.over.cancel() and not work.over.cancelled():
            work.over.exception()  # seen
        self._waiting.withdraw(work)
        recalled = []
        for child in self._children:
            for part in child.parts:
                if part.work is work:
                    child.send(pipe.frame(pipe.Cancel(part.number)))
                    recalled.append(part)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HAND_OVER_SECONDS):
                for part in recalled:
                    await part.settled.wait()

    async def _keep(self) -> None:
        """Keep a child running; `_started` hears of the first that is ready, or why none is."""
        pause = FIRST_PAUSE
        while True:
            if await self._live():
                pause = FIRST_PAUSE
                continue
            self._resting += 1
            try:
                if self._resting == len(self._keepers):
                    self._waiting.fail(self._trouble)
                elif not any(child.ready and child.fresh for child in self._children):
                    self._waiting.fail_suspects(self._trouble)
                await asyncio.sleep(pause)
            finally:
                self._resting -= 1
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _live(self) -> bool:
        """A child's whole life; whether it ever was ready."""
        child, trouble, tried = None, "", self._tried
        assert self._started is not None
        try:
            child = await Child.spawn()
            self._children.append(child)
            await self._attend(child, tried)
        except (Lost, EnvironmentUnavailable, OSError) as error:
            trouble = str(error)
            self._trouble = f"an evaluation process {error}" if isinstance(error, Lost) else trouble
            if isinstance(error, Lost):
                self._tried += tried == self._tried and not self._started.done()
                self.on_lost(self._trouble)
            given_up = not isinstance(error, Lost) or self._tried == TRIES
            if given_up and not self._started.done():
                self._started.set_exception(error)
        finally:
            if child is not None:
                self._children.remove(child)
                await child.end()
                self._take_back(child, trouble)
        return child is not None and child.ready

    async def _attend(self, child: Child, tried: int) -> None:
        """Bring a child to work, after so many tries, and book what it says until it is lost."""
        await self._configured.wait()
        assert self._spec is not None
        self._tell_run(child, tried)
        while True:
            reply = await child.hear(self._spec)
            child.silent = 0.0
            if isinstance(reply, pipe.Unavailable):
                raise EnvironmentUnavailable(reply.reason)
            if isinstance(reply, pipe.Ready):
                child.found = reply
                assert self._started is not None
                if not self._started.done():
                    self._started.set_result(None)
                self.on_ready()
            elif isinstance(reply, pipe.Unread):
                # What was asked of this version meanwhile fails, and says why.
                if (again := self._thetas.again(reply.version)) is not None:
                    self._send(again)
            elif not isinstance(reply, pipe.Alive):
                self._book(child, reply)
            self._hand_out()

    def _tell_run(self, child: Child, tried: int) -> None:
        """Let a child try out the run, after so many tries, and have what is there of it."""
        child.configured = True
        trial = max(0, tried - 1)
        child.send(pipe.frame(msgspec.structs.replace(self._configure, trial=trial)))
        for frame in self._thetas.frames:
            child.send_soon(frame)

    def _patience_with(self, child: Child) -> float:
        return self.patience if child.ready else STARTS_LONGER * self.patience

    def _book(self, child: Child, reply: pipe.Evaluated | pipe.Failed) -> None:
        """Note what a child says of a part that it has. Raises `Lost`."""
        part = next((part for part in child.parts if part.number == reply.part), None)
        if part is None:
            raise Lost(f"answered part {reply.part}, which it does not have")
        if isinstance(reply, pipe.Failed):
            part.work.fail(reply.reason)
        else:
            assert self._spec is not None
            try:
                evaluation = answers.evaluation(self._spec, part.rest, reply)
            except (WireError, ValueError) as error:
                raise Lost(f"gave no proper result: {error}") from None
            part.work.add(evaluation)
            part.finished += len(evaluation.returns)
            if part.finished < part.job.count:
                return
        child.parts.remove(part)
        part.settled.set()
        child.answered += 1
        self._weigh(child)

    async def _watch(self) -> None:
        """Look for ever at how the children are, and whether there is something to tell."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for child in self._children:
                child.flush()
                self._weigh(child)
                self._await_word(child)
            moment = _now()
            for work, tell in self._telling.items():
                if work.due(moment):
                    tell()

    def _await_word(self, child: Child) -> None:
        """End a child that owes a word and is silent for too long.

        Silence is counted by looks: while this process itself stands still, stopped or on a machine
        that sleeps, it hears nothing, and that is nobody's fault.
        """
        owes = bool(child.parts) if child.ready else self._configured.is_set()
        child.silent = child.silent + LOOK_SECONDS if owes else 0.0
        if self._spec is not None and child.silent >= (patience := self._patience_with(child)):
            doing = "a step or reset of" if child.ready else "loading or trying out"
            module = self._spec.policy.module  # whose code is not ours either
            policy = f", or its policy {module}," if module else ""
            child.give_up(
                f"said nothing for {patience:g} s: {doing} {self._spec.environment.id}{policy} "
                "does not come to an end"
            )

    def _weigh(self, child: Child) -> None:
        if self.memory_limit is not None:
            child.weigh(self.memory_limit)

    def _take_back(self, child: Child, trouble: str) -> None:
        """Find a fresh one for what a lost child had, since any of it may have been its end."""
        while child.parts:
            part = child.parts.pop(0)
            part.settled.set()
            if not part.work.over.done():
                self._suspect(part, child, trouble)
        self._hand_out()

    def _suspect(self, part: Part, child: Child, trouble: str) -> None:
        """Try what a lost child had once more, or blame it if the child had nothing else."""
        work = part.work
        if not part.suspect:
            self._waiting.suspect(part)
        elif child.outgrown and child.answered:
            self._waiting.suspect_again(part)
        elif child.struck or work.crashed == MOST_CRASHED:
            work.fail(self._trouble)
        else:
            assert self._spec is not None
            work.crashed += 1
            work.add(answers.crashed(self._spec, part.job, f"twice its process {trouble}"))


def _now() -> float:
    return asyncio.get_running_loop().time()
