"""What somebody with the token orders from the page, as the pool knows it; pure."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import msgspec

from coordinator.dashboard.published import Aliases
from coordinator.orders import OF_WORKERS, OfWorker
from coordinator.pool.events import Ban, Paused, Resumed
from protocol.errors import ShoalError

WORKER = re.compile(r"[a-z2-7]{16}")


class Said(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An order, as a page says it."""

    order: Literal["ban", "unban", "audit", "trust", "pause", "resume", "stop"]
    worker: Annotated[str, msgspec.Meta(max_length=32)] = ""
    """that it is about, by the name that the page has for it"""
    reason: Annotated[str, msgspec.Meta(max_length=200)] = ""
    """of a ban, for the worker"""


def ordered(said: Said, aliases: Aliases) -> OfWorker | Paused | Resumed | None:
    """What is to be done; None: the run is to be stopped. Raises `ShoalError`."""
    if said.order == "stop":
        return None
    if said.order == "pause":
        return Paused("by the host's word")
    if said.order == "resume":
        return Resumed()
    worker = aliases.worker(said.worker)
    if WORKER.fullmatch(worker) is None:
        raise ShoalError(f"there is no worker {said.worker!r}: name one of the page's")
    kind = OF_WORKERS[said.order]
    if kind is Ban:
        return Ban(worker, said.reason or "by the host's word")
    return kind(worker)  # type: ignore[call-arg]
