"""Who takes part: speeds, comings and goings, drawn once so that every scheduler meets the same."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass

from protocol.errors import ShoalError
from scripts.simulation.worker import Traits


@dataclass(frozen=True)
class Group:
    """So many workers of one speed (environment steps per second)."""

    count: int
    speed: float


@dataclass(frozen=True)
class Population:
    """What the workers are like; rates are per minute, shares in 0 .. 1, times in seconds."""

    workers: int = 100
    speed: float = 10_000.0
    """median, in environment steps per second"""
    sigma: float = 1.0
    """of the logarithm of the speeds; 0: all are equal"""
    groups: tuple[Group, ...] = ()
    """in place of the three above"""
    leaving: float = 0.2
    """share that leaves in a minute and says so; as many join"""
    vanishing: float = 0.05
    """share that vanishes in a minute, in the middle of a task; as many join"""
    stalling: float = 0.0
    """share that stands still in a minute, for `stall_seconds` on average"""
    stall_seconds: float = 30.0
    changing: float = 0.0
    """share that gets ten times slower in a minute, or as fast again as it was"""
    late: float = 0.01
    """share of the results that come seconds late"""
    twice: float = 0.01
    """share of the results that come twice"""
    liars: float = 0.0
    """share that declares a hundred times its speed; the others declare it give or take a fifth"""
    hoarders: float = 0.0
    """share that wants 64 tasks at once"""
    flapping: float = 0.0
    """share whose sessions last 5 s on average"""
    latency: float = 0.03
    """median, each way"""
    jitter: float = 0.005
    """mean of what is added to a message's latency"""
    reorders: bool = False
    """messages of a session overtake each other"""
    part_seconds: float = 5.0
    """of longer tasks what is finished is sent this often"""
    clock: float = 0.0
    """deviation of the workers' clocks from the coordinator's"""
    startup: float = 3.0
    """all of the first workers have come after so long"""

    @property
    def size(self) -> int:
        """Workers that are there at any time."""
        return sum(group.count for group in self.groups) or self.workers


@dataclass(frozen=True)
class Life:
    """One session: whom it belongs to, when it comes and goes."""

    name: str
    session: str
    traits: Traits
    arrives: float
    leaves: float
    vanishes: bool
    """it goes without a word"""
    paces: tuple[tuple[float, float], ...]
    """(time, factor) from when on it is so many times as fast as it was drawn"""


def lives(population: Population, seed: int, now: float = 0.0) -> Iterator[Iterator[Life]]:
    """For each place in the pool, its sessions one after the other, without end."""
    slots = [group.speed for group in population.groups for _ in range(group.count)]
    for place in range(population.size):
        fixed = slots[place] if slots else None
        yield _lives(population, random.Random(f"{seed}/{place}"), place, fixed, now)


def _lives(
    population: Population, draw: random.Random, place: int, fixed: float | None, now: float
) -> Iterator[Life]:
    arrives = now + draw.uniform(0.0, population.startup)
    number = session = 0
    traits = _traits(population, draw, fixed)
    flaps = draw.random() < population.flapping
    while True:
        going = (population.leaving + population.vanishing) / 60.0
        stays = draw.expovariate(going) if going else math.inf
        vanishes = draw.random() * going < population.vanishing / 60.0
        again = flaps and (blink := draw.expovariate(0.2)) < stays
        if again:
            stays, vanishes = blink, False
        leaves = arrives + stays
        yield Life(
            name=f"worker{place}-{number}",
            session=f"s{session}",
            traits=traits,
            arrives=arrives,
            leaves=leaves,
            vanishes=vanishes,
            paces=_paces(population, draw, arrives, leaves),
        )
        if math.isinf(leaves):
            return
        arrives = leaves
        if again:
            session += 1
        else:
            number, session = number + 1, 0
            traits = _traits(population, draw, fixed)
            flaps = draw.random() < population.flapping


def _traits(population: Population, draw: random.Random, fixed: float | None) -> Traits:
    speed = population.speed * draw.lognormvariate(0.0, population.sigma)
    if fixed is not None:
        speed = fixed
    lies = draw.random() < population.liars
    return Traits(
        speed=speed,
        declared=speed * (100.0 if lies else draw.uniform(0.8, 1.2)),
        credit=64 if draw.random() < population.hoarders else 2,
        latency=population.latency * draw.lognormvariate(0.0, 0.5),
        jitter=population.jitter,
        reorders=population.reorders,
        late=population.late,
        twice=population.twice,
        part_seconds=population.part_seconds,
        clock=draw.gauss(0.0, 1.0) * population.clock,
    )


def _paces(
    population: Population, draw: random.Random, arrives: float, leaves: float
) -> tuple[tuple[float, float], ...]:
    """When it stands still, and when it changes its speed."""
    stalling, changing = population.stalling / 60.0, population.changing / 60.0
    paces = []
    time, factor = arrives, 1.0
    horizon = min(leaves, arrives + 3600.0)
    while stalling + changing > 0.0:
        time += draw.expovariate(stalling + changing)
        if time >= horizon:
            break
        if draw.random() * (stalling + changing) < stalling:
            paces.append((time, 0.0))
            time += draw.expovariate(1.0 / population.stall_seconds)
        else:
            factor = 1.0 if factor < 1.0 else 0.1
        paces.append((time, factor))
    return tuple(paces)


def groups(text: str) -> tuple[Group, ...]:
    """`100x20000,3x200000`: a hundred workers of 20,000 steps per second and three of 200,000.

    Raises `ShoalError`.
    """
    found = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)x(\d+(?:\.\d+)?)\s*", part)
        if match is None or not int(match[1]) or not float(match[2]):
            raise ShoalError(
                f"{part!r} is no group of workers: write how many and their steps per second, "
                "as in 100x20000,3x200000"
            )
        found.append(Group(int(match[1]), float(match[2])))
    return tuple(found)
