"""How far a job is: what is finished of it, told already, and still to be done."""

from __future__ import annotations

import asyncio

from worker.evaluation.jobs import Evaluation, EvaluationJob, WorkerFailure, join

TELL_SECONDS = 5.0
"""What is finished of a job is told so often."""
SOON_SECONDS = 1.0
"""It is told that much later where the job may be at its end by then."""


class Work:
    """A job on its way.

    Attributes:
        over: done once nothing is missing, or with the `WorkerFailure` that ended it.
        missing: directions, or episodes of the centre, that are not finished.
        crashed: those among the finished that end the process that plays them.
    """

    def __init__(self, job: EvaluationJob) -> None:
        self.job = job
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.missing = job.count
        self.crashed = 0
        self._finished: list[Evaluation] = []
        self._began: float | None = None
        self._told = 0.0

    def begin(self, now: float) -> None:
        """The first part of it is handed out."""
        if self._began is None:
            self._began = self._told = now

    def add(self, evaluation: Evaluation) -> None:
        """Some consecutive directions are finished."""
        self._finished.append(evaluation)
        self.missing -= len(evaluation.returns)
        if not self.missing and not self.over.done():
            self.over.set_result(None)

    def fail(self, reason: str) -> None:
        """Nothing more will come, by the fault of this machine."""
        if not self.over.done():
            self.over.set_exception(WorkerFailure(reason))

    def due(self, now: float) -> bool:
        """Whether to tell what is finished though there is more to come."""
        if self._began is None or not self._finished or not self.missing:
            return False
        left = (now - self._began) * self.missing / (self.job.count - self.missing)
        return now - self._told >= TELL_SECONDS + (SOON_SECONDS if left < SOON_SECONDS else 0.0)

    def take(self, now: float) -> list[Evaluation]:
        """What is finished and was not taken before, in order and in as few pieces as it gives."""
        runs: list[list[Evaluation]] = []
        for piece in sorted(self._finished, key=lambda piece: piece.first):
            if runs and runs[-1][-1].end == piece.first:
                runs[-1].append(piece)
            else:
                runs.append([piece])
        self._finished.clear()
        self._told = now
        return [join(run) for run in runs]
