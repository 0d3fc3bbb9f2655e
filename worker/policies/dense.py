"""Dense policies (`linear`, `mlp`) of many lanes at once, each lane with parameters of its own."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from protocol.spec import RunSpec
from worker.policies.activations import activate, code
from worker.policies.calls import prepared
from worker.policies.layers import dense
from worker.policies.policy import Forward, Policy, View, see, unsound


@njit(cache=True, error_model="numpy")
def forward(
    lanes: NDArray[np.int64],
    observations: NDArray[np.float32],
    rows: NDArray[np.int64],
    parameters: NDArray[np.float32],
    widths: NDArray[np.int64],
    activation: int,
    slots: NDArray[np.int64],
    view: View,
    scratch: NDArray[np.float32],
    outputs: NDArray[np.float32],
) -> int:
    """Write the last layer's outputs for the lanes named by `lanes`, in that order.

    Returns the number of those lanes whose observation is not finite; where there is one, nothing
    else has been done.

    Args:
        lanes: shape (l,), which lanes take part.
        observations: shape (L, inputs).
        rows: shape (L,), the row of `parameters` that each lane plays.
        parameters: shape (members, size), in the order of `layers.order`.
        widths: shape (layers + 1,): inputs, hidden widths, outputs.
        activation: between the layers, see `activations.code`.
        slots: shape (L,), the entry of the view's sums that observes a lane's frames, or -1.
        view: as a plain tuple.
        scratch: shape (2, at least the largest width).
        outputs: shape (at least l, outputs).
    """
    broken = unsound(lanes, observations)
    if broken:
        return broken
    last = widths.size - 2
    for position in range(lanes.size):
        lane = lanes[position]
        current = see(observations[lane], slots[lane], view, scratch[1])
        row = parameters[rows[lane]]
        begin = 0
        for layer in range(last + 1):
            many = widths[layer + 1]
            middle = begin + current.size * many
            end = middle + many
            if layer == last:
                dense(current, row[begin:middle], row[middle:end], outputs[position])
                break
            hidden = scratch[layer & 1, :many]
            dense(current, row[begin:middle], row[middle:end], hidden)
            activate(hidden, activation)
            current = hidden
            begin = end
    return 0


class DensePolicy(Policy):
    """One run's `linear` or `mlp` policy on some lanes."""

    def __init__(self, spec: RunSpec, lanes: int) -> None:
        super().__init__(spec, lanes)
        widths = [spec.layers[0][0], *(outputs for _, outputs in spec.layers)]
        self._widths = np.array(widths, dtype=np.int64)
        self._activation = code(spec.policy.activation)
        self._scratch = np.empty((2, max(widths)), dtype=np.float32)

    def prepare_forward(
        self, lanes: NDArray[np.int64], parameters: NDArray[np.float32], view: View
    ) -> Forward:
        """What writes `outputs`; see `Policy.prepare_forward`."""
        return prepared(
            forward,
            lanes,
            self.observations,
            self.rows,
            parameters,
            self._widths,
            self._activation,
            self.slots,
            tuple(view),
            self._scratch,
            self.outputs,
        )
