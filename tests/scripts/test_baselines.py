"""Waiting for all, against what can be worked out by hand."""

from __future__ import annotations

import math

import pytest

from scripts.simulation.baselines import Split, Waiting, declared, equal, wait_for_all
from scripts.simulation.environments import Formula
from scripts.simulation.population import Life
from scripts.simulation.worker import Traits

EPISODES = Formula(mean=100, lengths="constant")
"""a direction takes 200 steps"""


def life(
    speed: float,
    arrives: float = 0.0,
    leaves: float = math.inf,
    vanishes: bool = False,
    says: float | None = None,
) -> Life:
    traits = Traits(speed=speed, declared=says or speed, latency=0.0)
    return Life("worker", "s", traits, arrives, leaves, vanishes, ())


def waiting(
    *places: list[Life], split: Split = equal, updates: int = 1, directions: int = 12
) -> Waiting:
    return wait_for_all(
        iter([iter(place) for place in places]),
        EPISODES,
        directions=directions,
        split=split,
        start=0.0,
        updates=updates,
        between=0.0,
        timeout=5.0,
    )


def test_equal_parts_wait_for_the_slowest() -> None:
    found = waiting([life(1200.0)], [life(300.0)], updates=3)
    assert found.seconds == pytest.approx(6 * 200 / 300.0)
    assert found.efficiency == pytest.approx(2400.0 / (1500.0 * 4.0))
    assert found.updates == 3


def test_parts_by_declared_speed_end_together_where_it_is_true() -> None:
    found = waiting([life(1000.0)], [life(200.0)], split=declared)
    assert found.seconds == pytest.approx(2.0)
    assert found.efficiency == pytest.approx(1.0)


def test_parts_by_declared_speed_wait_for_a_liar() -> None:
    found = waiting([life(200.0)], [life(200.0, says=1000.0)], split=declared)
    assert found.seconds == pytest.approx(10.0)


def test_the_part_of_who_leaves_is_split_over_who_is_there_when_the_rest_is_here() -> None:
    # Six directions of 200 steps each: one is done at 1 s, and at 2 s alone with the other's part.
    found = waiting([life(1200.0)], [life(300.0, leaves=2.0)])
    assert found.seconds == pytest.approx(3.0)
    assert found.efficiency == pytest.approx(2400.0 / (1200.0 * 3.0 + 300.0 * 2.0))


def test_that_a_worker_vanished_is_known_after_the_time_out_only() -> None:
    found = waiting([life(1200.0)], [life(300.0, leaves=2.0, vanishes=True)])
    assert found.seconds == pytest.approx(2.0 + 5.0 + 1.0)


def test_newcomers_take_a_part_of_what_is_split_anew() -> None:
    # At 0.9 s two directions of four are lost, and two workers are there.
    gone = life(400.0, leaves=0.9)
    found = waiting([life(800.0)], [gone], [life(400.0, arrives=0.5)], directions=4)
    assert found.seconds == pytest.approx(0.9 + 200.0 / 400.0)


def test_an_update_waits_for_a_worker_where_nobody_is_left() -> None:
    found = waiting([life(1200.0, leaves=0.5), life(2400.0, arrives=10.0)])
    assert found.seconds == pytest.approx(11.0)


def test_messages_take_their_time() -> None:
    slow = Life("worker", "s", Traits(speed=2400.0, latency=0.25), 0.0, math.inf, False, ())
    assert waiting([slow]).seconds == pytest.approx(1.5)
