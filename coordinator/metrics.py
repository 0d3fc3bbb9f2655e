"""The lines of `metrics.jsonl`: what is worth knowing of each update and evaluation; pure."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from coordinator.diagnostics import Diagnostics
from coordinator.pool.events import CentreJudged
from coordinator.progress import Progress
from coordinator.update import Made


def of_update(
    made: Made,
    found: Diagnostics,
    progress: Progress,
    seconds: float,
    update_seconds: float,
) -> dict[str, Any]:
    """`seconds` since the run began, `update_seconds` from the closed batch to a published update;
    `progress` counts the update already."""
    return {
        "kind": "update",
        "version": made.after.version,
        "seconds": round(seconds, 3),
        "members": made.members,
        "late_members": made.update.late,
        "dropped_directions": len(made.update.dropped),
        "mean_return": made.mean,
        "return_deviation": made.deviation,
        "best_return": made.best,
        "reverts": made.update.reverts,
        "sigma": _sigma(made),
        "learning_rate": made.update.learning_rate,
        **asdict(found),
        "update_seconds": round(update_seconds, 4),
        "episodes": progress.episodes,
        "env_steps": progress.steps,
        "workers": progress.workers,
        "busy": progress.busy,
        "wire_bytes": progress.wire_bytes,
        "params_hash": made.update.digest_after.hex(),
        **({"amendments": dict(made.update.amendments)} if made.update.amendments else {}),
    }


def _sigma(made: Made) -> float:
    """The size of the perturbations; the mean of them where each parameter has its own."""
    sigmas = made.after.sigmas
    return made.update.sigma if sigmas is None else float(sigmas.mean())


def of_centre(judged: CentreJudged, seconds: float) -> dict[str, Any]:
    """`seconds` since the run began."""
    return {
        "kind": "centre",
        "version": judged.version,
        "seconds": round(seconds, 3),
        "episodes": judged.episodes,
        "mean_return": judged.mean,
        "return_deviation": judged.deviation,
        "full": judged.full,
        "reached": judged.reached,
    }
