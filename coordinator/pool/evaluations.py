"""The evaluations of the centre that are under way, judged in the order of their versions."""

from __future__ import annotations

import math

from coordinator.pool.centre import Evaluation
from coordinator.pool.events import CentreJudged, Happened
from protocol.spec import RunSpec


class Evaluations:
    """Those of due versions, and that of the last one; `under_way`, the oldest first."""

    def __init__(self, spec: RunSpec) -> None:
        self.under_way: list[Evaluation] = []
        self.best = -math.inf
        """the highest mean that was judged"""
        self._centre = spec.centre
        self._stop = spec.stop

    def amend(self, spec: RunSpec) -> None:
        """These settings hold now: for evaluations under way, too, since the run ends by the target
        that it has when they are judged."""
        self._stop = spec.stop
        for evaluation in self.under_way:
            evaluation.aim(spec.stop.target, spec.stop.confidence)

    def is_due(self, version: int) -> bool:
        """Whether the run spec asks for that of this version."""
        every = self._centre.evaluate_every
        return every > 0 and version % every == 0

    def of(self, version: int) -> Evaluation | None:
        """That of a version, if it is under way."""
        return next((each for each in self.under_way if each.version == version), None)

    def begin(self, version: int) -> None:
        """Evaluate a version, later than those under way."""
        centre, stop = self._centre, self._stop
        self.under_way.append(
            Evaluation(version, centre.episodes, centre.screening, stop.target, stop.confidence)
        )

    def end(self, evaluation: Evaluation) -> None:
        """It is judged, or given up."""
        self.under_way.remove(evaluation)
        evaluation.work.close()

    @property
    def finished(self) -> Evaluation | None:
        """The oldest one, if it is finished."""
        if not self.under_way or not self.under_way[0].finished:
            return None
        return self.under_way[0]

    def withdraw(self, worker: str) -> int:
        """Take out what a worker evaluated of all of them: how many episodes."""
        return sum(evaluation.withdraw(worker) for evaluation in self.under_way)

    def give_up(self, evaluation: Evaluation, reason: str) -> Happened:
        """It will never be judged."""
        self.end(evaluation)
        return Happened(f"centre evaluation of version {evaluation.version} given up: {reason}")

    def take_finished(self) -> CentreJudged | None:
        """End the oldest one, if it is finished, with its verdict: so every pool comes to the same
        end, in whatever order results come."""
        evaluation = self.finished
        if evaluation is None:
            return None
        self.end(evaluation)
        self.best = max(self.best, evaluation.mean)
        return CentreJudged(
            version=evaluation.version,
            episodes=evaluation.work.size,
            mean=evaluation.mean,
            deviation=evaluation.deviation,
            steps=evaluation.steps,
            full=evaluation.full,
            reached=evaluation.reached,
        )
