from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from protocol.allowance import Allowance


@given(
    rate=st.floats(0.1, 100.0),
    most=st.floats(1.0, 100.0),
    asked=st.lists(st.tuples(st.floats(0.0, 10.0), st.floats(0.0, 50.0)), max_size=50),
)
def test_never_more_than_most_and_what_time_brings(
    rate: float, most: float, asked: list[tuple[float, float]]
) -> None:
    allowance, now, taken = Allowance(rate, most), 0.0, 0.0
    for wait, amount in asked:
        now += wait
        if allowance.take(amount, now):
            taken += amount
        assert taken <= (most + rate * now) * (1.0 + 1e-9)


def test_refused_takes_nothing_and_time_refills() -> None:
    allowance = Allowance(1.0, 10.0)
    assert allowance.full(0.0)
    assert allowance.take(8.0, 0.0)
    assert not allowance.take(3.0, 0.5)
    assert allowance.take(3.0, 1.0)
    assert not allowance.full(10.5)
    assert allowance.full(11.0)


@given(st.lists(st.tuples(st.floats(0.0, 5.0), st.floats(1.0, 1e6)), min_size=1))
def test_who_waits_out_debts_gets_no_more_than_the_rate_and_one_helping(
    events: list[tuple[float, float]],
) -> None:
    allowance, now, taken, last = Allowance(1000.0, 5000.0), 0.0, 0.0, 0.0
    for pause, amount in events:
        now += pause
        if not allowance.delay(now):
            allowance.overdraw(amount)
            taken, last = taken + amount, amount
        assert taken - last <= 5000.0 + 1000.0 * now + 1e-6
    wait = allowance.delay(now)
    assert allowance.delay(now + wait) == 0.0
