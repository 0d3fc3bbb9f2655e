"""How many lanes: the fewest of the fastest, found in bounded time, and never seen in a return."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.worker import reference
from tests.worker.reference import TOYS, run_spec
from worker.evaluation import choosing, environments
from worker.evaluation.choosing import NOISE, chosen, lanes_together, tried, vector_lanes
from worker.evaluation.jobs import EvaluationJob
from worker.evaluation.lanes import Lanes
from worker.evaluation.probe import probe
from worker.policies.making import NOTHING

JOB = EvaluationJob("members", 0, 0, 4, sigma=0.5)
PACES = st.lists(st.floats(0.2, 5.0), min_size=3, max_size=9)


@given(
    speeds=st.lists(st.floats(1.0, 1e6), min_size=1, max_size=9),
    paces=PACES,
)
def test_the_fewest_lanes_within_noise_of_the_fastest_are_chosen(speeds, paces):
    """However the pace of the machine changes from round to round."""
    rates = {2**i: [speed * pace for pace in paces] for i, speed in enumerate(speeds)}
    found = chosen(rates)
    shares = [speed / max(speeds) for speed in speeds]
    assert shares[found.bit_length() - 1] >= 1 - NOISE - 1e-9
    assert all(share < 1 - NOISE + 1e-9 for share in shares[: found.bit_length() - 1])


def test_a_round_that_was_held_up_decides_nothing():
    held_up = [100.0, 20.0, 100.0, 100.0, 100.0]
    assert chosen({1: [60.0] * 5, 4: held_up, 8: [98.0] * 5}) == 4
    assert chosen({1: [0.0], 2: [0.0]}) == 1, "nothing was measured"


class Machine:
    """Environments whose step burns so much time of a clock for each lane that takes part."""

    limit = 8

    def __init__(
        self,
        seconds: float,
        reset_seconds: float = 0.0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.seconds, self.reset_seconds, self.made = seconds, reset_seconds, 0
        self.clock = clock

    def make(self) -> Any:
        self.made += 1
        spec = run_spec("ToyWalk-v0")
        environment = environments.maker(spec.environment, [TOYS]).make()
        step, reset = environment.step, environment.reset

        def slowly(action: Any) -> Any:
            burn(self.seconds, self.clock)
            return step(action)

        def slow_reset(**arguments: Any) -> Any:
            burn(self.reset_seconds, self.clock)
            return reset(**arguments)

        environment.step, environment.reset = slowly, slow_reset
        return environment


def burn(seconds: float, clock: Callable[[], float]) -> None:
    end = clock() + seconds
    while clock() < end:
        pass


@pytest.mark.parametrize(("step", "reset"), [(0.05, 0.0), (0.0, 0.2), (1e-4, 0.01)])
def test_slow_environments_are_tried_for_a_short_while(step, reset):
    machine, begin = Machine(step, reset), time.perf_counter()
    found = tried(run_spec("ToyWalk-v0"), machine, JOB, NOTHING, lambda take: None, fresh=False)
    turn = 2 * (step + reset)  # of the most lanes at the least
    assert time.perf_counter() - begin < 2 * choosing.LONGEST_SECONDS + 16 * turn
    assert 1 <= found <= machine.made


def test_what_costs_nothing_else_has_no_use_for_many_lanes():
    machine = Machine(2e-3, clock=time.process_time)  # which is what is measured
    found = tried(run_spec("ToyWalk-v0"), machine, JOB, NOTHING, lambda take: None, fresh=False)
    assert found <= 4, "what a step costs beside its lanes is a hundredth of it"


def test_the_volunteer_may_fix_how_many():
    spec = run_spec("ToyWalk-v0")
    maker = environments.maker(spec.environment, [TOYS])
    assert probe(spec, maker, lambda take: None, lanes=5).lanes == 5
    spec = run_spec("CartPole-v1")
    found = probe(spec, environments.maker(spec.environment), lambda take: None, lanes=3)
    assert (found.lanes, found.together) == (3, True)


def test_lanes_that_share_instances_play_as_others_do():
    spec = run_spec("ToyWalk-v0")
    maker = environments.maker(spec.environment, [TOYS])
    job, theta = EvaluationJob("members", 0, 0, 6, sigma=0.3), reference.theta(spec)
    many = Lanes(spec, maker, 6)
    few = Lanes(spec, maker, 2, instances=many.instances)
    expected = many.evaluate(job, theta)
    stopped = few.start(EvaluationJob("members", 0, 9, 4, sigma=0.3), theta)
    few.step()
    assert few.busy == 2
    few.stop(stopped)
    assert few.busy == 0
    for lanes in (few, many):
        np.testing.assert_array_equal(lanes.evaluate(job, theta).returns, expected.returns)


def test_lanes_that_step_as_one_are_known():
    assert vector_lanes(226) == choosing.MOST_VECTOR_LANES
    assert vector_lanes(1_000_000) == choosing.FEWEST_LANES
    assert lanes_together(226, 1e-5) == choosing.MOST_TOGETHER
    assert lanes_together(226, 1e-3) == lanes_together(1_000_000, 1e-5) == choosing.FEWEST_TOGETHER
