"""The tasks of a session, from the coordinator's word to its answer. Pure.

Tasks wait until their version is here, are evaluated, and become results that are kept until they
are answered for; or they become a refusal that says why. What takes long becomes several results,
each of a part: those that were sent count, whatever comes of the rest.
"""

from __future__ import annotations

import math
from collections import Counter
from random import Random

from protocol.messages import (
    MAX_REASON,
    Cause,
    Held,
    Outcome,
    Refusal,
    Result,
    ResultName,
    Task,
    Update,
)
from protocol.packing import WireError
from protocol.spec import RunSpec
from worker import replica
from worker.commands import Abandon, Evaluate, Say
from worker.counting import Counting
from worker.evaluation.jobs import Evaluation, EvaluationJob
from worker.leases import MOST_HELD, Lease, Leases, unfit
from worker.limits import TASK_SECONDS
from worker.outbox import MOST_BYTES, Outbox
from worker.pace import Rhythm, Tempo
from worker.replica import Replica, Standing
from worker.results import NoResultError, result_of

LONGEST_LOOK = 2.0
"""Seconds between two looks that may have gone into a task: what is longer, this machine slept."""
WAIT_FOR_VERSION = 30.0
"""Seconds that a task may wait for its version."""

Deed = Evaluate | Abandon | Say | Refusal | replica.Command


class Workload:
    """What a session has to do, is doing and has done.

    Attributes:
        done: tasks evaluated so far.
        episodes, steps: of them, and of parts of others.
        outcomes: how many results were accepted, late, duplicate or refused.
        counting: what the updates used of us.
        rhythm: when updates come.
    """

    def __init__(
        self,
        spec: RunSpec,
        following: Replica,
        random: Random,
        task_seconds: float = TASK_SECONDS,
        turns: float = math.inf,
    ) -> None:
        """`following`: the replica that has, or will have, the versions to evaluate;
        `task_seconds`: that one task is worked on at most; `turns`: tasks that begin by themselves,
        further ones when `begin` is called."""
        self.leases = Leases()
        self.outbox = Outbox(random)
        self.done = 0
        self.episodes = 0
        self.steps = 0
        self.outcomes: Counter[str] = Counter()
        self.counting = Counting()
        self.rhythm = Rhythm()
        self._spec = spec
        self._task_seconds = task_seconds
        self._turns = turns
        self._looked = math.inf
        """when `proceed` was called last"""
        self._replica = following
        self._tempo = Tempo()
        self._given_back: set[int] = set()
        """tasks whose results that are out are all that will ever come"""

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
        self.counting.began(task.version)
        return [*self._replica.known(task.version, task.digest, now)]

    def proceed(self, now: float) -> list[Deed]:
        """Start what can be started, refuse what never can, end what takes too long."""
        deeds: list[Deed] = []
        passed = max(0.0, min(now - self._looked, LONGEST_LOOK))
        self._looked = now
        if running := self.leases.running:
            self._tempo.worked(passed)
        for lease in running:
            lease.worked += passed
            if lease.worked >= self._task_seconds and not lease.ending:
                text = f"not over after {self._task_seconds:,.0f} s (--task-limit)"
                deeds.append(Say(f"task {lease.task.task}: {text}", warning=True))
                deeds += self.hand_back([lease], text, now)
        for lease in self.leases.waiting:
            task = lease.task
            standing = self._replica.standing(task.version, task.digest)
            if standing == "ready":
                if self._turns:
                    self._turns -= 1
                    deeds.append(self._start(lease))
            elif standing != "ahead" or now - lease.since >= WAIT_FOR_VERSION:
                self.leases.end(task.task)
                deeds.append(_refusal(task, "gone", self._why_gone(standing, task)))
        return deeds

    @property
    def ready(self) -> int:
        """Tasks that could be started, whose turn has not come."""
        tasks = [lease.task for lease in self.leases.waiting]
        return sum(self._replica.standing(task.version, task.digest) == "ready" for task in tasks)

    def begin(self, now: float) -> list[Deed]:
        """It is the turn of one task more."""
        self._turns += 1
        deeds = self.proceed(now)
        self._turns = 0
        return deeds

    def evaluated(self, task: int, evaluation: Evaluation, now: float) -> list[Deed]:
        """Returns of a task, or of a part of it, are here: keep the result until it is answered
        for."""
        lease = self.leases.get(task)
        if lease is None:
            return []
        lease.finished += len(evaluation.returns)
        over = lease.finished == lease.task.count
        self.done += over
        self.steps += int(evaluation.lengths.sum())
        per_member = lease.task.episodes if lease.task.kind == "members" else 1
        episodes = evaluation.returns.size * per_member
        self.episodes += episodes
        self._tempo.finished(episodes)
        try:
            said = self._keep(result_of(lease.task, evaluation), now)
        except NoResultError as error:
            return self.give_up([lease], "spec", str(error), now)
        return [*said, *(self._end(lease, now) if over else [])]

    def _keep(self, result: Result, now: float) -> list[Deed]:
        """Keep a result; where that costs earlier ones their place, the volunteer hears of the
        first, and then ever more rarely."""
        before = self.outbox.let_go
        self.outbox.add(result, now)
        lost = self.outbox.let_go
        if lost.bit_length() == before.bit_length():
            return []
        results = f"{lost:,} result{'s' * (lost != 1)}"
        text = (
            f"{results} let go, to be evaluated again: more than {MOST_BYTES >> 20} MiB wait for "
            "an answer of the host; see why it gives none"
        )
        return [Say(text, warning=True)]

    def failed(self, task: int, reason: str, now: float) -> list[Deed]:
        """A task, or the rest of it, came to nothing through this machine's fault."""
        lease = self.leases.get(task)
        if lease is None:
            return []
        said = Say(f"task {task} failed here: {reason}", warning=True)
        return [said, *self._refuse(lease, "worker", reason, now)]

    def abandoned(self, task: int, now: float) -> list[Deed]:
        """The evaluation processes let go of a task: the rest of it goes to others."""
        lease = self.leases.get(task)
        return [] if lease is None else self._refuse(lease, "handed-back", lease.ending, now)

    def hand_back(self, leases: list[Lease], reason: str, now: float) -> list[Deed]:
        """Give these leases back; what is finished of those at work comes before."""
        deeds: list[Deed] = []
        for lease in leases:
            if not lease.running:
                deeds += self._refuse(lease, "handed-back", reason, now)
            elif not lease.ending:
                lease.ending = reason
                deeds.append(Abandon(lease.task.task))
        return deeds

    def give_up(self, leases: list[Lease], cause: Cause, reason: str, now: float) -> list[Deed]:
        """Refuse these leases; whatever is still evaluated of them is not wanted."""
        deeds: list[Deed] = []
        for lease in leases:
            if lease.running and not lease.ending:
                deeds.append(Abandon(lease.task.task))
            deeds += self._refuse(lease, cause, reason, now)
        return deeds

    @property
    def held(self) -> tuple[Held, ...]:
        """The leases that we can answer, of whatever epoch: those at work first, then those that
        wait, then those whose results nobody has answered for."""
        leases = (*self.leases.running, *self.leases.waiting)
        named = {lease.task.task: lease.task.lease for lease in leases}
        for result in self.outbox.results:
            named.setdefault(result.task, result.lease)
        ending = {lease.task.task for lease in leases if lease.ending}
        for task in self._given_back | ending:
            named.pop(task, None)
        return tuple(named.values())[:MOST_HELD]

    def followed(self, update: Update, now: float) -> None:
        """The replica has applied an update."""
        self.counting.update(update)
        self.rhythm.update(now)

    @property
    def seconds_left(self) -> float | None:
        """That what runs may take still; None while no pace is known."""
        return self._tempo.left(sum(self._episodes_left(lease) for lease in self.leases.running))

    def _episodes_left(self, lease: Lease) -> int:
        task = lease.task
        directions = task.count - lease.finished
        if task.kind != "members":
            return directions
        return directions * self._spec.members_per_direction * task.episodes

    def welcomed(self, now: float) -> None:
        """A coordinator began our session anew, and may lack our results.

        What we hold goes on. The hello named it: who kept those leases, or issued them again,
        waits for the results; anybody else may count them by their tokens if they come first.
        """
        self.outbox.make_due(now)

    def answered(
        self, results: tuple[ResultName, ...], outcome: Outcome, reason: str, now: float
    ) -> list[Deed]:
        """The coordinator answers for results."""
        if outcome == "accepted":
            self.counting.accepted(self.outbox.named(results))
        found = self.outbox.acknowledge(results)
        self.outcomes[outcome] += found
        if self._given_back:
            self._given_back &= {result.task for result in self.outbox.results}
        if found and outcome == "refused":
            return [Say(f"the host refused {found} of our results: {reason}", warning=True)]
        if outcome == "late":
            # What follows of these would be later still.
            tasks = dict.fromkeys(name[0] for name in results if isinstance(name, tuple))
            rest = [lease for task in tasks if (lease := self.leases.get(task)) is not None]
            return self.hand_back(rest, f"a part of it is late: {reason}", now)
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
            cap=point.cap if task.kind == "members" else 0,
            per_direction=self._spec.members_per_direction,
        )
        return Evaluate(task.task, job, point)

    def _refuse(self, lease: Lease, cause: Cause, reason: str, now: float) -> list[Deed]:
        """End a lease, and give back what was not sent of it."""
        if lease.finished:
            self._given_back.add(lease.task.task)
        return [*self._end(lease, now), _refusal(lease.task, cause, reason)]

    def _end(self, lease: Lease, now: float) -> list[Deed]:
        self.leases.end(lease.task.task)
        return [*self._replica.unpin(lease.task.version, now)] if lease.running else []

    def _why_gone(self, standing: Standing, task: Task) -> str:
        ours = self._replica.version
        if standing == "ahead":
            return f"did not get from version {ours} to {task.version} in {WAIT_FOR_VERSION:.0f} s"
        if standing == "differs":
            return f"our version {task.version} has other parameters"
        return f"version {task.version} is no longer kept, we are at {ours}"


def _refusal(task: Task, cause: Cause, reason: str) -> Refusal:
    return Refusal(task.task, task.token, cause, reason[:MAX_REASON])
