"""Who is tried beside the established and brings nothing rests, longer each time."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from coordinator.pool import Pool
from coordinator.pool.events import Command, Event, Heard, Joined, Refused, SendTask, SessionId
from coordinator.trust import Trust
from scripts.simulation.environments import Played
from scripts.simulation.shell import Name
from tests.coordinator.driver import tasks
from tests.coordinator.simulation import Simulation, result, spec

CLASS = b"numeric class 01"
OTHER = b"numeric class 02"
ESTABLISHED = "abcd"
SECONDS = 120.0
MOST = 8
"""Trials in that time: the rests after them are 2, 4, 8, 16, 32 and 60 s."""
Answer = Callable[[SendTask], Event]


def breaks(task: SendTask) -> Event:
    """Each of its episodes fails."""
    return result(task, failed={task.first + row: "no such world" for row in range(task.count)})


def crashes(task: SendTask) -> Event:
    """Its process ends."""
    return Refused(task.session, task.task, True, "its child crashed")


def declines(task: SendTask) -> Event:
    """It gives all back, at no fault."""
    return Refused(task.session, task.task, False, "gone")


class Stranger:
    """A newcomer that says at once what it is to say of each of its tasks."""

    def __init__(self, simulation: Simulation, name: str, answer: Answer, numeric: bytes) -> None:
        self.id = SessionId(name, "s")
        self.given = 0
        self._simulation = simulation
        self._answer = answer
        simulation.shell.observers.append(self)
        simulation.shell.receive(Joined(self.id, 4, 1e4, numeric=numeric))
        self._live()

    def observe(self, now: float, event: Event, commands: list[Command]) -> None:
        """Answer what was sent to it."""
        for task in tasks(commands):
            if task.session == self.id:
                self.given += 1
                answer = self._answer(task)
                self._simulation.agenda.after(0.001, lambda answer=answer: self._say(answer))

    def died(self, durable: set[Name]) -> None:
        """No coordinator dies here."""

    def _say(self, event: Event) -> None:
        self._simulation.shell.receive(event)

    def _live(self) -> None:
        self._say(Heard(self.id))
        self._simulation.agenda.after(5.0, self._live)


def established() -> tuple[Simulation, Trust]:
    """A pool whose workers are believed, at work."""
    run = spec(128, pool={"audit_share": 0.05})
    trust = Trust(0.05, Random(1))
    simulation = Simulation(run, pool=Pool(run, 0, 1000.0, trust=trust))
    for name in ESTABLISHED:
        trust.record(name).standing = "established"
        simulation.join(name, speed=2e4, numeric=CLASS)
    simulation.run_for(3.0)
    return simulation, trust


@pytest.mark.parametrize("numeric", [CLASS, OTHER])
@pytest.mark.parametrize("answer", [breaks, crashes, declines])
def test_who_brings_nothing_of_its_trials_rests_longer_each_time(
    answer: Answer, numeric: bytes
) -> None:
    simulation, _ = established()
    stranger = Stranger(simulation, "x", answer, numeric)
    simulation.run_for(SECONDS)
    assert 5 <= stranger.given <= MOST


def test_a_crowd_that_brings_nothing_keeps_nobody_from_being_tried() -> None:
    simulation, trust = established()
    crowd = [
        Stranger(simulation, f"x{number}", answer, CLASS)
        for number, answer in enumerate([breaks, crashes, declines] * 10)
    ]
    simulation.join("honest", speed=2e4, numeric=CLASS)
    assert simulation.run(lambda: trust.is_believed("honest"), SECONDS)
    simulation.run_for(SECONDS)
    assert all(stranger.given <= 2 * MOST for stranger in crowd)
    assert all(trust.is_believed(name) for name in ESTABLISHED)


def test_an_honest_newcomer_that_fails_now_and_then_is_established_all_the_same() -> None:
    simulation, trust = established()
    worker = simulation.join("honest", speed=2e4, numeric=CLASS)
    tried = 0

    def says(task: SendTask, played: Played) -> Played:
        nonlocal tried
        tried += 1
        returns, lengths = played
        if tried % 3 == 0:
            returns, lengths = returns.copy(), lengths.copy()
            returns[:], lengths[:] = float("nan"), 0
        return returns, lengths

    worker.says = says
    assert simulation.run(lambda: trust.is_believed("honest"), SECONDS)
    assert tried >= 3
