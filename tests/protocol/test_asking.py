"""When something missing is asked for; the moments are drawn, so the tests look at their bounds."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from protocol.asking import FIRST_PATIENCE, LONGEST_PATIENCE, Asking

GRACE = 0.4


def asked_at(asking: Asking, since: float, until: float) -> list[float]:
    """The moments from `since` on, in hundredths, at which it asks."""
    moments = [since + step / 100 for step in range(round(100 * (until - since)))]
    return [now for now in moments if asking.due(now)]


@pytest.fixture(params=range(5))
def asking(request: pytest.FixtureRequest) -> Asking:
    return Asking(GRACE, Random(request.param))


def test_it_asks_after_some_grace_and_then_ever_more_rarely(asking: Asking) -> None:
    moments = asked_at(asking, 10.0, 100.0)
    assert 10.0 + 0.75 * GRACE <= moments[0] <= 10.01 + 1.25 * GRACE
    gaps = [later - earlier for earlier, later in pairwise(moments)]
    assert 0.75 * FIRST_PATIENCE <= gaps[0] <= 1.25 * FIRST_PATIENCE + 0.02
    assert max(gaps) <= 1.25 * LONGEST_PATIENCE + 0.02
    assert min(gaps[3:]) >= 0.75 * LONGEST_PATIENCE - 0.02
    assert asking.asked


def test_in_a_hurry_it_asks_at_once_but_only_once(asking: Asking) -> None:
    asking.hurry()
    assert asking.due(10.0)
    assert not asking.due(10.0)
    asking.begin_anew()
    assert not asking.due(10.1)  # the hurry is over: something else has its grace


def test_who_lacks_nothing_begins_anew(asking: Asking) -> None:
    asked_at(asking, 0.0, 60.0)
    asking.rest()
    assert not asking.asked
    assert not asking.due(60.0)
    assert asked_at(asking, 60.0, 70.0)[0] <= 60.01 + 1.25 * GRACE


def test_what_comes_puts_the_next_request_off(asking: Asking) -> None:
    asking.hurry()
    assert asking.due(0.0)
    for now in range(1, 20):
        asking.moved(2.0, float(now))
        assert not asking.due(now + 1.0)
    assert asked_at(asking, 20.0, 24.0)
