"""Keeps account of every direction: who counted, how often, how old, and whether one was lost."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coordinator.pool.events import (
    Arrived,
    CloseBatch,
    Command,
    Event,
    KeepResult,
    Kept,
    SendAcknowledge,
    SendTask,
    Updated,
)
from protocol.spec import RunSpec
from protocol.strategies import multiplier
from scripts.simulation.counting import Counted
from scripts.simulation.shell import Name

ANSWERED_WITHIN = 30.0
"""Seconds after which a result that was not answered counts as lost."""


@dataclass(eq=False)
class Account:
    """What has come of the directions of one batch; arrays have one entry for each."""

    leased: NDArray[np.int64]
    """version that it was leased at last, -1: never"""
    used: NDArray[np.int64]
    """updates that used it"""
    multiplier: NDArray[np.int64]
    """that it counted with, 0: it has not counted"""
    lengths: NDArray[np.int64]
    """(directions, members of each) steps of what counted, 0: it has not counted"""
    last_leased: float = 0.0
    """when its last direction was leased for the first time"""


@dataclass(frozen=True)
class Closed:
    """One update."""

    time: float
    version: int
    members: int
    ages: Counter[int]
    """members by their age in versions"""
    steps: int
    """of its members"""
    accepted_steps: int
    """of all members that the pool had accepted by then, since the start"""
    tail: float
    """seconds since the last direction of its batch was leased for the first time"""
    workers: int
    """sessions whose returns counted"""


class Ledger:
    """Reads what a pool is told and says; believes nothing else.

    A direction that two durable updates use was `applied_twice`. A direction is `lost` where the
    pool took its return, or never answered for it, and no update used it in time, where it was
    acknowledged before it was durable, or where an update was made with less than the quorum.
    """

    def __init__(self, run: RunSpec, leases: Callable[[], Container[int]]) -> None:
        """`leases` are the numbers of the tasks that are out."""
        self.applied_twice = 0
        self.lost = 0
        self.closed: list[Closed] = []
        self.copies = 0
        """members that were leased while another lease of the same range was out"""
        self.leased_again = 0
        """members that were leased more than once, copies included"""
        self.leased = 0
        """members leased, however often"""
        self.outcomes: Counter[str] = Counter()
        """members in results by how they were answered"""
        self.began = math.inf
        """when the first event came"""
        self._run = run
        self._leases = leases
        self._multipliers = np.array(
            [multiplier(age, run.pool.discount) for age in range(run.pool.max_staleness + 1)]
        )
        """by age in versions"""
        self._each = run.members_per_direction
        self._quorum = int(np.ceil(run.pool.quorum * run.directions - 1e-9))
        self._accounts: dict[int, Account] = {}
        self._accepted: dict[Name, KeepResult] = {}
        self._kept: set[Name] = set()
        self._unanswered: dict[Name, list[tuple[float, Arrived]]] = {}
        self._answered: dict[Name, float] = {}
        """when they were, of the results that came more often than they were answered"""
        self._tasks: dict[tuple[int, int], int] = {}
        """last task by the range that it is of"""
        self._closing: tuple[CloseBatch, Counted] | None = None
        self._dropped: set[int] = set()
        self._accepted_steps = 0

    def account(self, index: int) -> Account:
        """Of a batch."""
        found = self._accounts.get(index)
        if found is None:
            size = self._run.directions
            found = self._accounts[index] = Account(
                leased=np.full(size, -1),
                used=np.zeros(size, dtype=np.int64),
                multiplier=np.zeros(size, dtype=np.int64),
                lengths=np.zeros((size, self._each), dtype=np.int64),
            )
        return found

    @property
    def settled_before(self) -> int:
        """The last version whose batch no update can use any more."""
        return self.closed[-1].version - self._run.pool.max_staleness - 1

    # What it sees.

    def observe(self, now: float, event: Event, commands: list[Command]) -> None:
        """The pool was told of this event, and this is what it wants done."""
        self.began = min(self.began, now)
        match event:
            case Arrived():
                name = (event.session, event.name)
                self._unanswered.setdefault(name, []).append((now, event))
            case Kept():
                self._kept.update(event.results)
            case Updated():
                self._apply(event.version)
        for command in commands:
            match command:
                case SendTask():
                    self._lease(command, now)
                    for result in command.acknowledged:
                        self._answer((command.session, result), "accepted", now)
                case SendAcknowledge():
                    for result in command.results:
                        self._answer((command.session, result), command.outcome, now)
                case KeepResult() if command.arrived.kind == "members":
                    self._accept(command)
                case CloseBatch():
                    self._close(command, now)

    def died(self, durable: set[Name]) -> None:
        """The coordinator died: what it had taken and not kept its workers have still."""
        self._closing = None
        self._unanswered.clear()
        for name in self._accepted.keys() - durable:
            forgotten = self._accepted.pop(name).arrived
            if name in self._kept:
                self.lost += forgotten.count

    def conclude(self, now: float) -> None:
        """The simulation is over: what was neither kept nor answered by now never will be.

        Nobody is left to be told of what was kept where its session has gone; and one answer is
        enough for a result that came twice before it.
        """
        for name, waiting in self._unanswered.items():
            answered = self._answered.get(name, -math.inf)
            for arrived_at, arrived in waiting:
                if arrived_at <= answered:
                    continue
                if name not in self._kept and now - arrived_at > ANSWERED_WITHIN:
                    self.lost += arrived.count

    # What it makes of it.

    def _lease(self, task: SendTask, now: float) -> None:
        if task.kind != "members":
            return
        size = self._run.directions
        account = self.account(task.first // size)
        begin = task.first % size
        leased = account.leased[begin : begin + task.count]
        again = int(np.count_nonzero(leased >= 0))
        if again < task.count:
            account.last_leased = now
        leased[:] = task.version
        self.leased += self._each * task.count
        self.leased_again += self._each * again
        key = (task.first, task.count)
        if again and self._tasks.get(key) in self._leases():
            self.copies += self._each * task.count
        self._tasks[key] = task.task

    def _answer(self, name: Name, outcome: str, now: float) -> None:
        waiting = self._unanswered.get(name)
        if not waiting:
            return
        _, arrived = waiting.pop()
        if waiting:
            self._answered[name] = now
        else:
            del self._unanswered[name]
        if arrived.kind == "members":
            self.outcomes[outcome] += arrived.returns.size
        if outcome == "accepted" and name not in self._kept:
            self.lost += arrived.count

    def _accept(self, keep: KeepResult) -> None:
        name = (keep.arrived.session, keep.arrived.name)
        if name not in self._accepted:  # a coordinator that comes back accepts it once more
            self._accepted_steps += int(keep.arrived.lengths.sum())
        self._accepted[name] = keep

    def _close(self, closed: CloseBatch, now: float) -> None:
        version = closed.version
        found = Counted.of(closed.contributions)
        self._closing = (closed, found)
        ages, counts = np.unique(version - found.versions, return_counts=True)
        members = self._each * counts
        own = found.directions[found.directions // self._run.directions == version]
        self.lost += max(0, self._quorum - len(np.unique(own)) - len(closed.dropped))
        self.closed.append(
            Closed(
                time=now,
                version=version,
                members=self._each * len(found.directions),
                ages=Counter(dict(zip(ages.tolist(), members.tolist(), strict=True))),
                steps=int(found.lengths.sum()),
                accepted_steps=self._accepted_steps,
                tail=now - self.account(version).last_leased,
                workers=len({part.session for part in closed.contributions}),
            )
        )

    def _apply(self, version: int) -> None:
        """An update is durable: its directions have counted, and what was to count has."""
        if self._closing is None or self._closing[0].version + 1 != version:
            return
        closed, found = self._closing
        self._closing = None
        self._dropped.update(closed.dropped)
        size = self._run.directions
        multipliers = self._multipliers[closed.version - found.versions]
        for index, rows in found.by_batch(size):
            account = self.account(index)
            places = found.directions[rows] - index * size
            fresh = np.count_nonzero(account.used[np.unique(places)] == 0)
            self.applied_twice += len(places) - int(fresh)
            np.add.at(account.used, places, 1)
            account.multiplier[places] = multipliers[rows]
            account.lengths[places] = found.lengths[rows]
        due = [name for name, keep in self._accepted.items() if keep.until < version]
        self._check_used([self._accepted.pop(name).arrived for name in due])

    def _check_used(self, results: Sequence[Arrived]) -> None:
        """These were accepted, and updates that could use them are made."""
        found = Counted.of(results)
        size = self._run.directions
        for index, rows in found.by_batch(size):
            directions = found.directions[rows]
            unused = directions[self.account(index).used[directions - index * size] == 0]
            self.lost += sum(direction not in self._dropped for direction in unused.tolist())
