"""Why no worker is being fed: in a line for who watches the run."""

from __future__ import annotations

from collections.abc import Sequence

from coordinator.pool.course import Course
from coordinator.pool.failures import Failures
from coordinator.pool.leases import Leases
from coordinator.pool.roster import Roster, Session

NAMED = 3
"""Sessions that a line names at most."""


def quiet_because(
    course: Course, roster: Roster, leases: Leases, failures: Failures, now: float
) -> str:
    """Who does not work, why, and until when; empty while work is out.

    The line stays the same while nothing happens.
    """
    if course.ended:
        return "the run has ended"
    if course.deaf:
        return "no connection to the broker: nobody is heard, and no lease runs out"
    if not roster.workers:
        return "no worker is here: give the join line to somebody"
    if held := course.paused or course.strained:
        return f"nothing new is leased: {held}"
    if leases.out:
        return ""
    if course.updating:
        return "the update is being made"
    workers = [session for session in roster.sessions.values() if not session.stands_by]
    takers = [session for session in workers if session.credit > 0]
    if not takers:
        return (
            f"{_count(workers)} paused or catching up, until they say otherwise: {_names(workers)}"
        )
    if course.gathers_until is not None:
        return "the workers say what they still work on"
    resting = [session for session in takers if session.rests_until > now]
    if len(resting) == len(takers):
        first = min(resting, key=lambda session: session.rests_until)
        return (
            f"{_count(resting)} at rest after failures: {first.id} is the next, after "
            f"{first.rest:.0f} s, because {first.trouble}"
        )
    if stuck := failures.stuck():
        return f"the run waits: {stuck}"
    if any(session.unkept and session.spare <= 0 for session in takers):
        unkept = sum(session.unkept for session in takers)
        return f"{unkept:,} results wait for the disk: see that it is not full or too slow"
    if roster.newcomers and roster.known_takers:
        names = _names(list(roster.newcomers.values()))
        return f"newcomers wait for their turn, {names}: those before them returned nothing yet"
    if resting:
        return (
            f"what is left is for others than those who failed it: {_names(resting)} "
            f"rest for up to {max(session.rest for session in resting):.0f} s after failures"
        )
    return ""


def _count(sessions: Sequence[Session]) -> str:
    return "the only worker is" if len(sessions) == 1 else f"all {len(sessions)} workers are"


def _names(sessions: Sequence[Session]) -> str:
    names = ", ".join(str(session.id) for session in sessions[:NAMED])
    more = len(sessions) - NAMED
    return f"{names} and {more} more" if more > 0 else names
