"""Spans and moments as a person types them: `2h`, `1h30m`, `18:30`, `2027-01-31`. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta

from protocol.errors import ShoalError

LONGEST = 366 * 86400.0
"""Seconds of the longest span that anybody may mean."""
SECONDS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "min": 60.0, "s": 1.0}
_PART = re.compile(r"(\d{1,9}(?:\.\d{1,3})?) ?(min|[dhms])(?![a-z]) ?", re.ASCII)
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Until:
    """When something is over.

    Attributes:
        text: as it was given.
        at: Unix time, where it is a moment.
        after: seconds from the start on, where it is a span; a clock that is set meanwhile does
            not move it.
    """

    text: str
    at: float | None = None
    after: float | None = None

    def over(self, unix: float, elapsed: float) -> bool:
        """Whether it is, at this Unix time and so many seconds after the start."""
        if self.after is not None:
            return elapsed >= self.after
        return self.at is not None and unix >= self.at


def seconds_of(text: str, option: str) -> float:
    """A span in seconds: a number of d, h, m or s, several of them in a row, or seconds alone.

    Raises `ShoalError`, which names `option`.
    """
    seconds = _span(text.strip())
    if seconds is None or not 0.0 < seconds <= LONGEST:
        raise ShoalError(
            f"{option} {text[:40]!r}: must be a time of up to a year such as 90s, 45m, 2h or 1h30m"
        )
    return seconds


def until(text: str, option: str, local: datetime) -> Until:
    """The end that a person means at a local time (without zone): `18:30` is the next one, a date
    its beginning, a span counts from the start. Raises `ShoalError`, which names `option`."""
    given = text.strip()
    span = _span(given) if not given.isdigit() else None
    if span is not None and 0.0 < span <= LONGEST:
        return Until(given, after=span)
    moment = _moment(given, local)
    if moment is None:
        raise ShoalError(
            f"{option} {text[:40]!r}: must be a time such as 18:30, a date such as "
            "2027-01-31 or 2027-01-31T18:30, or a span such as 2h"
        )
    if moment <= local:
        raise ShoalError(f"{option} {text[:40]!r}: lies in the past: give a moment to come")
    return Until(given, at=moment.timestamp())


def _span(text: str) -> float | None:
    if re.fullmatch(r"\d{1,9}(?:\.\d{1,3})?", text, re.ASCII):
        return float(text)
    place, total = 0, 0.0
    while place < len(text):
        part = _PART.match(text, place)
        if part is None:
            return None
        total += float(part[1]) * SECONDS[part[2]]
        place = part.end()
    return total if text else None


def _moment(text: str, local: datetime) -> datetime | None:
    clock = _CLOCK.fullmatch(text)
    if clock is not None:
        hour, minute = int(clock[1]), int(clock[2])
        if hour > 23 or minute > 59:
            return None
        today = local.replace(hour=hour, minute=minute, second=0, microsecond=0, fold=0)
        return today if today > local else today + timedelta(days=1)
    if not re.match(r"\d{4}-\d\d-\d\d", text):
        return None
    try:
        moment = datetime.fromisoformat(text)
        return moment if moment.tzinfo is None else moment.astimezone().replace(tzinfo=None)
    except (ValueError, OverflowError):
        return None
