"""The clock goes forward, with whatever the system has."""

from __future__ import annotations

import time

import pytest

from protocol import clock


def test_it_never_goes_back() -> None:
    readings = [clock.now() for _ in range(100)]
    assert readings == sorted(readings)


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="the system has no such clock")
def test_it_counts_the_time_asleep() -> None:
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= clock.now() <= time.clock_gettime(time.CLOCK_BOOTTIME)


@pytest.mark.parametrize("missing", ["CLOCK_BOOTTIME", "clock_gettime"])
def test_a_system_without_one_has_the_monotonic_clock(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(time, missing, raising=False)
    before = time.monotonic()
    assert before <= clock.now() <= time.monotonic()
