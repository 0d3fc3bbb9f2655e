"""When a run is given up because nobody here can get on with it; pure."""

from __future__ import annotations

from coordinator.overview import Overview

STUCK_SECONDS = 60.0
"""For which a run came no further before that is its own fault."""


class Stall:
    """Looks at a run again and again."""

    def __init__(self) -> None:
        self._seen: object = None
        self._since = 0.0

    def look(self, view: Overview, now: float) -> str:
        """Why the run is to be given up; empty while it is not.

        It is where it came no further for long, though workers are here, or came, and all of them
        failed: none may be here at the moment, or all be paused, which is no fault of the run.
        """
        batch, centre = view.batch, view.centre
        seen = view.version, batch.index, batch.settled, centre and centre.version
        nobody = not view.workers and not view.unable
        if seen != self._seen or nobody or view.paused or view.updating:
            self._seen, self._since = seen, now
        return _why(view) if now - self._since >= STUCK_SECONDS else ""


def _why(view: Overview) -> str:
    """Why nobody gets on with it."""
    if not view.workers:
        return f"no worker can take part: {view.unable[0][0]}" if view.unable else ""
    takers = [worker for worker in view.workers if worker.state != "paused"]
    return view.quiet if takers and all(worker.trouble for worker in takers) else ""
