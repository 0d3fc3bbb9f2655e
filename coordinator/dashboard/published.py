"""What is published of a picture of the run: rounded, and of volunteers what they chose to tell."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from typing import Any

from coordinator.overview import Overview, WorkerView, classes
from coordinator.pool.confidence import margin

WORKER = re.compile(r"\b[a-z2-7]{16}\b")
"""How a worker's key is named in lines."""
HIDING = re.compile(r"\b([a-z2-7]{16})(?:/\w+)? \(private\)")
"""How lines name one that told no label."""
MOST_ALIASES = 20_000
"""Workers that keep themselves to themselves, as far as they are remembered."""
MOST_CONTRIBUTORS = 100
"""Volunteers whose work is listed."""
MOST_SUSPECTS = 100
SILENCE_STEP = 5.0
"""Seconds: a silence is told no finer, so that who is silent is not news each second."""
NUMERIC_DIGITS = 8
"""Of a numeric class."""

Row = tuple[str | float | int | None, ...]
"""A worker's session as the page has it: see `COLUMNS`."""
COLUMNS = (
    *("worker", "session", "name", "device", "numeric", "standing", "state", "speed", "share"),
    *("tasks", "results", "silent", "trouble"),
)


class Aliases:
    """Other names for the keys of workers that told no label: they can't be told from the page.

    An alias lasts as long as the process: `secret` is made anew by each.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._aliases: dict[str, str] = {}
        self._workers: dict[str, str] = {}

    def shown(self, worker: str, name: str, device: str) -> str:
        """How a worker is called on the page, by what it told of itself."""
        if name or device:
            self._workers.pop(self._aliases.pop(worker, ""), "")
            return worker
        found = self._aliases.get(worker)
        if found is None:
            if len(self._aliases) >= MOST_ALIASES:
                oldest = next(iter(self._aliases))
                self._workers.pop(self._aliases.pop(oldest))
            digest = hashlib.blake2b(worker.encode(), key=self._secret, digest_size=4).hexdigest()
            found = self._aliases[worker] = f"private-{digest}"
            self._workers[found] = worker
        return found

    def learn(self, line: str) -> None:
        """Take in who keeps to itself, by a line of the host's."""
        for match in HIDING.finditer(line):
            self.shown(match[1], "", "")

    def hide(self, line: str) -> str:
        """A line without the keys of those workers."""
        if not self._aliases:
            return line
        return WORKER.sub(lambda match: self._aliases.get(match[0], match[0]), line)

    def worker(self, shown: str) -> str:
        """Whom the page means."""
        return self._workers.get(shown, shown)


def row(view: WorkerView, aliases: Aliases) -> Row:
    """A session of a worker."""
    return (
        aliases.shown(view.worker, view.name, view.device),
        view.session,
        view.name,
        view.device,
        view.numeric[:NUMERIC_DIGITS],
        view.standing,
        view.state,
        rounded(view.speed),
        round(view.share, 4),
        view.tasks,
        view.results,
        math.floor(view.silent_seconds / SILENCE_STEP) * SILENCE_STEP,
        aliases.hide(view.trouble),
    )


def summary(shown: Overview, aliases: Aliases) -> dict[str, Any]:
    """All but the workers' rows."""
    batch = shown.batch
    return {
        "run": shown.run,
        "environment": shown.environment,
        "parameters": shown.parameters,
        "epoch": shown.epoch,
        "state": "paused" if shown.paused and shown.state == "running" else shown.state,
        "version": shown.version,
        "updating": shown.updating,
        "seconds": round(shown.seconds, 1),
        "population": shown.population,
        "target": shown.target,
        "episodes": shown.episodes,
        "steps": shown.steps,
        "mean": finite(shown.mean),
        "centre": _centre(shown),
        "wire_bytes": shown.wire_bytes,
        "quiet": aliases.hide(shown.quiet),
        "busy": aliases.hide(shown.busy),
        "batch": {
            "index": batch.index,
            "directions": batch.directions,
            "settled": batch.settled,
            "leased": batch.leased,
            "free": batch.free,
            "early": batch.early,
            "dropped": batch.dropped,
        },
        "classes": {name[:NUMERIC_DIGITS]: count for name, count in classes(shown.workers).items()},
        "audits": _audits(shown, aliases),
        "outcomes": dict(shown.outcomes),
        "contributions": _contributions(shown, aliases),
        "contributors": len(shown.contributions),
        "unable": [(aliases.hide(reason), count) for reason, count in shown.unable],
    }


def finite(value: float | None) -> float | None:
    """JSON has no infinities."""
    return value if value is not None and math.isfinite(value) else None


def rounded(value: float) -> float:
    """To four digits: more of a speed is noise, and noise is news each second."""
    return float(f"{value:.4g}") if math.isfinite(value) else 0.0


def half_width(deviation: Any, count: Any) -> float | None:
    """Half of the 95 % interval of a mean; None where one value tells nothing of it."""
    if not isinstance(deviation, int | float) or not isinstance(count, int) or count < 2:
        return None
    return finite(margin(float(deviation), count)) if math.isfinite(deviation) else None


def _centre(shown: Overview) -> Mapping[str, Any] | None:
    centre = shown.centre
    if centre is None:
        return None
    return {
        "version": centre.version,
        "episodes": centre.episodes,
        "mean": finite(centre.mean),
        "half": half_width(centre.deviation, centre.episodes),
    }


def _audits(shown: Overview, aliases: Aliases) -> dict[str, Any]:
    return {
        "share": shown.audit_share,
        "audited": shown.audited,
        "suspects": [
            (aliases.hide(each.worker), each.standing, aliases.hide(each.reason), each.used)
            for each in shown.suspects[:MOST_SUSPECTS]
        ],
        "suspected": len(shown.suspects),
    }


def _contributions(shown: Overview, aliases: Aliases) -> list[tuple[str, str, int, int]]:
    return [
        (aliases.shown(each.worker, each.name, each.device), each.name, each.members, each.steps)
        for each in shown.contributions[:MOST_CONTRIBUTORS]
    ]
