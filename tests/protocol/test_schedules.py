import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.schedules import Schedule
from tests.protocol import generated

KINDS = ("constant", "exponential", "linear", "cosine")
SCHEDULES = generated.struct(Schedule, updates=st.integers(1, 10_000), warm_up=st.integers(0, 1000))
VERSIONS = st.integers(0, 2**40)


def factors(count, **fields):
    schedule = Schedule(**fields)
    return [schedule.factor(version) for version in range(count)]


def test_constant_is_constant():
    assert factors(4) == [1.0] * 4


def test_exponential_falls_by_the_same_share_to_its_floor():
    expected = [1.0, 0.5, 0.25, 0.2, 0.2]
    assert factors(5, kind="exponential", decay=0.5, floor=0.2) == expected
    assert factors(3, kind="exponential", decay=0.9)[2] == pytest.approx(0.81, rel=1e-15)


def test_linear_falls_in_a_line_and_stays():
    made = factors(7, kind="linear", updates=4, floor=0.2)
    assert made == pytest.approx([1.0, 0.8, 0.6, 0.4, 0.2, 0.2, 0.2], rel=1e-15)
    assert made[4:] == [0.2] * 3


def test_cosine_falls_slowly_fast_slowly_and_stays():
    """At its end and beyond, where another library's raises."""
    made = factors(8, kind="cosine", updates=4, floor=0.2)
    expected = [0.2 + 0.8 * (1 + math.cos(math.pi * n / 4)) / 2 for n in range(5)]
    assert made[:5] == pytest.approx(expected, rel=1e-15)
    assert made[4:] == [0.2] * 4
    assert Schedule(kind="cosine", updates=4).factor(2**40) == 0.0


def test_cosine_is_torchs():
    torch = pytest.importorskip("torch")
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.5)
    annealing = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 30, eta_min=0.05)
    rates = []
    for _ in range(31):
        rates.append(annealing.get_last_lr()[0])
        optimizer.step()
        annealing.step()
    made = [0.5 * factor for factor in factors(31, kind="cosine", updates=30, floor=0.1)]
    assert made == pytest.approx(rates, rel=1e-9)


def test_warm_up_rises_to_the_whole_and_the_rest_begins_there():
    made = factors(7, kind="linear", updates=2, warm_up=4)
    assert made == [0.25, 0.5, 0.75, 1.0, 0.5, 0.0, 0.0]
    assert factors(3, warm_up=1) == [1.0] * 3
    assert factors(3, kind="exponential", decay=0.5, warm_up=1) == [1.0, 0.5, 0.25]


@given(SCHEDULES, VERSIONS)
def test_a_factor_lies_between_the_floor_and_the_whole(schedule, version):
    factor = schedule.factor(version)
    assert 0.0 <= factor <= 1.0
    assert factor >= schedule.floor or version < schedule.warm_up


@given(SCHEDULES, VERSIONS)
def test_it_rises_while_it_warms_up_and_never_again(schedule, version):
    before, after = schedule.factor(version), schedule.factor(version + 1)
    if version + 1 < schedule.warm_up:
        assert after > before
    else:
        assert after <= before


@given(SCHEDULES)
def test_without_warm_up_the_first_value_is_the_one_given(schedule):
    assert schedule.warm_up or schedule.factor(0) == 1.0


@pytest.mark.parametrize("kind", KINDS)
def test_a_way_down_needs_a_length(kind):
    said = Schedule(kind=kind).fault("optimizer.schedule")
    assert (said is None) == (kind in ("constant", "exponential"))
    if said is not None:
        assert said.startswith(
            f'optimizer.schedule.updates is 0 with optimizer.schedule.kind = "{kind}"'
        )
    assert Schedule(kind=kind, updates=1).fault("optimizer.schedule") is None
