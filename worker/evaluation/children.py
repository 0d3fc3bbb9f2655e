"""The daemon's side of evaluation: child processes, fed with parts of jobs, replaced on failure."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import os
import signal
import sys
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from protocol import normalizer, spec
from protocol.packing import WireError
from protocol.spec import RunSpec
from worker.evaluation import pipe
from worker.evaluation.jobs import (
    EnvironmentUnavailable,
    Evaluation,
    EvaluationJob,
    Normalization,
    WorkerFailure,
    join,
    split,
)
from worker.threads import in_thread

HELD = 2  # parts a child has at once: the one in hand and the next
PARTS_PER_CHILD = 2  # of a job, so that who is done early takes some of another's share
SMALLEST_PART = 16  # episodes: fewer would leave lanes empty
TRIES = 3
"""Children that may be lost, whatever killed them, before a start is given up."""
STARTS_LONGER = 10  # times the patience: kernels may have to be compiled on a slow machine
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0  # seconds before a child that did not start is tried again
SINGLE_THREADED = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"
)
LARGE = 1 << 20  # parameters that are copied beside the event loop
LAST_WORDS = 2048  # bytes kept of what a child writes to its error stream


class Lost(Exception):  # noqa: N818 - what happened to the child, said as such
    """A child is gone or past hope; the message says how."""


@dataclasses.dataclass(eq=False)
class Part:
    """A part of a job on its way."""

    number: int
    job: EvaluationJob
    result: asyncio.Future[Evaluation]


class Child:
    """One process, from its start to its end.

    Attributes:
        ready: whether it can evaluate yet.
        parts: handed out to it and not answered, in order: the first is in hand.
        patience: the deadline of its next word.
        ending: whether it is past hope.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin and process.stdout and process.stderr
        self.process = process
        self.ready = False
        self.parts: deque[Part] = deque()
        self.patience = asyncio.timeout(None)
        self.ending = False
        self._requests, self._replies, self._errors = process.stdin, process.stdout, process.stderr
        self._last_words = b""
        self._listening = asyncio.create_task(self._collect_words())

    @classmethod
    async def spawn(cls) -> Child:
        """A new process, in a session of its own: a terminal's Ctrl-C does not reach it."""
        search = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # modules come from this process's search path, not from the current folder
            "-m",
            "worker.evaluation.child",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **SINGLE_THREADED, "PYTHONPATH": search},
            start_new_session=True,
        )
        return cls(process)

    def send(self, frame: bytes) -> None:
        """Send a frame; it is lost where the process is gone, as `hear` will tell."""
        self._requests.write(frame)

    async def drain(self) -> None:
        """Wait until little of what was sent is still here."""
        with contextlib.suppress(ConnectionError):
            await self._requests.drain()

    async def hear(self, limit: int) -> pipe.Reply:
        """The next reply, of at most `limit` bytes. Raises `Lost`."""
        try:
            size = pipe.length(await self._replies.readexactly(pipe.HEADER), limit)
            return pipe.reply(await self._replies.readexactly(size))
        except (asyncio.IncompleteReadError, ConnectionError):
            raise Lost(await self.end()) from None
        except WireError as error:
            raise Lost(f"an evaluation process spoke out of turn: {error}") from None

    def kill(self) -> None:
        """End the process and what it started, at once."""
        self.ending = True
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if sys.platform == "win32":
                    self.process.kill()
                else:
                    os.killpg(self.process.pid, signal.SIGKILL)

    async def end(self) -> str:
        """See the process to its end, which comes at once; says how it was."""
        self.kill()
        code = await self.process.wait()
        await asyncio.wait({self._listening}, timeout=1.0)
        self._listening.cancel()
        self._requests.close()
        how = f"exit code {code}" if code >= 0 else f"signal {-code}"
        with contextlib.suppress(ValueError):
            how = signal.Signals(-code).name
        lines = self._last_words.decode(errors="replace").split("\n")
        said = " ".join(next((line for line in reversed(lines) if line.strip()), "").split())[:200]
        return f"an evaluation process died ({how})" + (f", after saying: {said}" if said else "")

    async def _collect_words(self) -> None:
        """Keep the last of what the process, environment included, writes to its error stream."""
        while data := await self._errors.read(1 << 16):
            self._last_words = (self._last_words + data)[-LAST_WORDS:]


async def _to_its_end(child: Child) -> None:
    """`child.end`, which a cancellation waits for: what is cut off half-way stays open."""
    ending = asyncio.ensure_future(child.end())
    try:
        await asyncio.shield(ending)
    except asyncio.CancelledError:
        await ending
        raise


class Evaluators:
    """Evaluates jobs in child processes; used from one event loop.

    A child that dies, or says nothing for `patience` seconds while it has work, is replaced: the
    part that it had in hand fails with its job, the others go on. Use it on a thread that lives as
    long, since Linux ends a child with the thread that started it.

    Args:
        patience: in seconds; longer than any one step or reset of an environment takes, and than
            the second or so between the signs of life of a child at work.

    Attributes:
        speed: environment steps per second of all children together, measured at their start.
        numeric_class: 16 bytes, or none where the environment does not repeat itself.
    """

    def __init__(self, patience: float = 60.0) -> None:
        self.patience = patience
        self.speed = 0.0
        self.numeric_class = b""
        self._spec: RunSpec | None = None
        self._configure = b""
        self._configured = asyncio.Event()
        self._lost_early = 0
        """children lost, which counts until all have started"""
        self._starts: list[asyncio.Future[pipe.Ready]] = []
        self._thetas: dict[int, bytes] = {}
        self._keepers: list[asyncio.Task[None]] = []
        self._children: list[Child] = []
        self._queue: deque[Part] = deque()
        self._numbers = itertools.count()
        self._resting = 0
        """children that did not start and will be tried again"""
        self._trouble = "evaluation has not been started"

    def prepare(self, children: int = 1) -> None:
        """Start children before their run is known, since what any run needs takes time to load."""
        loop = asyncio.get_running_loop()
        self._starts = [loop.create_future() for _ in range(children)]
        self._keepers = [asyncio.create_task(self._keep(started)) for started in self._starts]

    async def start(
        self, run_spec: RunSpec, children: int = 1, allowed: Sequence[str] = ()
    ) -> None:
        """Start the children, unless they are prepared, and wait until all can evaluate.

        Args:
            allowed: modules that the volunteer lets register environments.

        Raises:
            EnvironmentUnavailable: this machine can't run the environment, and why.
        """
        self._spec = run_spec
        self._configure = pipe.frame(pipe.Configure(spec.to_bytes(run_spec), tuple(allowed)))
        self._configured.set()
        if not self._keepers:
            self.prepare(children)
        try:
            found = await asyncio.gather(*self._starts)
        except BaseException as error:
            await self.close()
            if isinstance(error, Lost):
                raise EnvironmentUnavailable(
                    f"{run_spec.environment.id} can't be evaluated here: {error}"
                ) from None
            raise
        self.speed = sum(ready.speed for ready in found)
        classes = {ready.numeric_class for ready in found}
        self.numeric_class = classes.pop() if len(classes) == 1 else b""

    async def set_theta(
        self,
        version: int,
        theta: NDArray[np.float32],
        normalization: Normalization | None = None,
    ) -> None:
        """Give all children a version's parameters, to be kept until `drop`.

        Args:
            theta: float32, shape (size,).
            normalization: of the version, where the spec has the normaliser on.
        """

        def make() -> bytes:
            parameters = np.ascontiguousarray(theta, dtype=np.float32).tobytes()
            columns = normalization.to_bytes() if normalization else None
            return pipe.frame(pipe.Theta(version, parameters, columns))

        large = theta.size > LARGE
        frame = self._thetas[version] = await in_thread(make) if large else make()
        for child in list(self._children):
            child.send(frame)
            if large:
                await asyncio.sleep(0.0)  # each takes a copy
        await asyncio.gather(*(child.drain() for child in self._children))

    def drop(self, version: int) -> None:
        """Forget a version's parameters; jobs that still wait in the queue for them fail."""
        if self._thetas.pop(version, None) is not None:
            for child in self._children:
                child.send(pipe.frame(pipe.Drop(version)))

    async def evaluate(self, job: EvaluationJob) -> Evaluation:
        """The returns of a job; jobs asked for at the same time are evaluated in that order.

        Cancelling it stops the work within a step of the environment.

        Raises:
            WorkerFailure: a child died or hung over it, or its version is not here.
        """
        if self._resting == len(self._keepers):
            raise WorkerFailure(self._trouble)
        if job.version not in self._thetas:
            raise WorkerFailure(f"version {job.version} is not among the parameters kept here")
        loop = asyncio.get_running_loop()
        parts = [
            Part(next(self._numbers), piece, loop.create_future())
            for piece in split(job, self._pieces(job))
        ]
        self._queue.extend(parts)
        self._hand_out()
        try:
            return join(await asyncio.gather(*(part.result for part in parts)))
        finally:
            for part in parts:
                self._withdraw(part)

    async def close(self) -> None:
        """End all children at once; jobs that are still waited for fail."""
        self._trouble = "evaluation has been closed"
        for child in self._children:
            child.kill()
        keepers, self._keepers = self._keepers, []
        for keeper in keepers:
            keeper.cancel()
        await asyncio.gather(*keepers, return_exceptions=True)
        self._fail_queue()

    def _pieces(self, job: EvaluationJob) -> int:
        """Into how many parts a job is cut."""
        seats = len(self._keepers)
        if seats == 1:
            return 1
        episodes = job.count * (2 * job.episodes if job.kind == "members" else 1)
        return max(seats, min(PARTS_PER_CHILD * seats, episodes // SMALLEST_PART))

    def _hand_out(self) -> None:
        """Give queued parts to the children that have the fewest."""
        while self._queue:
            free = [
                child
                for child in self._children
                if child.ready and not child.ending and len(child.parts) < HELD
            ]
            if not free:
                return
            child = min(free, key=lambda child: len(child.parts))
            part = self._queue.popleft()
            child.parts.append(part)
            child.send(pipe.frame(pipe.Evaluate(part.number, *dataclasses.astuple(part.job))))
            if len(child.parts) == 1:
                self._renew(child)

    def _withdraw(self, part: Part) -> None:
        """Stop work on a part where nobody waits for it any more."""
        if part.result.done():
            if not part.result.cancelled():
                part.result.exception()  # seen, even if another part's came first
                return
        else:
            part.result.cancel()
        if part in self._queue:
            self._queue.remove(part)
        for child in self._children:
            if part in child.parts:
                child.send(pipe.frame(pipe.Cancel(part.number)))

    async def _keep(self, started: asyncio.Future[pipe.Ready]) -> None:
        """Keep a child running; `started` hears how the first one starts."""
        pause = FIRST_PAUSE
        while True:
            if await self._live(started):
                pause = FIRST_PAUSE
                continue
            self._resting += 1
            try:
                if self._resting == len(self._keepers):
                    self._fail_queue()
                await asyncio.sleep(pause)
            finally:
                self._resting -= 1
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _live(self, started: asyncio.Future[pipe.Ready]) -> bool:
        """A child's whole life; whether it ever was ready."""
        child = None
        try:
            child = await Child.spawn()
            self._children.append(child)
            await self._attend(child, started)
        except (Lost, EnvironmentUnavailable, OSError) as error:
            self._trouble = str(error)
            self._lost_early += isinstance(error, Lost)
            given_up = not isinstance(error, Lost) or self._lost_early >= TRIES
            if given_up and not started.done():
                started.set_exception(error)
        finally:
            if child is not None:
                self._children.remove(child)
                await _to_its_end(child)
                self._take_back(child)
        return child is not None and child.ready

    async def _attend(self, child: Child, started: asyncio.Future[pipe.Ready]) -> None:
        """Bring a child to work and book what it says, until it is lost."""
        await self._configured.wait()
        assert self._spec is not None
        child.send(self._configure)
        for frame in self._thetas.values():
            child.send(frame)
        try:
            async with child.patience:
                while True:
                    self._renew(child)
                    directions = child.parts[0].job.count if child.parts else 0
                    reply = await child.hear(pipe.reply_limit(self._spec, directions))
                    if isinstance(reply, pipe.Unavailable):
                        raise EnvironmentUnavailable(reply.reason)
                    if isinstance(reply, pipe.Ready):
                        child.ready = True
                        if not started.done():
                            started.set_result(reply)
                    elif not isinstance(reply, pipe.Alive):
                        self._book(child, reply)
                    self._hand_out()
        except TimeoutError:
            doing = "a step or reset of" if child.ready else "loading or trying out"
            raise Lost(
                f"an evaluation process said nothing for {self._patience_with(child):g} s: {doing} "
                f"{self._spec.environment.id} does not come to an end"
            ) from None

    def _renew(self, child: Child) -> None:
        """Wait anew for a child's next word, or for ever where it owes none."""
        owes = child.parts or not child.ready
        now = asyncio.get_running_loop().time()
        child.patience.reschedule(now + self._patience_with(child) if owes else None)

    def _patience_with(self, child: Child) -> float:
        return self.patience if child.ready else STARTS_LONGER * self.patience

    def _book(self, child: Child, reply: pipe.Evaluated | pipe.Failed) -> None:
        """Settle the part that a child had in hand. Raises `Lost`."""
        if not child.parts or child.parts[0].number != reply.part:
            raise Lost(f"an evaluation process answered part {reply.part} out of turn")
        part = child.parts.popleft()
        if part.result.done():
            return
        if isinstance(reply, pipe.Failed):
            part.result.set_exception(WorkerFailure(reply.reason))
            return
        assert self._spec is not None
        try:
            part.result.set_result(_evaluation(self._spec, part.job, reply))
        except (WireError, ValueError) as error:
            child.parts.appendleft(part)
            raise Lost(f"an evaluation process gave no proper result: {error}") from None

    def _take_back(self, child: Child) -> None:
        """Fail what a lost child had in hand, and queue again what it had not begun."""
        if child.parts:
            in_hand = child.parts.popleft()
            if not in_hand.result.done():
                in_hand.result.set_exception(WorkerFailure(self._trouble))
        self._queue.extendleft(part for part in reversed(child.parts) if not part.result.done())
        self._hand_out()

    def _fail_queue(self) -> None:
        while self._queue:
            part = self._queue.popleft()
            if not part.result.done():
                part.result.set_exception(WorkerFailure(self._trouble))


def _evaluation(run_spec: RunSpec, job: EvaluationJob, reply: pipe.Evaluated) -> Evaluation:
    """The evaluation in a reply, with as many values as the job asks for.

    Raises `WireError` or `ValueError`.
    """
    dims = run_spec.environment.observation.size
    if any(not job.first <= one < job.first + job.count for one, _ in reply.failed):
        raise WireError("a failed direction is not of the part")
    return Evaluation(
        returns=np.frombuffer(reply.returns, np.float64).reshape(job.shape),
        lengths=np.frombuffer(reply.lengths, np.int64).reshape(job.shape),
        observed=normalizer.from_bytes(reply.observed, dims) if reply.observed else None,
        failed=reply.failed,
        seconds=reply.seconds,
    )
