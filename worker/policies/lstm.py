"""Recurrent policies (`lstm`) of many lanes at once, each with parameters and states of its own."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from protocol.spec import RunSpec
from worker.policies.activations import sigmoid, tanh
from worker.policies.layers import dense
from worker.policies.policy import View, see, unsound
from worker.policies.recurrent import RecurrentPolicy


@njit(cache=True, error_model="numpy")
def forward(
    lanes: NDArray[np.int64],
    observations: NDArray[np.float32],
    rows: NDArray[np.int64],
    parameters: NDArray[np.float32],
    hidden: NDArray[np.int64],
    states: NDArray[np.float32],
    slots: NDArray[np.int64],
    view: View,
    scratch: NDArray[np.float32],
    outputs: NDArray[np.float32],
) -> int:
    """Move the states of the lanes named by `lanes` on, and write what the readout makes of them.

    A layer with inputs x, state h and cell c (Hochreiter and Schmidhuber 1997; Gers et al. 2000;
    gates in the order of PyTorch, each of W x + b + U h + d): i = sigmoid, f = sigmoid, g = tanh,
    o = sigmoid; c becomes f c + i g, h becomes o tanh(c).

    Returns the number of those lanes whose observation is not finite; where there is one, nothing
    else has been done.

    Args:
        lanes: shape (l,), which lanes take part.
        observations: shape (L, inputs).
        rows: shape (L,), the row of `parameters` that each lane plays.
        parameters: shape (members, size), in the order of `layers.order`.
        hidden: units of each layer.
        states: shape (L, 2, all units), the layers' states in order, and their cells.
        slots: shape (L,), the entry of the view's sums that observes a lane's frames, or -1.
        view: as a plain tuple.
        scratch: shape (3, at least the inputs and four times the units of a layer).
        outputs: shape (at least l, outputs).
    """
    broken = unsound(lanes, observations)
    if broken:
        return broken
    for position in range(lanes.size):
        lane = lanes[position]
        current = see(observations[lane], slots[lane], view, scratch[0])
        row = parameters[rows[lane]]
        begin = before = 0
        for units in hidden:
            gates = 4 * units
            recurrent = begin + gates * current.size
            bias = recurrent + gates * units
            end = bias + 2 * gates
            state = states[lane, 0, before : before + units]
            cell = states[lane, 1, before : before + units]
            new, old = scratch[1, :gates], scratch[2, :gates]
            dense(current, row[begin:recurrent], row[bias : bias + gates], new)
            dense(state, row[recurrent:bias], row[bias + gates : end], old)
            for i in range(units):
                enter = sigmoid(new[i] + old[i])
                keep = sigmoid(new[units + i] + old[units + i])
                value = tanh(new[2 * units + i] + old[2 * units + i])
                leave = sigmoid(new[3 * units + i] + old[3 * units + i])
                cell[i] = keep * cell[i] + enter * value
                state[i] = leave * tanh(cell[i])
            current, begin, before = state, end, before + units
        middle = begin + before * outputs.shape[1]
        biases = row[middle : middle + outputs.shape[1]]
        dense(states[lane, 0], row[begin:middle], biases, outputs[position])
    return 0


class LstmPolicy(RecurrentPolicy):
    """One run's `lstm` policy on some lanes, whose cells are states too."""

    def __init__(self, spec: RunSpec, lanes: int) -> None:
        units = sum(spec.policy.hidden)
        states = np.zeros((lanes, 2, units), dtype=np.float32)
        super().__init__(spec, lanes, forward, 4, states)
