"""The slow steps of following a run, for a thread: version 0, one update, a snapshot.

Importing it loads the compiled kernels, which takes most of a second.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protocol import noise, replay, snapshot, state
from protocol.messages import Update
from protocol.packing import WireError
from protocol.spec import RunSpec
from protocol.state import Arithmetic, State
from worker.evaluation.jobs import Normalization


@dataclass(frozen=True, eq=False)
class Point:
    """What evaluations need of a version; `digest` proves `theta` (float32, shape (size,)).

    `cap`: steps after which members' episodes are cut; 0 where none is for that. `sigmas`: float32,
    one for each parameter, where `sigma` is not that of all.
    """

    version: int
    theta: NDArray[np.float32]
    digest: bytes
    sigma: float
    normalization: Normalization | None
    cap: int = 0
    sigmas: NDArray[np.float32] | None = None

    @property
    def basis(self) -> NDArray[np.float32]:
        """What evaluation processes get: theta, then the sigmas if there are some."""
        return state.basis(self.theta, self.sigmas)


@dataclass(frozen=True, eq=False)
class Step:
    """A state that was reached, and its point."""

    state: State
    point: Point


class Follower:
    """The arithmetic of one run. All methods are pure; they may take seconds in a large run."""

    def __init__(self, spec: RunSpec) -> None:
        self.spec = spec
        self.rules: Arithmetic = replay.arithmetic(spec)
        self.snapshot_bytes = snapshot.state_bytes(self.rules)

    def begin(self) -> Step | None:
        """Version 0, unless only a snapshot can tell it. Loads the kernel of the first update."""
        noise.warm_up(self.spec.strategy.noise)
        if self.spec.policy.initialisation == "given":
            return None
        first = replay.initial_state(self.spec)
        return _step(first, state.params_digest(first.theta))

    def apply(self, before: State, update: Update) -> Step:
        """The next version. Raises as `protocol.replay.follow`."""
        after = replay.follow(self.spec, self.rules, before, update)
        return _step(after, update.digest_after)

    def restore(self, data: bytes | memoryview, version: int) -> Step:
        """The state in a snapshot of `version`. Raises `WireError`."""
        restored = replay.restored(self.spec, self.rules, data)
        if restored.version != version:
            raise WireError(f"a snapshot of version {restored.version}, announced as {version}")
        return _step(restored, state.params_digest(restored.theta))


def _step(reached: State, digest: bytes) -> Step:
    statistics = reached.normalizer
    point = Point(
        version=reached.version,
        theta=reached.theta,
        digest=digest,
        sigma=reached.sigma,
        normalization=None if statistics is None else Normalization.of(statistics),
        cap=reached.cap or 0,
        sigmas=None if reached.sigmas is None else reached.sigmas.astype(np.float32),
    )
    return Step(reached, point)
