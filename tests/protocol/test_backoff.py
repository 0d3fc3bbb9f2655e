from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.backoff import LONGEST, SHORTEST, next_delay


class Extreme(Random):
    """Always the lowest, or always the highest of what may come."""

    def __init__(self, *, highest: bool) -> None:
        super().__init__()
        self.highest = highest

    def uniform(self, a: float, b: float) -> float:
        return b if self.highest else a


@given(st.floats(min_value=0.0, max_value=1e12), st.integers())
def test_every_delay_lies_between_the_bounds(previous: float, seed: int) -> None:
    delay = next_delay(previous, Random(seed))
    assert SHORTEST <= delay <= LONGEST
    assert delay <= max(SHORTEST, 3.0 * previous)


def test_the_bounds_are_those_of_the_protocol() -> None:
    assert (SHORTEST, LONGEST) == (0.1, 30.0)


def test_the_highest_delays_triple_until_the_longest() -> None:
    delays, delay = [], SHORTEST
    for _ in range(8):
        delay = next_delay(delay, Extreme(highest=True))
        delays.append(delay)
    assert delays == pytest.approx([0.3, 0.9, 2.7, 8.1, 24.3, 30.0, 30.0, 30.0])


def test_a_lucky_draw_comes_back_to_the_shortest_from_anywhere() -> None:
    assert next_delay(LONGEST, Extreme(highest=False)) == SHORTEST


def test_clients_that_lost_the_broker_together_do_not_return_together() -> None:
    first = [next_delay(SHORTEST, Random(seed)) for seed in range(1000)]
    tenths = [int((delay - SHORTEST) / (2 * SHORTEST) * 10) for delay in first]
    assert all(50 <= tenths.count(tenth) <= 150 for tenth in range(10))


def test_the_same_randomness_gives_the_same_delays() -> None:
    assert [next_delay(1.0, Random(7)) for _ in range(3)] == [next_delay(1.0, Random(7))] * 3
