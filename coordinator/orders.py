"""What a person orders of whoever leads a run: lines in its directory, each heeded once."""

from __future__ import annotations

import fcntl
import json
from dataclasses import dataclass
from pathlib import Path

from coordinator.pool.events import Audit, Ban, Rely, Unban
from protocol.errors import ShoalError
from protocol.kept_json import DamagedJson, read_json


@dataclass(frozen=True, slots=True)
class Stop:
    """The run is to end now, if that process leads it: the order is none for who leads it next."""

    process: int


@dataclass(frozen=True, slots=True)
class Pause:
    """That process is to lead no more: workers wait for whoever goes on with the run."""

    process: int


OfWorker = Audit | Ban | Rely | Unban
OfProcess = Stop | Pause
Order = OfWorker | OfProcess
OF_WORKERS: dict[str, type[Audit] | type[Ban] | type[Rely] | type[Unban]] = {
    "audit": Audit,
    "ban": Ban,
    "trust": Rely,
    "unban": Unban,
}
OF_PROCESSES: dict[str, type[Stop] | type[Pause]] = {"stop": Stop, "pause": Pause}
MOST_BYTES = 1 << 20
"""Of orders that wait."""


def give(path: Path, order: Order) -> None:
    """Leave an order for whoever leads the run, now or next. Raises `ShoalError`."""
    kinds = {**OF_WORKERS, **OF_PROCESSES}
    said: dict[str, str | int] = {
        "order": next(name for name, kind in kinds.items() if isinstance(order, kind))
    }
    if isinstance(order, OfProcess):
        said["process"] = order.process
    else:
        said["worker"] = order.worker
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


def withdraw(path: Path, order: Order) -> None:
    """Take back an order that nobody has taken. Raises `ShoalError`."""
    try:
        with path.open("r+", encoding="utf-8", errors="replace") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            lines = file.read(MOST_BYTES).splitlines()
            left = "".join(f"{line}\n" for line in lines if _read(line) != order)
            file.seek(0)
            file.truncate(0)
            file.write(left)
    except OSError as error:
        raise ShoalError(f"{path} can't be written ({error}): see to the disk") from None


@dataclass(frozen=True)
class _Said:
    """A line."""

    order: str
    worker: str = ""
    reason: str = ""
    process: int = 0


def _read(line: str) -> Order | None:
    try:
        said = read_json(line, _Said)
    except DamagedJson:
        return None
    if said.order in OF_PROCESSES:
        return OF_PROCESSES[said.order](said.process)
    kind = OF_WORKERS.get(said.order)
    if kind is None or not said.worker:
        return None
    return Ban(said.worker, said.reason) if kind is Ban else kind(said.worker)  # type: ignore[call-arg]
