"""Recurrent policies (`gru`) of many lanes at once, each with parameters and states of its own."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from protocol.spec import RunSpec
from worker.policies.activations import sigmoid, tanh
from worker.policies.layers import dense
from worker.policies.policy import View, see, unsound
from worker.policies.recurrent import RecurrentPolicy

ONE = np.float32(1.0)


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

    A layer with inputs x and state h (Cho et al. 2014, the reset as in PyTorch):
    r = sigmoid(Wr x + br + Ur h + cr), z = sigmoid(Wz x + bz + Uz h + cz),
    n = tanh(Wn x + bn + r (Un h + cn)), h becomes (1 - z) n + z h.

    Returns the number of those lanes whose observation is not finite; where there is one, nothing
    else has been done.

    Args:
        lanes: shape (l,), which lanes take part.
        observations: shape (L, inputs).
        rows: shape (L,), the row of `parameters` that each lane plays.
        parameters: shape (members, size), in the order of `layers.order`.
        hidden: units of each layer.
        states: shape (L, all units), the layers' states in order.
        slots: shape (L,), the entry of the view's sums that observes a lane's frames, or -1.
        view: as a plain tuple.
        scratch: shape (3, at least the inputs and three times the units of a layer).
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
            gates = 3 * units
            recurrent = begin + gates * current.size
            bias = recurrent + gates * units
            end = bias + 2 * gates
            state = states[lane, before : before + units]
            new, old = scratch[1, :gates], scratch[2, :gates]
            dense(current, row[begin:recurrent], row[bias : bias + gates], new)
            dense(state, row[recurrent:bias], row[bias + gates : end], old)
            for i in range(units):
                reset = sigmoid(new[i] + old[i])
                update = sigmoid(new[units + i] + old[units + i])
                value = tanh(new[2 * units + i] + reset * old[2 * units + i])
                state[i] = (ONE - update) * value + update * state[i]
            current, begin, before = state, end, before + units
        middle = begin + before * outputs.shape[1]
        biases = row[middle : middle + outputs.shape[1]]
        dense(states[lane], row[begin:middle], biases, outputs[position])
    return 0


class GruPolicy(RecurrentPolicy):
    """One run's `gru` policy on some lanes."""

    def __init__(self, spec: RunSpec, lanes: int) -> None:
        units = sum(spec.policy.hidden)
        states = np.zeros((lanes, units), dtype=np.float32)
        super().__init__(spec, lanes, forward, 3, states)
