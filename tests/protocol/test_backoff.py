from __future__ import annotations

from random import Random
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.backoff import GOOD_AFTER, LONGEST, SHARE, SHORTEST, SPREAD, Outage, next_delay


class Highest(Random):
    """Always the highest of what may come."""

    def uniform(self, a: float, b: float) -> float:
        return b


def attempts(back_after: float, random: Random) -> list[float]:
    """When a broker was tried that is back so many seconds after it was lost; the last is when it
    was found."""
    moments = [next_delay(0.0, random)]
    while moments[-1] < back_after:
        moments.append(moments[-1] + next_delay(moments[-1], random))
    return moments


@given(st.floats(min_value=0.0, max_value=1e12), st.integers())
def test_every_delay_lies_between_the_bounds(away: float, seed: int) -> None:
    delay = next_delay(away, Random(seed))
    assert SHORTEST <= delay <= LONGEST
    assert delay <= max(SPREAD, SHARE * away)


def test_the_bounds_are_those_of_the_protocol() -> None:
    assert (SHORTEST, LONGEST) == (0.1, 30.0)


def test_the_highest_delays_grow_with_the_time_in_vain_until_the_longest() -> None:
    delays = [next_delay(away, Highest()) for away in (0.0, 0.9, 1.8, 9.0, 60.0, 90.0, 1e6)]
    assert delays == pytest.approx([0.3, 0.3, 0.6, 3.0, 20.0, 30.0, 30.0])


@pytest.mark.parametrize("back_after", [0.05, 0.5, 1.3, 2.0, 5.0, 20.0, 80.0])
def test_a_broker_that_is_back_is_found_soon(back_after: float) -> None:
    late = [attempts(back_after, Random(seed))[-1] - back_after for seed in range(2000)]
    assert max(late) <= max(SPREAD, SHARE * back_after)
    assert fmean(late) <= max(0.2, 0.15 * back_after)


def test_the_attempts_become_rare() -> None:
    counts = [len(attempts(3600.0, Random(seed))) for seed in range(100)]
    assert max(counts) < 350
    assert 200 < fmean(counts) < 300  # some 50 until they are 15 s apart on average


def test_clients_that_lost_the_broker_together_do_not_return_together() -> None:
    first = [next_delay(0.0, Random(seed)) for seed in range(1000)]
    tenths = [int((delay - SHORTEST) / (2 * SHORTEST) * 10) for delay in first]
    assert all(50 <= tenths.count(tenth) <= 150 for tenth in range(10))


def test_the_same_randomness_gives_the_same_delays() -> None:
    assert [next_delay(1.0, Random(7)) for _ in range(3)] == [next_delay(1.0, Random(7))] * 3


def flaps(up_for: float, hours: float) -> list[float]:
    """The waits of who is cut off each time that it has been connected for so long."""
    outage, random, waits, now = Outage(), Random(1), [], 0.0
    while now < 3600.0 * hours:
        outage.was_up(up_for)
        waits.append(next_delay(outage.away, random))
        outage.waited(waits[-1])
        now += up_for + waits[-1]
    return waits


@pytest.mark.parametrize("up_for", [0.0, 0.5, 5.0, GOOD_AFTER - 1.0])
def test_connections_that_do_not_last_become_rare(up_for: float) -> None:
    waits = flaps(up_for, hours=1.0)
    assert max(waits[:2]) <= 1.0
    assert fmean(waits[-20:]) > 10.0


def test_connections_that_last_are_looked_for_at_once_again() -> None:
    assert max(flaps(GOOD_AFTER, hours=10.0)) <= SPREAD
