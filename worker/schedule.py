"""The hours of the week in which a volunteer's machine may work: parsed, and asked. Pure.

Hours are those that a clock on the wall shows: a night in which clocks are changed is an hour
shorter or longer, and no window opens twice or stays shut for it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from protocol.errors import ShoalError

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
DAY = 24 * 60
LONGEST = 200
"""Characters of a schedule."""
_DAYS = re.compile(r"([a-z]{3,9})(?:-([a-z]{3,9}))?")
_HOURS = re.compile(r"(\d{1,2}):(\d{2})-(\d{1,2}):(\d{2})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Window:
    """Hours of some days of the week (0: Monday), in minutes from midnight; those that end before
    they begin go on into the next day."""

    days: frozenset[int]
    begin: int
    end: int

    def holds(self, day: int, minute: int) -> bool:
        """Whether that minute of that day of the week lies in it."""
        if self.begin < self.end:
            return day in self.days and self.begin <= minute < self.end
        before = (day - 1) % 7
        return (day in self.days and minute >= self.begin) or (
            before in self.days and minute < self.end
        )


@dataclass(frozen=True, slots=True)
class Schedule:
    """Windows of the week; `text` is how they were given."""

    text: str
    windows: tuple[Window, ...]

    def allows(self, local: datetime) -> bool:
        """Whether the machine may work at this moment, by the clock on its wall."""
        minute = local.hour * 60 + local.minute
        return any(window.holds(local.weekday(), minute) for window in self.windows)


def parse(text: str, option: str = "--schedule") -> Schedule:
    """Windows such as `22:00-07:00` or `mon-fri 22:00-07:00, sat,sun`.

    Days take the hours that follow them; days that none follow, or that a semicolon ends, are whole
    days; hours without days are of every day. Raises `ShoalError`, which names `option`.
    """
    if len(text) > LONGEST:
        raise ShoalError(f"{option}: has {len(text)} characters, at most {LONGEST} are read")
    windows: list[Window] = []
    for group in re.sub(r"\s*-\s*", "-", text.lower()).split(";"):
        days: set[int] = set()
        for word in re.findall(r"[^,\s]+", group):
            if hours := _HOURS.fullmatch(word):
                begin, end = _minutes(hours[1], hours[2]), _minutes(hours[3], hours[4])
                if begin is None or end is None or begin in (end, DAY):
                    raise _wrong(text, word, option)
                windows.append(Window(frozenset(days or range(7)), begin, end))
                days = set()
            elif (found := _days(word)) is not None:
                days |= found
            else:
                raise _wrong(text, word, option)
        if days:
            windows.append(Window(frozenset(days), 0, DAY))
    if not windows:
        raise _wrong(text, text.strip(), option)
    return Schedule(" ".join(text.split()), tuple(windows))


def _days(word: str) -> set[int] | None:
    """The days that a word names: `sat`, `saturday`, `mon-fri`, `fri-mon`."""
    match = _DAYS.fullmatch(word)
    if match is None:
        return None
    first, last = _day(match[1]), _day(match[2] or match[1])
    if first is None or last is None:
        return None
    return {(first + offset) % 7 for offset in range((last - first) % 7 + 1)}


def _day(name: str) -> int | None:
    full = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
    return next((day for day in range(7) if name in (DAYS[day], full[day])), None)


def _minutes(hour: str, minute: str) -> int | None:
    total = int(hour) * 60 + int(minute)
    return total if int(minute) < 60 and total <= DAY else None


def _wrong(text: str, word: str, option: str) -> ShoalError:
    return ShoalError(
        f"{option} {text[:60]!r}: {word[:40]!r} is neither days nor hours: give windows such as "
        "'22:00-07:00', or 'mon-fri 22:00-07:00, sat,sun'"
    )
