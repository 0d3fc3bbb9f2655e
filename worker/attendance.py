"""In which of the runs that are led at a broker a worker takes part. Pure.

All that it may and can, as many at a time as there are places and memory for. A run that ended, or
can't be served, rests before it is tried again; where there is no room, who had no task for the
longest makes room for who waits.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

from protocol.exit_codes import DONE, UNREACHABLE

MOST = 16
"""Runs at a time."""
REMEMBERED = 256
"""Runs of which is known how they ended."""
SHORT_REST, LONG_REST = 10.0, 600.0
"""Seconds for which a run rests that ended, or was not there: each time twice as long; and one that
this machine can't serve, always."""
IDLE_FOR = 30.0
"""Seconds without a task after which a run makes room."""
PARKED_FOR = 60.0
"""Seconds for which a run that made room waits at least."""
PATIENCE = 300.0
"""Seconds after which a run that waits gets the place of who had one for the longest, and for as
long at least."""


class Attendance:
    """Decides for one worker, and remembers how its runs ended."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._rests: dict[str, tuple[float, float]] = {}
        """until when a run rests, and for how long"""
        self._told: dict[str, str] = {}
        self._waits: dict[str, float] = {}
        """since when runs wait for a place"""

    def ended(self, run: str, code: int, text: str, now: float) -> bool:
        """A run is left with that exit code and these words; whether they are news."""
        rest = LONG_REST
        if code in (DONE, UNREACHABLE):
            _, before = self._rests.get(run, (0.0, SHORT_REST / 2.0))
            rest = min(2.0 * before, LONG_REST)
        self._rest(run, now, rest)
        news = self._told.get(run) != text
        self._told.pop(run, None)
        _keep(self._told, run, text)
        return news

    def parked(self, run: str, now: float) -> None:
        """A run made room for others."""
        self._rest(run, now, PARKED_FOR)

    def served(self, run: str) -> None:
        """A run had a task of ours: how it ended before does not count any more."""
        self._rests.pop(run, None)
        self._told.pop(run, None)

    def next(self, here: Sequence[str], attended: Collection[str], room: bool, now: float) -> str:
        """The run to join now, of those that are here and wanted; empty where there is none, or no
        place. Who waits for longest is first. `room`: whether there is memory for one more."""
        waiting = [run for run in here if run not in attended and self._rested(run, now)]
        self._waits = {run: self._waits.get(run, now) for run in waiting}
        if not waiting or not room or len(attended) >= self._most:
            return ""
        return min(waiting, key=lambda run: self._waits[run])

    def makes_room(
        self, idle: Mapping[str, float], places: Mapping[str, float], short: bool, now: float
    ) -> str:
        """The run that is left for now; empty where none is.

        Args:
            idle: seconds without a task, of every run that we take part in.
            places: seconds since we joined it, of the same.
            short: whether we take more memory than we may.
        """
        if short and len(idle) > 1:
            return max(idle, key=lambda run: idle[run])
        longest = max((now - since for since in self._waits.values()), default=None)
        if longest is None or not idle:
            return ""
        candidate = max(idle, key=lambda run: idle[run])
        if idle[candidate] >= IDLE_FOR:
            return candidate
        oldest = max(places, key=lambda run: places[run])
        return oldest if min(longest, places[oldest]) >= PATIENCE else ""

    def _rested(self, run: str, now: float) -> bool:
        return now >= self._rests.get(run, (0.0, 0.0))[0]

    def _rest(self, run: str, now: float, seconds: float) -> None:
        self._rests.pop(run, None)
        _keep(self._rests, run, (now + seconds, seconds))


Value = TypeVar("Value")


def _keep(kept: dict[str, Value], run: str, value: Value) -> None:
    """One more; the oldest goes where there are too many."""
    kept[run] = value
    if len(kept) > REMEMBERED:
        del kept[next(iter(kept))]
