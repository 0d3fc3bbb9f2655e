"""What simpler schedulers would make of the same workers: equal or static parts, all waited for."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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

    `sessions` are those of each place in the pool, one after the other. When all other parts are
    here, those of who left, which is known at once, or vanished, after `timeout`, are split anew
    over all who are there by then, newcomers included; what was finished of them is done again.
    Nobody changes its pace; messages take their latency, an update `between`. From `start` on,
    until so many `updates` are made or `seconds` have passed.
    """
    crowd = _Crowd(sessions)
    now = start
    made = steps_made = 0
    while made < updates and now - start < seconds:
        _, lengths = environment.play("members", made, made * directions, directions)
        steps = lengths.sum(axis=1)
        steps_made += int(steps.sum())
        while steps.size:
            now, steps = _round(crowd, now, steps, split, timeout)
        now += between
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

    def advance(self, now: float) -> None:
        """Let workers come until now."""
        while self.next_arrival <= now:
            _, place, life, following = heapq.heappop(self._coming)
            self._came.append(life)
            if (after := next(following, None)) is not None:
                heapq.heappush(self._coming, (after.arrives, place, after, following))

    def present(self, now: float) -> list[Life]:
        """Who has come and not gone."""
        return [life for life in self._came if life.leaves > now]

    def capacity(self, start: float, end: float) -> float:
        """Steps that those who were there could have made."""
        return sum(
            life.traits.speed * max(0.0, min(life.leaves, end) - max(life.arrives, start))
            for life in self._came
        )


def _round(
    crowd: _Crowd, now: float, steps: NDArray[np.int64], split: Split, timeout: float
) -> tuple[float, NDArray[np.int64]]:
    """Give directions of so many steps out once: when the last part is here or known to be lost,
    and the steps of the directions that are lost."""
    crowd.advance(now)
    while not (present := crowd.present(now)):
        now = crowd.next_arrival
        crowd.advance(now)
    shares = np.asarray(split(present), dtype=np.float64)
    ends = np.rint(np.cumsum(shares / shares.sum()) * len(steps)).astype(np.int64)
    over = now
    lost = []
    for life, begin, end in zip(present, [0, *ends[:-1]], ends, strict=True):
        if begin == end:
            continue
        part = steps[begin:end]
        done = now + float(part.sum()) / life.traits.speed + 2.0 * life.traits.latency
        if life.leaves < done:
            done = life.leaves + (timeout if life.vanishes else life.traits.latency)
            lost.append(part)
        over = max(over, done)
    return over, np.concatenate(lost) if lost else steps[:0]
