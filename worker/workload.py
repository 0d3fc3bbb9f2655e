"""The tasks of a session, from the coordinator's word to its answer. Pure.

Tasks wait until their version is here, are evaluated, and become results that are kept until they
are answered for; or they become a refusal that says why.
"""

from __future__ import annotations

from collections import Counter
from random import Random

from protocol.messages import Cause, Held, Outcome, Refusal, Result, ResultName, Task
from protocol.packing import WireError
from protocol.spec import RunSpec
from worker import replica
from worker.commands import Abandon, Evaluate, Say
from worker.evaluation.jobs import Evaluation, EvaluationJob
from worker.leases import MOST_HELD, Lease, Leases, unfit
from worker.outbox import Outbox
from worker.replica import Replica, Standing
from worker.results import NoResultError, result_of

WAIT_FOR_VERSION = 30.0
"""Seconds that a task may wait for its version."""

Deed = Evaluate | Abandon | Say | Refusal | replica.Command


class Workload:
    """What a session has to do, is doing and has done.

    Attributes:
        done, episodes, steps: of the tasks evaluated so far.
        outcomes: how many results were accepted, late, duplicate or refused.
    """

    def __init__(self, spec: RunSpec, following: Replica, random: Random) -> None:
        """`following`: the replica that has, or will have, the versions to evaluate."""
        self.leases = Leases()
        self.outbox = Outbox(random)
        self.done = 0
        self.episodes = 0
        self.steps = 0
        self.outcomes: Counter[str] = Counter()
        self._spec = spec
        self._replica = following

    def take(self, task: Task, now: float) -> list[Deed]:
        """Hold a task, or refuse what can't be of this run. Raises `WireError` for a duplicate."""
        if len(self.leases) >= MOST_HELD:
            return [_refusal(task, "handed-back", f"{MOST_HELD} tasks are held already")]
        if not self.leases.take(task, now):
            raise WireError(f"task {task.task} came twice")
        misfit = unfit(task, self._spec)
        if misfit:
            self.leases.end(task.task)
            said = Say(f"refused task {task.task}: {misfit}", warning=True)
            return [said, _refusal(task, "spec", misfit)]
        return [*self._replica.known(task.version, task.digest, now)]

    def proceed(self, now: float) -> list[Deed]:
        """Start what can be started, refuse what never can."""
        deeds: list[Deed] = []
        for lease in self.leases.waiting:
            task = lease.task
            standing = self._replica.standing(task.version, task.digest)
            if standing == "ready":
                deeds.append(self._start(lease))
            elif standing != "ahead" or now - lease.since >= WAIT_FOR_VERSION:
                self.leases.end(task.task)
                deeds.append(_refusal(task, "gone", self._why_gone(standing, task)))
        return deeds

    def evaluated(self, task: int, evaluation: Evaluation, now: float) -> list[Deed]:
        """A task's returns are here: keep its result, unless no message could hold it."""
        lease = self.leases.end(task)
        if lease is None:
            return []
        self.done += 1
        self.steps += int(evaluation.lengths.sum())
        per_member = lease.task.episodes if lease.task.kind == "members" else 1
        self.episodes += evaluation.returns.size * per_member
        deeds = self._unpin(lease, now)
        try:
            self.outbox.add(result_of(lease.task, evaluation), now)
        except NoResultError as error:
            deeds.append(_refusal(lease.task, "spec", str(error)))
        return deeds

    def failed(self, task: int, reason: str, now: float) -> list[Deed]:
        """A task came to nothing through this machine's fault."""
        lease = self.leases.end(task)
        if lease is None:
            return []
        said = Say(f"task {task} failed here: {reason}", warning=True)
        return [said, *self._unpin(lease, now), _refusal(lease.task, "worker", reason)]

    def give_up(self, leases: list[Lease], cause: Cause, reason: str, now: float) -> list[Deed]:
        """Stop work on these leases and refuse them."""
        deeds: list[Deed] = []
        for lease in leases:
            self.leases.end(lease.task.task)
            if lease.running:
                deeds.append(Abandon(lease.task.task))
            deeds += self._unpin(lease, now)
            deeds.append(_refusal(lease.task, cause, reason))
        return deeds

    @property
    def held(self) -> tuple[Held, ...]:
        """The leases that we can answer, of whatever epoch: those at work first, then those that
        wait, then those whose results nobody has answered for."""
        leases = (*self.leases.running, *self.leases.waiting)
        named = [_named(lease.task) for lease in leases]
        named += [_named(result) for result in self.outbox.results]
        return tuple(named[:MOST_HELD])

    def welcomed(self, now: float) -> None:
        """A coordinator began our session anew, and may lack our results.

        What we hold goes on. The hello named it: who kept those leases, or issued them again,
        waits for the results; anybody else may count them by their tokens if they come first.
        """
        self.outbox.make_due(now)

    def answered(
        self, results: tuple[ResultName, ...], outcome: Outcome, reason: str
    ) -> list[Deed]:
        """The coordinator answers for results."""
        found = self.outbox.acknowledge(results)
        self.outcomes[outcome] += found
        if found and outcome == "refused":
            return [Say(f"the coordinator refused {found} of our results: {reason}", warning=True)]
        return []

    def _start(self, lease: Lease) -> Evaluate:
        task, point = lease.task, self._replica.points[lease.task.version]
        lease.running = True
        self._replica.pin(task.version)
        job = EvaluationJob(
            kind=task.kind,
            version=task.version,
            first=task.first,
            count=task.count,
            episodes=task.episodes,
            sigma=point.sigma,
        )
        return Evaluate(task.task, job, point)

    def _unpin(self, lease: Lease, now: float) -> list[Deed]:
        return [*self._replica.unpin(lease.task.version, now)] if lease.running else []

    def _why_gone(self, standing: Standing, task: Task) -> str:
        ours = self._replica.version
        if standing == "ahead":
            return f"did not get from version {ours} to {task.version} in {WAIT_FOR_VERSION:.0f} s"
        if standing == "differs":
            return f"our version {task.version} has other parameters"
        return f"version {task.version} is no longer kept, we are at {ours}"


def _refusal(task: Task, cause: Cause, reason: str) -> Refusal:
    return Refusal(task.task, task.token, cause, reason[:500])


def _named(one: Task | Result) -> Held:
    return Held(one.task, one.kind, one.version, one.first, one.count, one.episodes, one.token)
