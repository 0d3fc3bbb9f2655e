"""When a volunteer's machine may work, by what was chosen, the clock, and readings. Pure.

What flickers is held: a reason to pause lasts until it has been gone for a while, so that a machine
is not started and stopped every few seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from worker.evaluation.memory import EMPTY, shown
from worker.schedule import Schedule
from worker.spans import Until

BUSY_SHARE, BUSY_LEAST = 0.1, 0.5
"""Of the machine's cores, and cores at least, that others use where it is in use."""
BUSY_FOR, CALM_FOR = 10.0, 60.0
"""Seconds for which they use that much before we pause, and less than half of it before we go
on."""
TYPED_WITHIN = 120.0
"""Seconds since the last key at a terminal within which the machine is in use."""
PLUGGED_FOR = 30.0
"""Seconds for which the mains are there before we trust them: plugs are loose at times."""
MARGIN = 5.0
"""Degrees below what the platform calls critical from where on it is too hot."""
COOLER, COOL_FOR = 10.0, 30.0
"""Degrees below that, and seconds for which it is so, before we go on."""
LIGHTER, LIGHT_FOR = 0.9, 10.0
"""The same of memory: a part of the limit, and seconds."""
DAEMON = 200 << 20
"""Bytes that a worker takes without its evaluation processes."""


@dataclass(frozen=True, slots=True)
class Terms:
    """On what terms the volunteer lends the machine.

    Attributes:
        idle_only: only while nobody else uses it.
        schedule: only in these hours.
        pause_on_battery: only while it is on the mains.
        max_temperature: degrees Celsius; None for `MARGIN` below what the platform calls critical.
        memory: bytes that the whole worker may take; None for no limit of its own.
        until: when it leaves.
        most_tasks: after how many tasks it leaves.
        exit_when_idle: after how many seconds without a task it leaves.
    """

    idle_only: bool = False
    schedule: Schedule | None = None
    pause_on_battery: bool = False
    max_temperature: float | None = None
    memory: int | None = None
    until: Until | None = None
    most_tasks: int | None = None
    exit_when_idle: float | None = None


@dataclass(frozen=True, slots=True)
class Heat:
    """Degrees Celsius of a processor's sensor, and what its platform calls critical, if any."""

    now: float
    critical: float | None = None


@dataclass(frozen=True, slots=True)
class Readings:
    """What the platform tells; None for what it does not.

    Attributes:
        on_battery: whether it is.
        others: cores that programs of others than this worker, and not niced, have used since the
            last reading.
        cores: of the machine.
        untouched: seconds since somebody typed at a terminal.
        heat: of the processors' sensors.
        memory: bytes that the whole worker takes, `evaluating` of them in its evaluation processes.
    """

    on_battery: bool | None = None
    others: float | None = None
    cores: int = 1
    untouched: float | None = None
    heat: tuple[Heat, ...] = ()
    memory: int = 0
    evaluating: int = 0


class Latch:
    """A condition that holds once it has lasted, and until it has been clearly over for a while."""

    def __init__(self, begins_after: float, ends_after: float) -> None:
        """Both in seconds."""
        self.holds = False
        self._begins_after, self._ends_after = begins_after, ends_after
        self._since: float | None = None

    def look(self, on: bool, off: bool, now: float) -> bool:
        """Whether it holds; `on`: the condition is there, `off`: it clearly is not."""
        turns = off if self.holds else on
        if not turns:
            self._since = None
        elif self._since is None:
            self._since = now
        wait = self._ends_after if self.holds else self._begins_after
        if self._since is not None and now - self._since >= wait:
            self.holds, self._since = not self.holds, None
        return self.holds


class Permission:
    """Whether the machine may work, as time goes by."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self._battery = Latch(0.0, PLUGGED_FOR)
        self._busy = Latch(BUSY_FOR, CALM_FOR)
        self._hot = Latch(0.0, COOL_FOR)
        self._large = Latch(0.0, LIGHT_FOR)
        # The most since a pause began: what is said then changes seldom, and fills no log.
        self._hottest = 0.0
        self._largest = 0

    def judge(self, readings: Readings, local: datetime, now: float) -> str:
        """Why it may not, in words; empty where it may.

        `local`: by the clock on its wall; `now`: seconds that never go back.
        """
        reasons = (
            self._outside(local),
            self._on_battery(readings, now),
            self._in_use(readings, now),
            self._too_hot(readings, now),
            self._too_large(readings, now),
        )
        return next((reason for reason in reasons if reason), "")

    def _outside(self, local: datetime) -> str:
        schedule = self.terms.schedule
        if schedule is None or schedule.allows(local):
            return ""
        return f"paused: outside {schedule.text}"

    def _on_battery(self, readings: Readings, now: float) -> str:
        on = bool(readings.on_battery) and self.terms.pause_on_battery
        return "paused: on battery" if self._battery.look(on, not on, now) else ""

    def _in_use(self, readings: Readings, now: float) -> str:
        if not self.terms.idle_only:
            return ""
        bound = max(BUSY_LEAST, BUSY_SHARE * readings.cores)
        others = readings.others
        if others is not None:
            self._busy.look(others >= bound, others < bound / 2.0, now)
        typed = readings.untouched is not None and readings.untouched < TYPED_WITHIN
        return "paused: this machine is in use" if self._busy.holds or typed else ""

    def _too_hot(self, readings: Readings, now: float) -> str:
        hottest = max(readings.heat, key=lambda heat: heat.now - self._bound(heat), default=None)
        if hottest is None:
            return ""
        bound = self._bound(hottest)
        holds = self._hot.look(hottest.now >= bound, hottest.now < bound - COOLER, now)
        self._hottest = max(self._hottest, hottest.now) if holds else 0.0
        return f"paused: too hot ({self._hottest:.0f} C)" if holds else ""

    def _bound(self, heat: Heat) -> float:
        if self.terms.max_temperature is not None:
            return self.terms.max_temperature
        return float("inf") if heat.critical is None else heat.critical - MARGIN

    def _too_large(self, readings: Readings, now: float) -> str:
        limit = self.terms.memory
        if limit is None or not readings.memory:
            return ""
        size = readings.memory
        holds = self._large.look(size > limit, size < LIGHTER * limit, now)
        self._largest = max(self._largest, size) if holds else 0
        if not holds:
            return ""
        return f"paused: it takes {shown(self._largest)} of memory (--memory {shown(limit)})"


def least_memory(children: int) -> int:
    """Bytes of a whole worker with so many evaluation processes, before any of them has work."""
    return DAEMON + children * EMPTY


def memory_of_child(limit: int, readings: Readings, children: int) -> int:
    """Bytes that each of so many evaluation processes may take, so that the whole worker stays
    below `limit`."""
    rest = max(DAEMON, readings.memory - readings.evaluating)
    return max(EMPTY, (limit - rest) // children)
