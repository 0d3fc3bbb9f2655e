"""What is known of workers, in the log: so that it outlives a coordinator."""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict, dataclass, field
from typing import Any

import msgspec

from coordinator.log import TRUST, LogReader
from coordinator.trust import Record, Trust
from protocol.kept_json import DamagedJson, read_json


@dataclass(frozen=True)
class Kept:
    """Records of workers as plain values, and who is trusted."""

    workers: dict[str, dict[str, Any]] = field(default_factory=dict)
    trusted: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Said:
    """What lies in the log; each record is judged by itself."""

    workers: dict[str, msgspec.Raw] = field(default_factory=dict)
    trusted: tuple[str, ...] = ()


def written(trust: Trust) -> str:
    """What `read` reads."""
    return json.dumps({"workers": trust.known(), "trusted": sorted(trust.trusted)})


def read(log: LogReader) -> Kept:
    """What the log has; nothing where that can't be read, so that everybody begins anew.

    Raises `LogError`.
    """
    noted = log.noted(TRUST)
    try:
        said = read_json(noted, _Said) if isinstance(noted, str) else _Said()
    except DamagedJson:
        return Kept()
    workers: dict[str, dict[str, Any]] = {}
    for worker, values in said.workers.items():
        with contextlib.suppress(DamagedJson):  # it begins anew
            workers[worker] = asdict(read_json(bytes(values), Record))
    return Kept(workers, said.trusted)


def take_up(trust: Trust, kept: Kept) -> None:
    """Know what was known."""
    for worker in kept.trusted:
        trust.rely_on(worker)
    trust.remember(kept.workers)
