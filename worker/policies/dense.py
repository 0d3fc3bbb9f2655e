"""Dense policies (`linear`, `mlp`) of many lanes at once, each lane with parameters of its own."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from protocol import noise
from protocol.spec import RunSpec
from worker.policies.activations import activate, code
from worker.policies.calls import prepared
from worker.policies.layers import dense
from worker.policies.policy import Forward, Policy, View, see, unsound
from worker.policies.signs import OCTET, SignRoom, member, part

FEWEST_SIGNED = 1 << 17
"""Parameters from which on a member is not built; smaller ones stay in the caches."""


@njit(cache=True, error_model="numpy")
def forward(
    lanes: NDArray[np.int64],
    observations: NDArray[np.float32],
    rows: NDArray[np.int64],
    parameters: Any,
    per_direction: int,
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
        parameters: float32, shape (members, size), in the order of `layers.order`; or a tuple as
            `signs.Signs` is.
        per_direction: members, 2 with the mirrored ones.
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
        row = member(parameters, rows[lane], per_direction)
        begin = 0
        for layer in range(last + 1):
            many = widths[layer + 1]
            middle = begin + current.size * many
            end = middle + many
            if layer == last:
                dense(current, part(row, begin, middle), part(row, middle, end), outputs[position])
                break
            hidden = scratch[layer & 1, :many]
            dense(current, part(row, begin, middle), part(row, middle, end), hidden)
            activate(hidden, activation)
            current = hidden
            begin = end
    return 0


@njit(cache=True, nogil=True)
def turn(octets: NDArray[np.uint8], widths: NDArray[np.int64], out: NDArray[np.uint8]) -> None:
    """out[j] = octets[order[j]] for the order of these layers, five times as fast: eight rows are
    turned at once, since one by itself would use a byte of each cache line that it reads."""
    begin = 0
    for layer in range(widths.size - 1):
        inputs, many = widths[layer], widths[layer + 1]
        whole = many // 8 * 8
        for o in range(0, whole, 8):
            rows = octets[begin + o * inputs : begin + (o + 8) * inputs]
            for i in range(inputs):
                place = begin + i * many + o
                out[place] = rows[i]
                out[place + 1] = rows[inputs + i]
                out[place + 2] = rows[2 * inputs + i]
                out[place + 3] = rows[3 * inputs + i]
                out[place + 4] = rows[4 * inputs + i]
                out[place + 5] = rows[5 * inputs + i]
                out[place + 6] = rows[6 * inputs + i]
                out[place + 7] = rows[7 * inputs + i]
        for o in range(whole, many):
            for i in range(inputs):
                out[begin + i * many + o] = octets[begin + o * inputs + i]
        begin += inputs * many
        for o in range(begin, begin + many):  # a slice would take the compiler seconds
            out[o] = octets[o]
        begin += many


class DensePolicy(Policy):
    """One run's `linear` or `mlp` policy on some lanes."""

    def __init__(self, spec: RunSpec, lanes: int) -> None:
        super().__init__(spec, lanes)
        widths = [spec.layers[0][0], *(outputs for _, outputs in spec.layers)]
        self._widths = np.array(widths, dtype=np.int64)
        self._activation = code(spec.policy.activation)
        self._scratch = np.empty((2, max(widths)), dtype=np.float32)

    def prepare_forward(self, lanes: NDArray[np.int64], parameters: Any, view: View) -> Forward:
        """What writes `outputs`; see `Policy.prepare_forward`."""
        return prepared(
            forward,
            lanes,
            self.observations,
            self.rows,
            parameters,
            self._per_direction,
            self._widths,
            self._activation,
            self.slots,
            tuple(view),
            self._scratch,
            self.outputs,
        )


class SignedPolicy(DensePolicy):
    """A large one, whose members are never built: what an episode reads of them is less.

    For rademacher noise and one sigma for all parameters; see `signs`.
    """

    def __init__(self, spec: RunSpec, lanes: int) -> None:
        super().__init__(spec, lanes)
        self.direction_bytes = self.order.size * (1 + 4) // OCTET

    @staticmethod
    def suits(spec: RunSpec) -> bool:
        """Whether members of that run may be played so, and are large enough to gain by it."""
        return (
            spec.size >= FEWEST_SIGNED
            and spec.strategy.noise == noise.RADEMACHER
            and spec.factors is None
            and spec.policy.action_noise != "learned"
        )

    def room(self, rows: int) -> SignRoom:
        """Room for the signs of so many members; see `Policy.room`."""
        return SignRoom.of(rows, self.order.size, self._per_direction)

    def members(
        self,
        first: int,
        count: int,
        theta: NDArray[np.float32],
        sigma: noise.Spread,
        room: SignRoom,
    ) -> None:
        """The signs of members; see `Policy.members`."""
        kind, seed = self._noise
        step = np.float32(noise.scale(kind, sigma))
        room.write_members(first, count, theta, step, partial(self._octets, seed))

    def centre(self, theta: NDArray[np.float32], room: SignRoom) -> None:
        """Theta, without any sign; see `Policy.centre`."""
        room.write_centre(theta)

    def prepare_forward(
        self, lanes: NDArray[np.int64], parameters: SignRoom, view: View
    ) -> Forward:
        """What writes `outputs`; see `Policy.prepare_forward`."""
        return super().prepare_forward(lanes, tuple(parameters.signs), view)

    def _octets(self, seed: int, block: int) -> NDArray[np.uint8]:
        """Of the noise of eight directions, in the policy's order."""
        octets = noise.stream(seed, noise.Domain.NOISE, block, self.order.size)
        turned = np.empty_like(octets)
        turn(octets, self._widths, turned)
        return turned
