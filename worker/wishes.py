"""What the volunteer told a running worker, as it is kept over restarts. Pure."""

from __future__ import annotations

import time
from typing import Annotated

import msgspec

Moment = Annotated[float, msgspec.Meta(ge=0.0, le=1e11)]
"""Unix time; 0 for none."""


class Wishes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Pause and finish as they stand; the other words of a volunteer are over once obeyed.

    `since`: when the latest of them was said; `until`: when a pause ends by itself, 0: never.
    """

    paused: bool = False
    finished: bool = False
    since: Moment = 0.0
    until: Moment = 0.0

    def pause(self, seconds: float | None, unix: float) -> Wishes:
        """Take no tasks from now on, for so long or until told otherwise."""
        return Wishes(paused=True, since=unix, until=unix + seconds if seconds else 0.0)

    def finish(self, unix: float) -> Wishes:
        """Finish what runs, leave, and do not begin again until told to."""
        return Wishes(finished=True, since=unix)

    def pausing(self, unix: float) -> bool:
        """Whether it is paused at this moment."""
        return self.paused and not (self.until and unix >= self.until)

    def reason(self, unix: float) -> str:
        """Why no tasks are taken, as far as it is the volunteer's word; empty where it is not."""
        if not self.pausing(unix):
            return ""
        return f"paused by you until {_clock(self.until, unix)}" if self.until else "paused by you"

    def kept_pause(self, unix: float) -> str:
        """What a worker that starts says of a pause that holds from before; empty without one."""
        if not self.pausing(unix):
            return ""
        return (
            f"{self.reason(unix)}, since {_clock(self.since, unix)}: `shoal worker resume` goes on"
        )


NOTHING = Wishes()


def finished_before(wishes: Wishes, name: str, unix: float) -> str:
    """What a worker says that was told to finish and is started again by no person."""
    return (
        f"told to finish at {_clock(wishes.since, unix)}: begins again after "
        f"`shoal worker resume --name {name}`"
    )


def _clock(moment: float, unix: float) -> str:
    """A moment by the clock on the wall, with its date where it is not near."""
    near = abs(moment - unix) < 43_200.0
    return time.strftime("%H:%M" if near else "%Y-%m-%d %H:%M", time.localtime(moment))
