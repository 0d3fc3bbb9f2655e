"""What is known of workers, in the log: so that it outlives a coordinator."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, get_args

from coordinator.log import TRUST, LogReader
from coordinator.trust import Standing, Trust


@dataclass(frozen=True)
class Kept:
    """Records of workers as plain values, and who is trusted."""

    workers: dict[str, dict[str, Any]] = field(default_factory=dict)
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
        said = json.loads(noted) if isinstance(noted, str) else {}
        workers = {
            str(worker): dict(record)
            for worker, record in said.get("workers", {}).items()
            if record["standing"] in get_args(Standing)
        }
        return Kept(workers, tuple(map(str, said.get("trusted", ()))))
    except (ValueError, TypeError, KeyError, AttributeError):
        return Kept()


def take_up(trust: Trust, kept: Kept) -> None:
    """Know what was known."""
    for worker in kept.trusted:
        trust.rely_on(worker)
    trust.remember(kept.workers)
