"""Rebuilds any version of a run, bit for bit, from the nearest state that is proved."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from coordinator.history.past import Advance, HistoryError, Past, Tell
from protocol import noise
from protocol.disk import write_whole
from protocol.policy_file import to_tensors
from protocol.state import State, params_hash


@dataclass(frozen=True, slots=True, eq=False)
class Rebuilt:
    """A version, and what it took to rebuild it."""

    state: State
    first: int
    """the version that it was rebuilt from"""
    seconds: float

    @property
    def updates(self) -> int:
        """How many were applied."""
        return self.state.version - self.first

    @property
    def versions_per_second(self) -> float:
        """How fast that was; 0 where nothing was to be done."""
        return self.updates / self.seconds if self.updates else 0.0


def rebuild(past: Past, version: int, from_start: bool, tell: Tell, advance: Advance) -> Rebuilt:
    """The state of a version. `from_start`: from the first version, not from the nearest snapshot.

    Raises `ShoalError`: mostly a log that is damaged before that version.
    """
    past.require(version)
    noise.warm_up(past.rules.noise)
    began = time.perf_counter()
    state = past.beginning() if from_start else past.nearest(version, tell)
    first = state.version
    for reached, _ in past.states(state, version):
        state = reached
        advance(state.version - first, version - first)
    return Rebuilt(state, first, time.perf_counter() - began)


def save_policy(past: Past, state: State, file: Path) -> None:
    """Write the policy of a version, as `policy.safetensors` in a run directory has it.

    Raises `HistoryError`.
    """
    from safetensors.numpy import save

    tensors = to_tensors(past.spec, state.theta, state.normalizer)
    about = {
        "run": past.run,
        "version": str(state.version),
        "params_hash": params_hash(state.theta),
    }
    try:
        write_whole(file, save(tensors, metadata=about))
    except OSError as error:
        raise HistoryError(
            f"{file} can't be written ({error.strerror or error}): give another place"
        ) from None
