"""What simpler schedulers would make of the same workers: equal or static parts, all waited for."""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scripts.simulation.environments import Environment
from scripts.simulation.population import Life, Population, lives

Split = Callable[[Sequence[Life]], Sequence[float]]
"""The weights of the workers' parts."""


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
    population: Population,
    seed: int,
    environment: Environment,
    directions: int,
    split: Split,
    updates: int = 3,
    seconds: float = 3600.0,
    timeout: float = 35.0,
    between: float = 0.01,
) -> Waiting:
    """Each update: everybody there gets its part at once, and all parts are waited for.

    The part of who left, at once, or vanished, after `timeout`, goes whole to who is free first,
    newcomers included; what was finished of it is done again. Workers come and go as in
    `population`; messages take their latency, an update `between`. Ends with the first update after
    `seconds`, at the latest after so many `updates`.
    """
    crowd = _Crowd(population, seed)
    start = now = crowd.gather()
    made = 0
    mean = 1.0
    while made < updates and now - start < seconds:
        _, lengths = environment.play("members", made, made * directions, directions)
        steps = lengths.sum(axis=1)
        mean = (mean * made + float(steps.mean()) / 2.0) / (made + 1)
        now = _update(crowd, now, steps, split, timeout) + between
        made += 1
    possible = crowd.capacity(start, now) / mean
    return Waiting(2.0 * directions * made / possible, (now - start) / made, made)


def _update(
    crowd: _Crowd, now: float, steps: NDArray[np.int64], split: Split, timeout: float
) -> float:
    """When the last part has arrived."""
    crowd.advance(now)
    present = crowd.present
    shares = np.asarray(split(present), dtype=np.float64)
    ends = np.rint(np.cumsum(shares / shares.sum()) * len(steps)).astype(np.int64)
    totals = np.concatenate(([0], np.cumsum(steps)))
    parts = np.diff(totals[np.concatenate(([0], ends))]).astype(np.float64).tolist()
    events: list[tuple[float, int, Life | None, float]] = []
    """(time, order, worker that is done, or None: a part to be given to another, its steps)"""
    order = 0
    open_parts = 0

    def give(life: Life, part: float, time: float) -> None:
        nonlocal order
        order += 1
        done = time + part / life.traits.speed + 2.0 * life.traits.latency
        if life.leaves >= done:
            heapq.heappush(events, (done, order, life, part))
        else:
            known = life.leaves + (timeout if life.vanishes else life.traits.latency)
            heapq.heappush(events, (known, order, None, part))

    for life, part in zip(present, parts, strict=True):
        if part > 0.0:
            open_parts += 1
            give(life, part, now)
    idle = deque(life for life, part in zip(present, parts, strict=True) if part <= 0.0)
    orphans: deque[float] = deque()
    while open_parts:
        arrival = crowd.next_arrival if orphans and not idle else math.inf
        if arrival <= (events[0][0] if events else math.inf):
            now = arrival
            idle.extend(crowd.advance(now))
        else:
            now, _, done_by, part = heapq.heappop(events)
            if done_by is not None:
                open_parts -= 1
                idle.append(done_by)
            else:
                orphans.append(part)
        idle = deque(life for life in idle if life.leaves > now)
        idle.extend(crowd.advance(now))
        while orphans and idle:
            give(idle.popleft(), orphans.popleft(), now)
    return now


class _Crowd:
    """Who is there, as time goes on."""

    def __init__(self, population: Population, seed: int) -> None:
        self._startup = population.startup
        self._coming: list[tuple[float, int, Life, Iterator[Life]]] = []
        self._all: list[Life] = []
        self.present: list[Life] = []
        for place, sessions in enumerate(lives(population, seed)):
            life = next(sessions)
            heapq.heappush(self._coming, (life.arrives, place, life, sessions))

    @property
    def next_arrival(self) -> float:
        """When the next worker comes."""
        return self._coming[0][0] if self._coming else math.inf

    def gather(self) -> float:
        """Wait until the first workers have come."""
        self.advance(self._startup)
        return self._startup

    def advance(self, now: float) -> list[Life]:
        """Let workers come and go until now: those who came and are there."""
        came = []
        while self._coming and self._coming[0][0] <= now:
            _, place, life, sessions = heapq.heappop(self._coming)
            self._all.append(life)
            came.append(life)
            following = next(sessions, None)
            if following is not None:
                heapq.heappush(self._coming, (following.arrives, place, following, sessions))
        came = [life for life in came if life.leaves > now]
        self.present = [life for life in self.present if life.leaves > now] + came
        return came

    def capacity(self, start: float, end: float) -> float:
        """Steps that those who were there could have made."""
        return sum(
            life.traits.speed * max(0.0, min(life.leaves, end) - max(life.arrives, start))
            for life in self._all
        )
