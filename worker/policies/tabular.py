"""Tables (`tabular`) of many lanes at once, each lane with a table of its own."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from protocol.policies import choices
from protocol.spec import RunSpec
from worker.policies.calls import prepared
from worker.policies.policy import Forward, Policy, View, unsound


@njit(cache=True, error_model="numpy")
def forward(
    lanes: NDArray[np.int64],
    observations: NDArray[np.float32],
    rows: NDArray[np.int64],
    parameters: NDArray[np.float32],
    choices: NDArray[np.int64],
    outputs: NDArray[np.float32],
) -> int:
    """Write the table's rows for what the lanes named by `lanes` observe, in that order.

    Returns the number of those lanes whose observation is not finite; where there is one, nothing
    else has been done.

    Args:
        lanes: shape (l,), which lanes take part.
        observations: shape (L, inputs), the one-hot forms of the choices one after the other.
        rows: shape (L,), the row of `parameters` that each lane plays.
        parameters: shape (members, at least the table's size), its rows one after the other.
        choices: shape (c,), of how many each is one. The last counts up first: the place of
            choices a, b, c in the table is (a * choices[1] + b) * choices[2] + c.
        outputs: shape (at least l, outputs).
    """
    broken = unsound(lanes, observations)
    if broken:
        return broken
    many = outputs.shape[1]
    for position in range(lanes.size):
        lane = lanes[position]
        place = begin = 0
        for number in choices:
            chosen = 0
            for i in range(number):
                if observations[lane, begin + i] != np.float32(0.0):
                    chosen = i
            place = place * number + chosen
            begin += number
        row = parameters[rows[lane]]
        for i in range(many):
            outputs[position, i] = row[place * many + i]
    return 0


class TabularPolicy(Policy):
    """One run's `tabular` policy on some lanes: for each observation a row of outputs."""

    def __init__(self, spec: RunSpec, lanes: int) -> None:
        super().__init__(spec, lanes)
        self.order = np.arange(spec.size, dtype=np.int32)  # a row's outputs lie side by side
        self._choices = np.array(choices(spec.environment.observation), dtype=np.int64)

    def prepare_forward(
        self, lanes: NDArray[np.int64], parameters: NDArray[np.float32], view: View
    ) -> Forward:
        """What writes `outputs`; see `Policy.prepare_forward`."""
        arguments = self.observations, self.rows, parameters, self._choices, self.outputs
        return prepared(forward, lanes, *arguments)
