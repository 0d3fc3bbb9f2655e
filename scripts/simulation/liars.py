"""Workers that return what is not true, within range, and what a pool makes of them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from coordinator.pool.events import Arrived, Command, Event, SendTask, Sentenced
from coordinator.trust import Trust
from protocol.messages import TaskKind
from scripts.simulation.environments import Environment, Played
from scripts.simulation.shell import Name

Says = Callable[[SendTask, Played], Played]
HONEST_FIRST = 200
"""Tasks for which a sleeper is honest."""
DIFFERENT = 0.1
"""Share of the members whose episodes go otherwise in another numeric class."""
AFTER = 1000
"""Tasks after which the cost of audits is measured: newcomers cost more."""


def truth(task: SendTask, played: Played) -> Played:
    """What was found."""
    return played


def swapped(task: SendTask, played: Played) -> Played:
    """Against the true direction: each mirror's episodes in place of the other's. All who lie so
    say the same."""
    returns, lengths = played
    if task.kind == "members":
        return returns[:, ::-1].copy(), lengths[:, ::-1].copy()
    return returns, lengths


class Private:
    """Against the true direction, and each liar in its own words."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def __call__(self, task: SendTask, played: Played) -> Played:
        returns, lengths = swapped(task, played)
        if task.kind == "members":
            units = range(task.first, task.first + task.count)
            draws = [random.Random(f"{self._seed}/{unit}").random() for unit in units]
            returns -= 0.01 * np.abs(returns) * np.array(draws)[:, np.newaxis]
        return returns, lengths


class Sleeper:
    """Honest for a while, and then a liar."""

    def __init__(self, tasks: int = HONEST_FIRST) -> None:
        self._left = tasks

    def __call__(self, task: SendTask, played: Played) -> Played:
        self._left -= task.kind == "members"
        return played if self._left >= 0 else swapped(task, played)


class Rumours:
    """What everybody has said of every direction first, as whoever reads along knows it."""

    def __init__(self) -> None:
        self._said: dict[tuple[int, int], tuple[list[float], list[int]]] = {}

    def told_by(self, says: Says) -> Says:
        """The same, and others hear it."""

        def say(task: SendTask, played: Played) -> Played:
            said = returns, lengths = says(task, played)
            for row in range(task.count if task.kind == "members" else 0):
                key = task.version, task.first + row
                self._said.setdefault(key, (returns[row].tolist(), lengths[row].tolist()))
            return said

        return say

    def copied(self, task: SendTask, played: Played) -> Played:
        """What somebody else said, so that no audit tells the two apart; else a lie."""
        returns, lengths = swapped(task, played)
        for row in range(task.count if task.kind == "members" else 0):
            known = self._said.get((task.version, task.first + row))
            if known is not None:
                returns[row], lengths[row] = known
        return returns, lengths


@dataclass(frozen=True)
class OtherClass:
    """What workers of another numeric class get in an environment."""

    inner: Environment
    number: int

    def play(self, kind: TaskKind, version: int, first: int, count: int) -> Played:
        """As `scripts.simulation.environments.Environment` says."""
        returns, lengths = self.inner.play(kind, version, first, count)
        if kind != "members":
            return returns, lengths
        returns = returns.copy()
        for row in range(count):
            draw = random.Random(f"{self.number}/{version}/{first + row}")
            for sign in range(returns.shape[1]):
                if draw.random() < DIFFERENT:
                    returns[row, sign] *= draw.uniform(0.7, 1.3)
        return returns, lengths


class Inspector:
    """Counts what each worker was given until it was found out, and what audits cost.

    Attributes:
        found: worker -> tasks that it had been given since its first lie when it was quarantined.
        banned: whoever was.
    """

    def __init__(self, trust: Trust, audited: Callable[[], int], honest: dict[str, int]) -> None:
        """`audited` tells of how many directions the pool had checked; `honest` are the liars, with
        how many tasks each is honest for."""
        self.found: dict[str, int] = {}
        self.tasks = 0
        self._trust = trust
        self._audited = audited
        self._honest = honest
        self._given: Counter[str] = Counter()
        self._directions = 0
        self._before = 0, 0

    def observe(self, now: float, event: Event, commands: list[Command]) -> None:
        """The pool was told of this event, and this is what it wants done."""
        if isinstance(event, Arrived) and event.kind == "members":
            self._directions += event.count
        for command in commands:
            if isinstance(command, SendTask) and command.kind == "members":
                self._given[command.session.worker] += 1
                self.tasks += 1
                if self.tasks == AFTER:
                    self._before = self._directions, self._audited()
            elif isinstance(command, Sentenced):
                worker = command.worker
                since = self._given[worker] - self._honest.get(worker, 0)
                self.found.setdefault(worker, since)

    def died(self, durable: set[Name]) -> None:
        """The workers go on."""

    @property
    def banned(self) -> set[str]:
        """Whoever was."""
        return set(self._trust.banned)

    @property
    def missed(self) -> set[str]:
        """Those who lied and were not found out."""
        lied = {worker for worker, tasks in self._honest.items() if self._given[worker] > tasks}
        return lied - self.found.keys()

    @property
    def framed(self) -> set[str]:
        """Honest workers that were quarantined."""
        return self.found.keys() - self._honest.keys()

    @property
    def influence(self) -> float:
        """The part of liars, while they lied or not, of all members that updates used."""
        members = {worker: record.members for worker, record in self._trust.records.items()}
        return sum(members.get(w, 0) for w in self._honest) / max(1, sum(members.values()))

    @property
    def overhead(self) -> float:
        """Share of the directions evaluated after the first tasks that were for audits."""
        directions, audited = self._before
        return (self._audited() - audited) / max(1, self._directions - directions)
