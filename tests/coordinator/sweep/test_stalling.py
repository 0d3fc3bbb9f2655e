"""A run that fails wherever it is tried is given up; one that only waits for workers is not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coordinator.overview import Overview
from coordinator.sweep.stalling import STUCK_SECONDS, Stall
from tests.coordinator.screen.scenes import overview


def stuck() -> Overview:
    """All workers failed it."""
    view = overview(
        version=3, quiet="the run waits: direction 5 fails", paused=False, updating=False
    )
    workers = tuple(replace(each, trouble="it raised", state="resting") for each in view.workers)
    return replace(view, workers=workers)


UNABLE = (("no such environment here", 2), ("too long", 1))
GIVEN_UP = {
    "all failed": (stuck(), "direction 5 fails"),
    "nobody can": (replace(stuck(), workers=(), unable=UNABLE), "no such environment here"),
}
WAITED_FOR = {
    "nobody came": replace(stuck(), workers=()),
    "one never failed": replace(
        stuck(), workers=(replace(stuck().workers[0], trouble=""), *stuck().workers[1:])
    ),
    "all are paused": replace(
        stuck(), workers=tuple(replace(each, state="paused") for each in stuck().workers)
    ),
    "the host paused it": replace(stuck(), paused=True),
    "an update is being made": replace(stuck(), updating=True),
    "work is out": replace(stuck(), quiet=""),
}


@pytest.mark.parametrize("case", GIVEN_UP)
def test_what_fails_everywhere_is_given_up_after_a_while(case: str) -> None:
    view, why = GIVEN_UP[case]
    stall = Stall()
    assert stall.look(view, 100.0) == stall.look(view, 99.9 + STUCK_SECONDS) == ""
    assert why in stall.look(view, 100.0 + STUCK_SECONDS)


@pytest.mark.parametrize("case", WAITED_FOR)
def test_what_may_go_on_by_itself_is_waited_for(case: str) -> None:
    stall = Stall()
    assert {stall.look(WAITED_FOR[case], at * STUCK_SECONDS) for at in range(9)} == {""}


def test_whoever_comes_further_is_not_stuck() -> None:
    stall = Stall()
    for at in range(9):
        assert stall.look(replace(stuck(), version=at), at * STUCK_SECONDS) == ""


def test_time_without_workers_does_not_count() -> None:
    stall = Stall()
    for at in range(9):
        stall.look(WAITED_FOR["nobody came"], at * STUCK_SECONDS)
    assert stall.look(GIVEN_UP["nobody can"][0], 8.5 * STUCK_SECONDS) == ""
