"""Dense policies (`linear`, `mlp`) of many lanes at once, each lane with parameters of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from protocol.kernels import observe_frame
from protocol.spec import Box, Discrete, EnvironmentSpec, PolicySpec, layers
from worker.policies.activations import relu, tanh

ZERO = np.float32(0.0)
FEW_OUTPUTS = 8  # below it a layer is too narrow for the vector unit: its outputs go one by one


@njit(error_model="numpy")
def dense(
    inputs: NDArray[np.float32],
    weights: NDArray[np.float32],
    biases: NDArray[np.float32],
    outputs: NDArray[np.float32],
) -> None:
    """outputs = weights . inputs + biases; each output sums its inputs in order, then its bias.

    An input of 0 is passed over: it would add 0. Both loops below make the same sums.

    Args:
        inputs: shape (i,).
        weights: shape (i * o,), the o weights of the first input first.
        biases, outputs: shape (o,).
    """
    many = outputs.size
    if many < FEW_OUTPUTS:
        for o in range(0, many, 4):
            # Four sums side by side, since one alone waits for itself; the last may be repeats.
            p, q, r = min(o + 1, many - 1), min(o + 2, many - 1), min(o + 3, many - 1)
            a = b = c = d = ZERO
            for i in range(inputs.size):
                row = weights[i * many : (i + 1) * many]
                a += row[o] * inputs[i]
                b += row[p] * inputs[i]
                c += row[q] * inputs[i]
                d += row[r] * inputs[i]
            outputs[o] = a + biases[o]
            outputs[p] = b + biases[p]
            outputs[q] = c + biases[q]
            outputs[r] = d + biases[r]
        return
    outputs[:] = ZERO
    fours = inputs.size // 4 * 4
    for i in range(0, fours, 4):
        a, b, c, d = inputs[i], inputs[i + 1], inputs[i + 2], inputs[i + 3]
        if a != ZERO or b != ZERO or c != ZERO or d != ZERO:
            block = weights[i * many : (i + 4) * many]
            first, second = block[:many], block[many : 2 * many]
            third, fourth = block[2 * many : 3 * many], block[3 * many :]
            for o in range(many):
                total = outputs[o] + first[o] * a
                total = total + second[o] * b
                total = total + third[o] * c
                outputs[o] = total + fourth[o] * d
    for i in range(fours, inputs.size):
        row = weights[i * many : (i + 1) * many]
        for o in range(many):
            outputs[o] += row[o] * inputs[i]
    for o in range(many):
        outputs[o] += biases[o]


@njit(cache=True, error_model="numpy")
def forward(
    lanes: NDArray[np.int64],
    observations: NDArray[np.float32],
    rows: NDArray[np.int64],
    parameters: NDArray[np.float32],
    widths: NDArray[np.int64],
    rectified: bool,
    mean: NDArray[np.float32],
    inverse_deviation: NDArray[np.float32],
    clip: np.float32,
    slots: NDArray[np.int64],
    shift: NDArray[np.float64],
    scale: NDArray[np.float64],
    sums: NDArray[np.uint64],
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
        parameters: shape (members, size), as `arrange` writes them.
        widths: shape (layers + 1,): inputs, hidden widths, outputs.
        rectified: relu between the layers, else tanh.
        mean, inverse_deviation: shape (inputs,), or (0,) for observations as they are.
        clip: of normalised observations.
        slots: shape (L,), the entry of `sums` that observes a lane's frames, or -1.
        shift, scale, sums: see `protocol.kernels.observe_frame`; one (inputs, 4) table per slot.
        scratch: shape (2, at least the largest width).
        outputs: shape (at least l, outputs).
    """
    inputs = widths[0]
    broken = 0
    for lane in lanes:
        for i in range(inputs):
            if not np.isfinite(observations[lane, i]):
                broken += 1
                break
    if broken:
        return broken
    last = widths.size - 2
    for position in range(lanes.size):
        lane = lanes[position]
        if slots[lane] >= 0:
            observe_frame(observations[lane], shift, scale, sums[slots[lane]])
        current = observations[lane]
        if mean.size:
            current = scratch[1, :inputs]
            for i in range(inputs):
                value = (observations[lane, i] - mean[i]) * inverse_deviation[i]
                value = clip if value > clip else value
                current[i] = -clip if value < -clip else value
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
            if rectified:
                for i in range(many):
                    hidden[i] = relu(hidden[i])
            else:
                for i in range(many):
                    hidden[i] = tanh(hidden[i])
            current = hidden
            begin = end
    return 0


@njit(cache=True, error_model="numpy")
def one_hot(
    lanes: NDArray[np.int64],
    indices: NDArray[np.int64],
    start: int,
    observations: NDArray[np.float32],
) -> None:
    """Rows of `observations` become 1 at index - start and else 0; all NaN where that's outside."""
    for lane in lanes:
        index = indices[lane, 0] - start
        inside = 0 <= index < observations.shape[1]
        observations[lane, :] = ZERO if inside else np.float32(np.nan)
        if inside:
            observations[lane, index] = np.float32(1.0)


@njit(cache=True, error_model="numpy")
def first_maxima(
    outputs: NDArray[np.float32], count: int, start: int, chosen: NDArray[np.int64]
) -> None:
    """chosen[i] = start + where row i of `outputs` has its first maximum, for i < count."""
    for position in range(count):
        best = 0
        for action in range(1, outputs.shape[1]):
            if outputs[position, action] > outputs[position, best]:
                best = action
        chosen[position] = start + best


@njit(cache=True, error_model="numpy")
def bound(
    outputs: NDArray[np.float32],
    low: NDArray[np.float32],
    high: NDArray[np.float32],
    scaled: bool,
    actions: NDArray[np.float32],
) -> None:
    """Rows of `outputs` as actions in [low, high]: by tanh `scaled` to them, or clipped."""
    half = np.float32(0.5)
    for position in range(actions.shape[0]):
        for i in range(actions.shape[1]):
            value = outputs[position, i]
            if scaled:
                centre = half * low[i] + half * high[i]
                value = centre + (half * high[i] - half * low[i]) * tanh(value)
            value = high[i] if value > high[i] else value
            actions[position, i] = low[i] if value < low[i] else value


@njit(error_model="numpy")
def transpose(
    source: NDArray[np.float32], inputs: int, many: int, target: NDArray[np.float32]
) -> None:
    """target[i, o] = source[o, i], both flat, for `many` outputs o of `inputs` inputs i."""
    eights = many // 8 * 8
    for o in range(0, eights, 8):
        # Eight rows side by side fill whole stretches of the target, which a row alone would not.
        rows = source[o * inputs : (o + 8) * inputs]
        a, b = rows[:inputs], rows[inputs : 2 * inputs]
        c, d = rows[2 * inputs : 3 * inputs], rows[3 * inputs : 4 * inputs]
        e, f = rows[4 * inputs : 5 * inputs], rows[5 * inputs : 6 * inputs]
        g, h = rows[6 * inputs : 7 * inputs], rows[7 * inputs :]
        for i in range(inputs):
            stretch = target[i * many + o : i * many + o + 8]
            stretch[0], stretch[1], stretch[2], stretch[3] = a[i], b[i], c[i], d[i]
            stretch[4], stretch[5], stretch[6], stretch[7] = e[i], f[i], g[i], h[i]
    for o in range(eights, many):
        for i in range(inputs):
            target[i * many + o] = source[o * inputs + i]


@njit(cache=True, error_model="numpy")
def arrange(
    parameters: NDArray[np.float32], widths: NDArray[np.int64], out: NDArray[np.float32]
) -> None:
    """Rows of `parameters` with each layer's weights (o, i) turned to (i, o); biases stay."""
    for row in range(parameters.shape[0]):
        begin = 0
        for layer in range(widths.size - 1):
            inputs, many = widths[layer], widths[layer + 1]
            middle = begin + inputs * many
            end = middle + many
            transpose(parameters[row, begin:middle], inputs, many, out[row, begin:middle])
            out[row, middle:end] = parameters[row, middle:end]
            begin = end


@dataclass(eq=False)
class View:
    """How a version's policy sees observations, and where its frames are counted.

    Attributes:
        mean, inverse_deviation: float32, (inputs,), or (0,) where observations are not normalised.
        clip: of normalised observations.
        shift, scale, sums: see `protocol.kernels.observe_frame`; one table per slot.
    """

    mean: NDArray[np.float32]
    inverse_deviation: NDArray[np.float32]
    clip: np.float32
    shift: NDArray[np.float64]
    scale: NDArray[np.float64]
    sums: NDArray[np.uint64]


class DensePolicy:
    """One run's policy on some lanes.

    Whoever steps the lanes writes `targets`, `rows` and `slots`, and calls `act`.

    Attributes:
        observations: float32 (lanes, inputs), what each lane saw last; one-hot for Discrete spaces.
        targets: per lane the array that an observation of the environment is assigned to.
        rows: int64 (lanes,), the row of the parameters that each lane plays.
        slots: int64 (lanes,), the entry of the observation sums that counts a lane's frames, or -1.
    """

    def __init__(self, policy: PolicySpec, environment: EnvironmentSpec, lanes: int) -> None:
        shapes = layers(policy, environment)
        inputs = shapes[0][0]
        self.widths = np.array([inputs, *(outputs for _, outputs in shapes)], dtype=np.int64)
        self.observations = np.zeros((lanes, inputs), dtype=np.float32)
        self.rows = np.zeros(lanes, dtype=np.int64)
        self.slots = np.full(lanes, -1, dtype=np.int64)
        self._indices = np.zeros((lanes, 1), dtype=np.int64)
        self._seen, self._action = environment.observation, environment.action
        self.targets: list[NDArray[Any]] = list(
            self.observations.reshape(lanes, *self._seen.shape)
            if isinstance(self._seen, Box)
            else self._indices
        )
        self._rectified = policy.activation == "relu"
        self._scaled = policy.squash == "tanh"
        self._scratch = np.empty((2, int(self.widths.max())), dtype=np.float32)
        self._outputs = np.empty((lanes, self._action.size), dtype=np.float32)
        self._chosen = np.empty(lanes, dtype=np.int64)
        if isinstance(self._action, Box):
            self._low = np.array(self._action.low, dtype=np.float32)
            self._high = np.array(self._action.high, dtype=np.float32)

    def arrange(self, parameters: NDArray[np.float32], out: NDArray[np.float32]) -> None:
        """Write members, shape (m, size), to `out` in the order that `act` reads them."""
        arrange(parameters, self.widths, out)

    def act(
        self, lanes: NDArray[np.int64], parameters: NDArray[np.float32], view: View
    ) -> list[Any] | None:
        """The actions of `lanes`, in that order, as `action_space.sample` would give them: NumPy
        integers (spaces check them sooner than Python's), or float32 arrays of the space's shape.

        None, and no frame counted, where an observation of theirs is not `sound`. The same
        observation and parameters give the same action bit for bit, whatever the other lanes do.

        Args:
            lanes: int64, shape (l,).
            parameters: members as `arrange` wrote them; `rows` points into it.
        """
        if isinstance(self._seen, Discrete):
            one_hot(lanes, self._indices, self._seen.start, self.observations)
        broken = forward(
            lanes,
            self.observations,
            self.rows,
            parameters,
            self.widths,
            self._rectified,
            view.mean,
            view.inverse_deviation,
            view.clip,
            self.slots,
            view.shift,
            view.scale,
            view.sums,
            self._scratch,
            self._outputs,
        )
        if broken:
            return None
        if isinstance(self._action, Discrete):
            first_maxima(self._outputs, lanes.size, self._action.start, self._chosen)
            return list(self._chosen[: lanes.size])
        # A new array each time, since environments may keep the actions that they are given.
        actions = np.empty((lanes.size, self._action.size), dtype=np.float32)
        bound(self._outputs, self._low, self._high, self._scaled, actions)
        return list(actions.reshape(lanes.size, *self._action.shape))

    def sound(self, lane: int) -> bool:
        """Whether what the lane saw last is finite and, in a Discrete space, one of its values."""
        return bool(np.isfinite(self.observations[lane]).all())
