"""What simpler schedulers would make of the same workers: equal or static parts, all waited for."""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from scripts.simulation.environments import Environment
from scripts.simulation.population import Life

Split = Callable[[Sequence[Life]], Sequence[float]]
"""What the workers' parts are proportional to."""


@dataclass(frozen=True)
class Waiting:
    """What waiting for everybody came to."""

    efficiency: float
    """members evaluated for updates / members that the workers there could have evaluated"""
    seconds: float
    """an update took on average"""
    updates: int


def equal(workers: Sequence[Life]) -> Sequence[float]:
    """Everybody gets as much."""
    return [1.0] * len(workers)


def declared(workers: Sequence[Life]) -> Sequence[float]:
    """Everybody gets a part by the speed that it declared."""
    return [life.traits.declared for life in workers]


def wait_for_all(
    sessions: Iterator[Iterator[Life]],
    environment: Environment,
    directions: int,
    split: Split,
    start: float,
    updates: int = 3,
    seconds: float = 3600.0,
    timeout: float = 35.0,
    between: float = 0.01,
) -> Waiting:
    """Each update: everybody there gets its part at once, and all parts are waited for.

    `sessions` are those of each place in the pool, one after the other. The part of who left, at
    once, or vanished, after `timeout`, goes whole to who is free first, newcomers included; what
    was finished of it is done again. Nobody changes its pace; messages take their latency, an
    update `between`. From `start` on, until so many `updates` are made or `seconds` have passed.
    """
    crowd = _Crowd(sessions)
    now = start
    made = steps_made = 0
    while made < updates and now - start < seconds:
        _, lengths = environment.play("members", made, made * directions, directions)
        steps = lengths.sum(axis=1)
        steps_made += int(steps.sum())
        now = _Batch(crowd, now, timeout).run(steps.tolist(), split) + between
        made += 1
    efficiency = steps_made / crowd.capacity(start, now)
    return Waiting(efficiency, (now - start) / made, made)


class _Crowd:
    """Who is there, as time goes on."""

    def __init__(self, sessions: Iterator[Iterator[Life]]) -> None:
        self._coming: list[tuple[float, int, Life, Iterator[Life]]] = []
        self._came: list[Life] = []
        for place, following in enumerate(sessions):
            life = next(following)
            heapq.heappush(self._coming, (life.arrives, place, life, following))

    @property
    def next_arrival(self) -> float:
        """When the next worker comes."""
        return self._coming[0][0] if self._coming else math.inf

    def advance(self, now: float) -> list[Life]:
        """Let workers come until now: those who came."""
        came = []
        while self.next_arrival <= now:
            _, place, life, following = heapq.heappop(self._coming)
            came.append(life)
            if (after := next(following, None)) is not None:
                heapq.heappush(self._coming, (after.arrives, place, after, following))
        self._came += came
        return came

    def present(self, now: float) -> list[Life]:
        """Who has come and not gone."""
        return [life for life in self._came if life.leaves > now]

    def capacity(self, start: float, end: float) -> float:
        """Steps that those who were there could have made."""
        return sum(
            life.traits.speed * max(0.0, min(life.leaves, end) - max(life.arrives, start))
            for life in self._came
        )


class _Batch:
    """One update's worth of parts, until the last has arrived."""

    def __init__(self, crowd: _Crowd, now: float, timeout: float) -> None:
        self._crowd = crowd
        self._now = now
        self._timeout = timeout
        self._ends: list[tuple[float, int, Life | None, float]] = []
        """(time, order, worker that is done, or None: nobody has it any more, steps of the part)"""
        self._order = 0
        self._idle: deque[Life] = deque()
        self._orphans: deque[float] = deque()
        self._missing = 0

    def run(self, steps: Sequence[int], split: Split) -> float:
        """Steps of each direction: when all of them are here."""
        crowd = self._crowd
        crowd.advance(self._now)
        present = crowd.present(self._now)
        while not present:
            self._now = crowd.next_arrival
            present = crowd.advance(self._now)
        shares = np.asarray(split(present), dtype=np.float64)
        ends = np.rint(np.cumsum(shares / shares.sum()) * len(steps)).astype(np.int64)
        totals = np.concatenate(([0], np.cumsum(steps)))
        parts = np.diff(totals[np.concatenate(([0], ends))]).tolist()
        for life, part in zip(present, parts, strict=True):
            if part:
                self._missing += 1
                self._give(life, float(part))
            else:
                self._idle.append(life)
        while self._missing:
            self._step()
        return self._now

    def _give(self, life: Life, part: float) -> None:
        self._order += 1
        done = self._now + part / life.traits.speed + 2.0 * life.traits.latency
        if life.leaves >= done:
            heapq.heappush(self._ends, (done, self._order, life, part))
        else:
            known = life.leaves + (self._timeout if life.vanishes else life.traits.latency)
            heapq.heappush(self._ends, (known, self._order, None, part))

    def _step(self) -> None:
        """Whatever comes next."""
        # Who comes meanwhile matters only where a part waits for somebody.
        arrival = self._crowd.next_arrival if self._orphans else math.inf
        if not self._ends or arrival <= self._ends[0][0]:
            self._now = arrival
        else:
            self._now, _, done, part = heapq.heappop(self._ends)
            if done is None:
                self._orphans.append(part)
            else:
                self._missing -= 1
                self._idle.append(done)
        self._idle.extend(self._crowd.advance(self._now))
        while self._orphans and self._idle:
            life = self._idle.popleft()
            if life.leaves > self._now:
                self._give(life, self._orphans.popleft())
