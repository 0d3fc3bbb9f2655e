"""TensorBoard's events beside `metrics.jsonl`, where TensorBoard is installed."""

from __future__ import annotations

import importlib.util
import logging
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FOLDER = "events"
"""In the run directory: TensorBoard finds it in any folder above."""
FLUSH_SECONDS = 5
SWITCH = "SHOAL_EVENTS"
"""Variable of the environment that is 0 where a host writes none."""
TAGS: Mapping[str, Mapping[str, str]] = {
    "update": {
        "mean_return": "return/members",
        "return_deviation": "return/deviation of members",
        "best_return": "return/best member",
        "sigma": "update/sigma",
        "learning_rate": "update/learning rate",
        "step_norm": "update/norm",
        "step_cosine": "update/cosine to the one before",
        "theta_norm": "update/norm of parameters",
        "sigma_ratio": "update/sigma over parameters",
        "pair_signal_to_noise": "update/signal to noise of pairs",
        "tie_share": "update/share of ties",
        "members": "pool/members",
        "late_members": "pool/late members",
        "dropped_directions": "pool/dropped directions",
        "workers": "pool/workers",
        "episodes": "pool/episodes",
        "env_steps": "pool/environment steps",
        "wire_bytes": "pool/bytes over the wire",
        "seconds": "time/seconds since the start",
        "update_seconds": "time/seconds of the update",
    },
    "centre": {"mean_return": "return/centre", "return_deviation": "return/deviation of centre"},
}
"""Of each kind of line: what its fields are called there. The step is the version."""

_LOGGER = logging.getLogger("shoal.coordinator")


def scalars(line: Mapping[str, Any]) -> dict[str, float]:
    """What is shown of a line of metrics, by its tag; what is not finite is left out."""
    found = {}
    for field, tag in TAGS.get(str(line.get("kind")), {}).items():
        value = line.get(field)
        if isinstance(value, int | float) and math.isfinite(value):
            found[tag] = float(value)
    return found


class Board:
    """Writes events to a folder; nothing where TensorBoard is not installed, or not wanted.

    A run does without its pictures: what can't be written is said once in the log, and left out.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writer: Any = None
        wanted = os.environ.get(SWITCH) != "0"
        self._works = wanted and importlib.util.find_spec("tensorboard") is not None

    def add(self, line: Mapping[str, Any]) -> None:
        """Show a line of metrics."""
        values = scalars(line)
        if not (self._works and values):
            return
        try:
            self._write(values, int(line["version"]))
        except Exception as error:
            self._works = False
            _LOGGER.warning("no more events for TensorBoard in %s: %s", self._folder, error)

    def close(self) -> None:
        """Finish the file."""
        if self._writer is not None and self._works:
            self._writer.close()

    def _write(self, values: Mapping[str, float], step: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event  # type: ignore[import-untyped]
        from tensorboard.compat.proto.summary_pb2 import Summary  # type: ignore[import-untyped]
        from tensorboard.summary.writer.event_file_writer import (  # type: ignore[import-untyped]
            EventFileWriter,
        )

        if self._writer is None:  # which takes half a second to load: not before it is needed
            self._writer = EventFileWriter(str(self._folder), flush_secs=FLUSH_SECONDS)
        shown = [Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()]
        self._writer.add_event(
            Event(wall_time=time.time(), step=step, summary=Summary(value=shown))
        )
