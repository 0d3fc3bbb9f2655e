"""What a person bids be done with workers: lines in the run directory, each heeded once."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path

from coordinator.pool.events import Audit, Ban, Rely, Unban
from protocol.errors import ShoalError

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


def _read(line: str) -> Order | None:
    try:
        said = json.loads(line)
        kind, worker = ORDERS[said["order"]], str(said["worker"])
        return Ban(worker, str(said["reason"])) if kind is Ban else kind(worker)  # type: ignore[call-arg]
    except (ValueError, KeyError, TypeError):
        return None
