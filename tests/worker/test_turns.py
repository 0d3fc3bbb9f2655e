from __future__ import annotations

import time

import pytest

from worker.sharing import SHORTEST
from worker.turns import Turns


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="a clock that tells of sleep")
def test_who_had_the_turn_while_the_machine_slept_owes_the_others_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shared, awake = Turns(cores=2), time.clock_gettime
    for run in ("a", "b"):
        shared.join(run, 1.0, lambda: True)
    shared.offer("a", 1)
    monkeypatch.setattr(time, "clock_gettime", lambda clock: awake(clock) + 3600.0)
    shared.arrived()
    shared.ended("a")
    assert 0.0 < shared.sharing.had("a") < 60.0
    assert shared.sharing.quantum == 2 * SHORTEST
