"""Reads what the platform tells of battery, heat, memory, and what others do; decides nothing."""

from __future__ import annotations

import contextlib
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from worker.permission import Heat, Readings, Terms

if TYPE_CHECKING:
    import psutil

PROCESSORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal", "cpu-thermal", "soc_thermal")
"""Sensors that tell of processors; those of disks and batteries are none of evaluation's doing."""
COLDEST, HOTTEST = 1.0, 150.0
"""Degrees Celsius between which a sensor is believed."""


class Gauge:
    """The machine as it is while this process works; used from one thread at a time."""

    def __init__(self, terms: Terms) -> None:
        """`terms`: for which alone it looks at every process of the machine."""
        import psutil

        self._psutil = psutil
        self._counts = terms.idle_only or terms.memory is not None
        self._self = psutil.Process()
        self._before: tuple[float, float] | None = None

    def read(self) -> Readings:
        """What is told now; reading takes some milliseconds."""
        told = Readings(on_battery=self._on_battery(), heat=self._heat())
        if not self._counts:
            return told
        family = self._family()
        memory, evaluating = self._memory(family)
        return replace(
            told,
            others=self._others(family),
            cores=self._psutil.cpu_count() or 1,
            untouched=self._untouched(),
            memory=memory,
            evaluating=evaluating,
        )

    def _family(self) -> list[psutil.Process]:
        """This process and all that it started."""
        with contextlib.suppress(self._psutil.Error):
            return [self._self, *self._self.children(recursive=True)]
        return [self._self]

    def _on_battery(self) -> bool | None:
        with contextlib.suppress(Exception):  # platforms without one differ in how they say so
            battery = self._psutil.sensors_battery()
            if battery is not None and battery.power_plugged is not None:
                return not battery.power_plugged
        return None

    def _others(self, family: list[psutil.Process]) -> float | None:
        """Cores that others have used since the last call. Niced programs of others are idle work
        like ours, and not counted where the system tells them apart."""
        times = self._psutil.cpu_times()
        told_apart = hasattr(times, "nice")
        niced = told_apart and sys.platform != "win32" and self._self.nice() > 0
        ours = 0.0
        for process in family:
            with contextlib.suppress(self._psutil.Error):
                used = process.cpu_times()
                ours += used.system + used.children_system
                if not niced:
                    ours += used.user + used.children_user
        others, now = times.user + times.system - ours, time.monotonic()
        before, self._before = self._before, (others, now)
        if before is None or now <= before[1]:
            return None
        return max(0.0, (others - before[0]) / (now - before[1]))

    def _untouched(self) -> float | None:
        """Seconds since somebody typed at any terminal of this machine; None without terminals."""
        if sys.platform == "win32":
            return None
        touched = []
        with contextlib.suppress(Exception):  # containers often lack what tells who is logged in
            for user in self._psutil.users():
                with contextlib.suppress(OSError):
                    touched.append(Path("/dev", user.terminal or "").stat().st_atime)
        return max(0.0, time.time() - max(touched)) if touched else None

    def _heat(self) -> tuple[Heat, ...]:
        sensors = getattr(self._psutil, "sensors_temperatures", dict)
        found = []
        with contextlib.suppress(Exception):  # a driver may fail in any way
            for name, entries in sensors().items():
                if name in PROCESSORS:
                    found += [_heat(entry.current, entry.critical) for entry in entries]
        return tuple(heat for heat in found if heat is not None)

    def _memory(self, family: list[psutil.Process]) -> tuple[int, int]:
        """Bytes that we take, and those of them that our evaluation processes have alone: what
        they share, such as parameters, is counted once."""
        own = shared = evaluating = 0
        for process in family:
            with contextlib.suppress(self._psutil.Error):
                found = process.memory_info()
                if process == self._self:
                    own = int(found.rss)
                    continue
                part = int(getattr(found, "shared", 0))
                shared = max(shared, part)
                evaluating += int(found.rss) - part
        return own + shared + evaluating, evaluating


def _heat(now: float | None, critical: float | None) -> Heat | None:
    """What a sensor tells, if that can be true."""
    if now is None or not COLDEST <= now <= HOTTEST:
        return None
    believed = critical is not None and COLDEST < critical <= HOTTEST
    return Heat(now, critical if believed else None)
