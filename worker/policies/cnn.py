"""Convolutional policies (`cnn`) of many lanes at once, each lane with parameters of its own."""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from protocol import networks
from protocol.spec import RunSpec, seen_image
from worker.policies.activations import activate, code
from worker.policies.calls import prepared
from worker.policies.layers import dense, order
from worker.policies.policy import Forward, Policy, View, see, unsound


@njit(error_model="numpy")
def convolve(
    seen: NDArray[np.float32],
    weights: NDArray[np.float32],
    biases: NDArray[np.float32],
    before: NDArray[np.int64],
    after: NDArray[np.int64],
    window: NDArray[np.int64],
    patch: NDArray[np.float32],
    features: NDArray[np.float32],
) -> None:
    """Slide a convolution over an image; each place is `dense` over what the kernel covers.

    Args:
        seen: flat (height, width, channels) of `before`.
        weights: flat (kernel, kernel, channels before, channels).
        before, after: (channels, height, width).
        window: kernel, stride.
        patch: shape (kernel * kernel * channels before,), written over.
        features: flat (height, width, channels) of `after`.
    """
    kernel, stride = window[0], window[1]
    many, reach = after[0], kernel * before[0]
    for y in range(after[1]):
        for x in range(after[2]):
            for row in range(kernel):
                begin = ((y * stride + row) * before[2] + x * stride) * before[0]
                for i in range(reach):
                    patch[row * reach + i] = seen[begin + i]
            place = (y * after[2] + x) * many
            dense(patch, weights, biases, features[place : place + many])


@njit(cache=True, error_model="numpy")
def forward(
    lanes: NDArray[np.int64],
    observations: NDArray[np.float32],
    rows: NDArray[np.int64],
    parameters: NDArray[np.float32],
    sizes: NDArray[np.int64],
    windows: NDArray[np.int64],
    channels_first: bool,
    widths: NDArray[np.int64],
    activation: int,
    slots: NDArray[np.int64],
    view: View,
    scratch: NDArray[np.float32],
    patch: NDArray[np.float32],
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
        sizes: shape (convolutions + 1, 3): channels, height, width of the image and behind each.
        windows: shape (convolutions, 2): kernel, stride.
        channels_first: whether observations are (channels, height, width), else channels come last.
        widths: shape (layers + 1,): of what the convolutions leave, hidden widths, outputs.
        activation: between the layers, see `activations.code`.
        slots: shape (L,), the entry of the view's sums that observes a lane's frames, or -1.
        view: as a plain tuple.
        scratch: shape (2, at least the largest image or width).
        patch: shape (at least the largest number of inputs of a convolution,).
        outputs: shape (at least l, outputs).
    """
    broken = unsound(lanes, observations)
    if broken:
        return broken
    last = widths.size - 2
    for position in range(lanes.size):
        lane = lanes[position]
        current = see(observations[lane], slots[lane], view, scratch[1])
        if channels_first:
            channels, area = sizes[0, 0], sizes[0, 1] * sizes[0, 2]
            turned = scratch[0, : current.size]
            for channel in range(channels):
                for place in range(area):
                    turned[place * channels + channel] = current[channel * area + place]
            current = turned
        row = parameters[rows[lane]]
        begin, room = 0, 1 if channels_first else 0
        for layer in range(windows.shape[0]):
            before, after = sizes[layer], sizes[layer + 1]
            reach = windows[layer, 0] * windows[layer, 0] * before[0]
            middle = begin + reach * after[0]
            end = middle + after[0]
            features = scratch[room, : after[0] * after[1] * after[2]]
            convolve(
                current,
                row[begin:middle],
                row[middle:end],
                before,
                after,
                windows[layer],
                patch[:reach],
                features,
            )
            activate(features, activation)
            current, begin, room = features, end, 1 - room
        for layer in range(last + 1):
            many = widths[layer + 1]
            middle = begin + current.size * many
            end = middle + many
            if layer == last:
                dense(current, row[begin:middle], row[middle:end], outputs[position])
                break
            hidden = scratch[room, :many]
            dense(current, row[begin:middle], row[middle:end], hidden)
            activate(hidden, activation)
            current, begin, room = hidden, end, 1 - room
    return 0


class CnnPolicy(Policy):
    """One run's `cnn` policy on some lanes.

    Images are read as (height, width, channels): what a kernel covers in a row lies side by side.
    """

    def __init__(self, spec: RunSpec, lanes: int) -> None:
        super().__init__(spec, lanes)
        seen, policy = seen_image(spec.environment), spec.policy
        sizes = networks.feature_sizes(seen, policy.convolutions)
        self.order = order(spec.tensors, sizes[-1])
        self._channels_first = seen.channels_first
        self._sizes = np.array(sizes, dtype=np.int64)
        windows = [(kernel, stride) for _, kernel, stride in policy.convolutions]
        self._windows = np.array(windows, dtype=np.int64).reshape(-1, 2)
        widths = [math.prod(sizes[-1]), *policy.hidden, self.outputs.shape[1]]
        self._widths = np.array(widths, dtype=np.int64)
        self._activation = code(policy.activation)
        largest = max(*map(math.prod, sizes), *widths)
        self._scratch = np.empty((2, largest), dtype=np.float32)
        pairs = zip(windows, sizes, strict=False)
        reaches = [kernel * kernel * size[0] for (kernel, _), size in pairs]
        self._patch = np.empty(max(reaches, default=0), dtype=np.float32)

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
            self._sizes,
            self._windows,
            self._channels_first,
            self._widths,
            self._activation,
            self.slots,
            tuple(view),
            self._scratch,
            self._patch,
            self.outputs,
        )
