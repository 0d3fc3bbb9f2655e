"""What this machine tells of itself, as far as every machine does."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import namedtuple
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from worker.permission import Heat, Terms
from worker.readings import Gauge

BUSY = "import os; print('on', flush=True)\nwhile True: os.stat('/proc/self/status')"
HELD = "import sys; held = bytearray(64 << 20); print('on', flush=True); sys.stdin.read()"
ALL = Terms(idle_only=True, memory=1 << 40)
Sensor = namedtuple("Sensor", "label current high critical")
Battery = namedtuple("Battery", "percent secsleft power_plugged")


def program(code: str) -> subprocess.Popen[str]:
    started = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert started.stdout is not None
    assert started.stdout.readline() == "on\n"
    return started


def test_the_memory_of_a_worker_is_its_own_and_that_of_its_processes() -> None:
    gauge = Gauge(ALL)
    before = gauge.read()
    with program(HELD) as child:
        during = gauge.read()
        child.kill()
    assert before.memory >= psutil.Process().memory_info().rss * 0.9
    assert during.evaluating - before.evaluating >= 64 << 20
    assert during.memory - before.memory >= 64 << 20


@pytest.mark.skipif(sys.platform == "win32", reason="priorities of Unix")
def test_what_our_processes_do_is_not_the_work_of_others() -> None:
    if os.nice(0) > 0:
        pytest.skip("niced work is not counted here")
    gauge = Gauge(ALL)
    with program(BUSY) as child:
        busy = psutil.Process(child.pid)
        before, began = whole_machine(), time.monotonic()
        assert gauge.read().others is None, "there is nothing to compare with"
        first = of(busy)
        while (used := of(busy) - first) < 0.8:
            time.sleep(0.05)
        others = gauge.read().others
        after, ended = whole_machine(), time.monotonic()
        child.kill()
    assert others is not None
    assert others * (ended - began) <= after - before - used + 0.2


def of(process: psutil.Process) -> float:
    """Seconds of processors that a program used."""
    times = process.cpu_times()
    return float(times.user + times.system)


def whole_machine() -> float:
    """Seconds of processors that all programs used which are not niced."""
    times = psutil.cpu_times()
    return float(times.user + times.system)


@pytest.mark.skipif(sys.platform == "win32", reason="priorities of Unix")
def test_what_others_do_is(monkeypatch: pytest.MonkeyPatch) -> None:
    gauge = Gauge(ALL)
    with program(BUSY) as child:
        monkeypatch.setattr(gauge, "_family", lambda: [psutil.Process()])
        busy = psutil.Process(child.pid)
        gauge.read()
        first, began = of(busy), time.monotonic()
        while (used := of(busy) - first) < 0.8:
            time.sleep(0.05)
        seconds, others = time.monotonic() - began, gauge.read().others
        child.kill()
    if os.nice(0) == 0:
        assert others is not None and others >= 0.6 * used / seconds


def test_a_machine_without_sensors_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(psutil, "sensors_temperatures", raising=False)
    monkeypatch.delattr(psutil, "sensors_battery", raising=False)
    found = Gauge(ALL).read()
    assert (found.heat, found.on_battery) == ((), None)


def broken(*_: Any, **__: Any) -> Any:
    raise RuntimeError("a driver of somebody's")


def test_sensors_that_fail_tell_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("sensors_temperatures", "sensors_battery", "users"):
        monkeypatch.setattr(psutil, name, broken, raising=False)
    found = Gauge(ALL).read()
    assert (found.heat, found.on_battery, found.untouched) == ((), None, None)


def test_processors_are_believed_within_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    sensors = {
        "coretemp": [Sensor("0", 61.0, 90.0, 100.0), Sensor("1", 62.0, None, None)],
        "k10temp": [Sensor("", 55.0, None, 0.0), Sensor("", 255.0, None, 100.0)],
        "nvme": [Sensor("", 80.0, 82.0, 85.0)],
    }
    monkeypatch.setattr(psutil, "sensors_temperatures", lambda: sensors, raising=False)
    assert Gauge(ALL).read().heat == (Heat(61.0, 100.0), Heat(62.0), Heat(55.0))


@pytest.mark.parametrize(("plugged", "on_battery"), [(True, False), (False, True), (None, None)])
def test_a_battery(
    plugged: bool | None, on_battery: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    battery = Battery(50.0, 3600, plugged)
    monkeypatch.setattr(psutil, "sensors_battery", lambda: battery, raising=False)
    assert Gauge(ALL).read().on_battery is on_battery


@pytest.mark.skipif(sys.platform == "win32", reason="terminals of Unix")
def test_the_latest_key_at_any_terminal_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    for name, age in (("pts-1", 300.0), ("pts-2", 40.0)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (time.time() - age, time.time()))
    names = [str(tmp_path / "pts-1"), str(tmp_path / "pts-2"), "gone", None]
    users = [SimpleNamespace(terminal=name) for name in names]
    monkeypatch.setattr(psutil, "users", lambda: users)
    found = Gauge(ALL).read().untouched
    assert found is not None and 39.0 <= found <= 60.0


def test_nobody_counts_processes_whom_nobody_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil.Process, "children", broken)
    monkeypatch.setattr(psutil, "cpu_times", broken)
    found = Gauge(Terms()).read()
    assert (found.others, found.memory) == (None, 0)
