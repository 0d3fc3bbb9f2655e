"""Brings the workers of a population into a world, and takes them out of it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from coordinator.pool.events import SessionId
from scripts.simulation.population import Life, Population, lives
from scripts.simulation.world import World


def populate(world: World, population: Population, seed: int) -> None:
    """From now on workers come and go as drawn."""
    for sessions in lives(population, seed, world.agenda.now):
        _await_next(world, sessions)


def _await_next(world: World, sessions: Iterator[Life]) -> None:
    life = next(sessions, None)
    if life is not None:
        world.agenda.at(life.arrives, lambda: _enter(world, life, sessions))


def _enter(world: World, life: Life, sessions: Iterator[Life]) -> None:
    worker = world.enter(SessionId(life.name, life.session), life.traits)
    agenda = world.agenda
    for time, factor in life.paces:
        agenda.at(time, partial(worker.change_pace, factor))
    if life.leaves < float("inf"):
        go = world.vanish if life.vanishes else world.leave
        agenda.at(life.leaves, lambda: go(worker))
        agenda.at(life.leaves, lambda: _await_next(world, sessions))
