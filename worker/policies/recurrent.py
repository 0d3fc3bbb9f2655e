"""What policies that remember share: states of each lane, which are zero when an episode begins."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocol.spec import RunSpec
from worker.policies.calls import prepared
from worker.policies.policy import Forward, Policy, View


class RecurrentPolicy(Policy):
    """One run's recurrent policy on some lanes.

    Args:
        kernel: the compiled forward pass of its kind.
        gates: of a unit.
        states: float32, shape (lanes, ...), zero.
    """

    def __init__(
        self, spec: RunSpec, lanes: int, kernel: Any, gates: int, states: NDArray[np.float32]
    ) -> None:
        super().__init__(spec, lanes)
        hidden = spec.policy.hidden
        self._kernel = kernel
        self._hidden = np.array(hidden, dtype=np.int64)
        self._states = states
        widest = max(spec.environment.observation.size, gates * max(hidden))
        self._scratch = np.empty((3, widest), dtype=np.float32)

    def begin(self, lane: int, row: int, slot: int, seed: int, quiet: bool = False) -> None:
        """An episode begins in the lane; see `Policy.begin`."""
        super().begin(lane, row, slot, seed, quiet)
        self._states[lane] = 0.0

    def prepare_forward(
        self, lanes: NDArray[np.int64], parameters: NDArray[np.float32], view: View
    ) -> Forward:
        """What writes `outputs`; see `Policy.prepare_forward`."""
        return prepared(
            self._kernel,
            lanes,
            self.observations,
            self.rows,
            parameters,
            self._hidden,
            self._states,
            self.slots,
            tuple(view),
            self._scratch,
            self.outputs,
        )
