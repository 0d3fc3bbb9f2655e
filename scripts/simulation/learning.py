"""Real learning in virtual time: the worker's lanes play the episodes (or a compiled loop the same
ones), the coordinator's rules make the updates; only the seconds are simulated."""

from __future__ import annotations

import dataclasses

import msgspec
import numpy as np

from coordinator import update
from coordinator.pool.centre import Evaluation as CentreEvaluation
from coordinator.pool.events import CloseBatch, Contribution
from protocol import normalizer, replay
from protocol.messages import TaskKind
from protocol.spec import RunSpec
from protocol.state import State
from scripts.simulation.compiled import CompiledLanes, plays
from scripts.simulation.environments import Played
from worker.evaluation import environments
from worker.evaluation.jobs import Evaluation, EvaluationJob, Normalization
from worker.evaluation.lanes import Lanes

LANES = 32
"""Their number never changes a return."""


class Learner:
    """The states of one run by their version, and real episodes at each of them.

    It is an `Environment` to simulated workers, and its `learn` is what a `World` calls with each
    closed batch.
    """

    def __init__(self, spec: RunSpec, update_seconds: float = 0.05) -> None:
        """`update_seconds`: virtual time that an update takes."""
        self.spec = spec
        self.state: State = replay.initial_state(spec)
        """the latest"""
        self.members = 0
        """that counted in an update"""
        self.late = 0
        """of them, evaluated at an earlier version than the one that they changed"""
        self.played = 0
        """members evaluated, whatever came of them"""
        self._rules = replay.arithmetic(spec)
        self._update_seconds = update_seconds
        self._lanes = (
            CompiledLanes(spec)
            if plays(spec)
            else Lanes(spec, environments.maker(spec.environment), LANES)
        )
        # All of them: a slow worker may still have to begin a task of any.
        self._states = {0: self.state}
        self._known: dict[tuple[TaskKind, int, int, int], Evaluation] = {}

    def play(self, kind: TaskKind, version: int, first: int, count: int) -> Played:
        """As `scripts.simulation.environments.Environment` says."""
        if kind == "members":
            self.played += self.spec.members_per_direction * count
        evaluation = self.evaluate(kind, version, first, count)
        return evaluation.returns, evaluation.lengths

    def evaluate(self, kind: TaskKind, version: int, first: int, count: int) -> Evaluation:
        """What a worker finds; a copy of a task is not played once more."""
        key = (kind, version, first, count)
        known = self._known.get(key)
        if known is None:
            state = self._states[version]
            job = EvaluationJob(
                kind,
                version,
                first,
                count,
                self.spec.environment.episodes,
                state.sigma,
                (state.cap or 0) if kind == "members" else 0,
                self.spec.members_per_direction,
            )
            view = Normalization.of(state.normalizer) if state.normalizer else None
            known = self._known[key] = self._lanes.evaluate(job, state.basis, view)
        return known

    def learn(self, closed: CloseBatch) -> float:
        """Make the update of a closed batch; the virtual seconds that it takes."""
        if self.spec.normalizer.enabled:
            seen = tuple(self._observed(part) for part in closed.contributions)
            closed = dataclasses.replace(closed, contributions=seen)
        made = update.make(self.spec, self._rules, self.state, 1, closed)
        self.members += made.members
        self.late += made.update.late
        self.state = made.after
        self._states[made.after.version] = made.after
        oldest = made.after.version - self.spec.versions_kept
        self._known = {key: known for key, known in self._known.items() if key[1] > oldest}
        return self._update_seconds

    def reaches_target(self) -> bool:
        """Whether the latest version does, by the rules of a run's centre evaluations."""
        centre, version = self.spec.centre, self.state.version
        evaluation = CentreEvaluation(
            version,
            centre.episodes,
            centre.screening,
            self.spec.stop.target,
            self.spec.stop.confidence,
        )
        done = 0
        while not evaluation.finished:
            count = evaluation.work.size - done
            evaluation.record(done, *self.play("centre", version, done, count))
            done += count
        return evaluation.reached

    def close(self) -> None:
        """Close the environments."""
        self._lanes.close()

    def _observed(self, part: Contribution) -> Contribution:
        """A contribution with the observation sums of exactly its directions that count."""
        counts = ~np.isnan(part.returns[:, 0])
        edges = np.flatnonzero(np.diff(counts, prepend=False, append=False)) + part.first
        stretches = [
            self.evaluate("members", part.version, begin, end - begin).observed
            for begin, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)
        ]
        sums = normalizer.merge([seen for seen in stretches if seen is not None])
        return msgspec.structs.replace(part, observed=normalizer.to_bytes(sums))
