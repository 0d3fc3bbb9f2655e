"""What a person bids be done with workers: lines in the run directory, each heeded once."""

from __future__ import annotations

import fcntl
import json
from dataclasses import dataclass
from pathlib import Path

from coordinator.pool.events import Audit, Ban, Rely, Unban
from protocol.errors import ShoalError
from protocol.kept_json import DamagedJson, read_json

Order = Audit | Ban | Rely | Unban
ORDERS: dict[str, type[Audit] | type[Ban] | type[Rely] | type[Unban]] = {
    "audit": Audit,
    "ban": Ban,
    "trust": Rely,
    "unban": Unban,
}
MOST_BYTES = 1 << 20
"""Of orders that wait."""


def give(path: Path, order: Order) -> None:
    """Leave an order for whoever leads the run, now or next. Raises `ShoalError`."""
    name = next(name for name, kind in ORDERS.items() if isinstance(order, kind))
    said = {"order": name, "worker": order.worker}
    if isinstance(order, Ban):
        said["reason"] = order.reason
    try:
        with path.open("a", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(json.dumps(said) + "\n")
    except OSError as error:
        raise ShoalError(f"{path} can't be written ({error}): see to the disk") from None


def take(path: Path) -> list[Order]:
    """Take the orders that wait; lines that are none are left out. Raises `ShoalError`."""
    try:
        if not path.exists():
            return []
        with path.open("r+", encoding="utf-8", errors="replace") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            lines = file.read(MOST_BYTES).splitlines()
            file.truncate(0)
    except OSError as error:
        raise ShoalError(f"{path} can't be read ({error}): see to the disk") from None
    return [order for order in map(_read, lines) if order is not None]


@dataclass(frozen=True)
class _Said:
    """A line."""

    order: str
    worker: str
    reason: str = ""


def _read(line: str) -> Order | None:
    try:
        said = read_json(line, _Said)
    except DamagedJson:
        return None
    kind = ORDERS.get(said.order)
    if kind is None:
        return None
    return Ban(said.worker, said.reason) if kind is Ban else kind(said.worker)  # type: ignore[call-arg]
