"""The parts that jobs are cut into, and those of them that wait for a process."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field, replace
from itertools import count

from worker.evaluation import pipe
from worker.evaluation.jobs import EvaluationJob, split
from worker.evaluation.progress import Work


@dataclass(eq=False)
class Part:
    """A part of a job that one process has, will have, or had.

    Attributes:
        suspect: a process that had it was lost, and it is tried once more.
        finished: directions, or episodes of the centre, from the first on, that it told.
        settled: set once nothing more of it comes from the process that had it.
    """

    number: int
    work: Work
    job: EvaluationJob
    suspect: bool = False
    finished: int = 0
    settled: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def frame(self) -> bytes:
        """What tells a process to evaluate it."""
        job = self.job
        request = pipe.Evaluate(
            self.number,
            job.kind,
            job.version,
            job.first,
            job.count,
            job.episodes,
            job.sigma,
            job.cap,
            job.per_direction,
        )
        return pipe.frame(request)

    @property
    def rest(self) -> EvaluationJob:
        """What is not finished of it."""
        job, done = self.job, self.finished
        return replace(job, first=job.first + done, count=job.count - done)


class Waiting:
    """Parts that no process has, in order.

    Suspects wait apart. They are for fresh processes only, which take them before anything else,
    one direction at a time: so it is known which of them ends a process, and nothing else can.
    """

    def __init__(self) -> None:
        self._usual: deque[Part] = deque()
        self._suspects: deque[Part] = deque()
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._usual) + len(self._suspects)

    def add(self, work: Work, pieces: int) -> None:
        """A job comes, to be cut into so many parts."""
        self._usual.extend(Part(next(self._numbers), work, job) for job in split(work.job, pieces))

    def suspect(self, part: Part) -> None:
        """A process was lost over a part: what it did not finish is tried once more."""
        self._suspects.append(Part(next(self._numbers), part.work, part.rest, suspect=True))

    def suspect_again(self, part: Part) -> None:
        """A process was lost over a suspect, by what it had done before: the suspect is the first
        that the next fresh one gets."""
        again = Part(next(self._numbers), part.work, part.rest, suspect=True)
        self._suspects.appendleft(again)

    def take(self, *, fresh: bool) -> Part | None:
        """The next part for a process, which has had nothing but suspects where it is `fresh`."""
        if fresh and self._suspects:
            return self._take_suspect()
        return self._usual.popleft() if self._usual else None

    def withdraw(self, work: Work) -> None:
        """Nobody waits for a job any more."""
        self._usual = deque(part for part in self._usual if part.work is not work)
        self._suspects = deque(part for part in self._suspects if part.work is not work)

    def fail(self, reason: str) -> None:
        """No process is left: fail the jobs of all that waits."""
        self.fail_suspects(reason)
        for part in self._usual:
            part.work.fail(reason)
        self._usual.clear()

    def fail_suspects(self, reason: str) -> None:
        """No fresh process comes: fail the jobs of what waits for one."""
        for part in self._suspects:
            part.work.fail(reason)
        self._suspects.clear()

    def _take_suspect(self) -> Part:
        part, job = self._suspects[0], self._suspects[0].job
        if job.count == 1:
            return self._suspects.popleft()
        part.job = replace(job, first=job.first + 1, count=job.count - 1)
        return Part(next(self._numbers), part.work, replace(job, count=1), suspect=True)
