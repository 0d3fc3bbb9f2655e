"""How a worker begins at its place: unless its volunteer told the one before it to finish."""

from __future__ import annotations

import time
from pathlib import Path

from worker import places
from worker.console import Console
from worker.places import Place, PlaceError
from worker.wishes import NOTHING, finished_before


class NotWanted(Exception):  # noqa: N818
    """The volunteer told this worker to finish, and nobody has told it to begin again."""


def take_place(home: Path, name: str, console: Console, *, by_hand: bool) -> Place | None:
    """The place of a worker that begins; None where there can be none, which is said.

    `by_hand`: whether a person starts it, at a terminal, which undoes `finish`; a service manager
    does not. Raises `NotWanted`.
    """
    try:
        place = places.take(home, name)
    except PlaceError as error:
        console.say(f"`shoal worker` can't reach this worker: {error}", warning=True)
        return None
    if place is not None and (kept := place.wishes()).finished:
        if not by_hand:
            place.leave()
            raise NotWanted(finished_before(kept, place.name, time.time()))
        place.keep(NOTHING)
    return place
