"""What workers that lie, hoard or flap cost the others, in numbers."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from coordinator.pool.events import Joined, Left, SessionId
from coordinator.pool.presets import PRESETS
from tests.coordinator.simulation import Simulation, counted, spec

HONEST = 10
SECONDS = 40.0
WARM_UP = 10.0


def hoarders(simulation: Simulation) -> None:
    """They take all that they can get, say that they live, and never return a thing."""
    for name in "xy":
        simulation.join(name, credit=64, declared=1e12).stalls = True


def braggarts(simulation: Simulation) -> None:
    """They say that they are fast, and are two hundred times slower than the others."""
    for name in "xy":
        simulation.join(name, credit=64, speed=100.0, declared=1e12)


def flappers(simulation: Simulation) -> None:
    """One comes every second as a new session, and is lost with its tasks half a second later."""

    def come(number: int) -> None:
        id = SessionId("x", str(number))
        simulation.send(Joined(id, 4, 1e12))
        simulation.agenda.after(0.5, lambda: simulation.send(Left(id, "lost")))
        simulation.agenda.after(1.0, lambda: come(number + 1))

    come(0)


def crowd(simulation: Simulation) -> None:
    """A thousand come at once, each under a name of its own, and return nothing."""
    for number in range(1000):
        simulation.send(Joined(SessionId(f"x{number:04}", "s"), 4, 1e-6 if number % 2 else 1e12))


def passers_by(simulation: Simulation) -> None:
    """A hundred come every second, each under a name of its own, and are lost two seconds later."""

    def come(number: int) -> None:
        for name in range(100):
            id = SessionId(f"x{number}-{name}", "s")
            simulation.send(Joined(id, 4, 1e12))
            simulation.agenda.after(2.0, lambda id=id: simulation.send(Left(id, "lost")))
        simulation.agenda.after(1.0, lambda: come(number + 1))

    come(0)


def drippers(simulation: Simulation) -> None:
    """They say that they are fast, and return a direction now and then, so that something of what
    they hold always comes."""
    for number in range(10):
        name = f"x{number}"
        simulation.join(name, credit=64, speed=700.0, declared=1e12, part_seconds=0.3)


def turncoats(simulation: Simulation) -> None:
    """Two that worked as all do come back every second as new sessions, on what they did, and are
    lost with their tasks."""

    def come(number: int) -> None:
        for name in "xy":
            id = SessionId(name, str(number))
            simulation.send(Joined(id, 4, 1e12))
            simulation.agenda.after(0.5, lambda id=id: simulation.send(Left(id, "lost")))
        simulation.agenda.after(1.0, lambda: come(number + 1))

    def turn() -> None:
        for worker in honest:
            simulation.leave(worker)
        come(0)

    honest = [simulation.join(name, speed=2e4) for name in "xy"]
    simulation.agenda.after(2.0, turn)


def nobody(simulation: Simulation) -> None:
    """Only the honest ones are there."""


@cache
def directions(preset: str, strangers: Callable[[Simulation], None]) -> int:
    """Directions that counted in updates while strangers were there beside the honest workers."""
    simulation = Simulation(spec(4000, pool=PRESETS[preset]))
    for number in range(HONEST):
        simulation.join(f"honest{number}", speed=2e4, declared=2e4)
    simulation.run_for(WARM_UP)
    before = len(simulation.record.closed)
    strangers(simulation)
    simulation.run_for(SECONDS)
    return sum(len(counted(closed)) for _, closed in simulation.record.closed[before:])


@pytest.mark.parametrize("strangers", [hoarders, braggarts, flappers, turncoats])
@pytest.mark.parametrize(("preset", "most"), [("sync", 0.10), ("quorum", 0.03)])
def test_strangers_cost_little_of_what_the_others_can_do(
    preset: str, most: float, strangers: Callable[[Simulation], None]
) -> None:
    lost = 1.0 - directions(preset, strangers) / directions(preset, nobody)
    assert lost <= most


@pytest.mark.parametrize("strangers", [crowd, passers_by, drippers])
@pytest.mark.parametrize(("preset", "most"), [("sync", 0.25), ("quorum", 0.06), ("async", 0.06)])
def test_crowds_of_strangers_do_not_stop_the_others(
    preset: str, most: float, strangers: Callable[[Simulation], None]
) -> None:
    """Who waits for all waits for copies of what they were given."""
    lost = 1.0 - directions(preset, strangers) / directions(preset, nobody)
    assert lost <= most


@pytest.mark.parametrize("declared", [1e12, 1e-6])
def test_a_worker_that_lies_about_its_speed_is_used_by_what_it_does(declared: float) -> None:
    simulation = Simulation(spec(4000))
    honest = [simulation.join(f"honest{number}", speed=2e4) for number in range(4)]
    liar = simulation.join("liar", speed=4e4, declared=declared)
    simulation.run_for(30.0)
    mean = sum(worker.units for worker in honest) / len(honest)
    assert liar.units == pytest.approx(2.0 * mean, rel=0.2)
