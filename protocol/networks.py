"""The tensors that a policy's parameters are, in the order of theta."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

MOST_PRODUCTS = 1 << 33
"""That making a tensor's weights orthonormal may take: some 10 s."""


class Tensor(NamedTuple):
    """A part of the parameters, row-major: weights (outputs, inputs), of a convolution (channels,
    channels before, kernel, kernel), or biases (outputs,)."""

    name: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def inputs(self) -> int:
        """Numbers that each output sums up; 0 for biases."""
        return math.prod(self.shape[1:]) if len(self.shape) > 1 else 0


def dense(widths: Iterable[int]) -> tuple[Tensor, ...]:
    """Layers from each width to the next: weights, then biases."""
    tensors = []
    for layer, (inputs, outputs) in enumerate(pairwise(widths)):
        tensors.append(Tensor(f"layers.{layer}.weight", (outputs, inputs)))
        tensors.append(Tensor(f"layers.{layer}.bias", (outputs,)))
    return tuple(tensors)


GATES = {"gru": 3, "lstm": 4}
"""Of a unit: reset, update and new of a `gru`; input, forget, cell and output of an `lstm`."""


def recurrent(
    inputs: int, hidden: Iterable[int], outputs: int, kind: str = "gru"
) -> tuple[Tensor, ...]:
    """Recurrent units in layers, and a readout of all their states.

    Gated ones (Cho et al. 2014), or with long short-term memory (Hochreiter and Schmidhuber 1997).
    A layer's tensors are those of PyTorch's GRU or LSTM: weights (gates * units, inputs) and
    (gates * units, units), biases (gates * units,) twice, the gates one after the other. The
    readout's inputs are the layers' states in order, of an LSTM without its cells.
    """
    tensors, states = [], 0
    for layer, units in enumerate(hidden):
        gates = GATES[kind] * units
        tensors += [
            Tensor(f"{kind}.{layer}.weight_ih", (gates, inputs)),
            Tensor(f"{kind}.{layer}.weight_hh", (gates, units)),
            Tensor(f"{kind}.{layer}.bias_ih", (gates,)),
            Tensor(f"{kind}.{layer}.bias_hh", (gates,)),
        ]
        inputs, states = units, states + units
    readout = Tensor("readout.weight", (outputs, states)), Tensor("readout.bias", (outputs,))
    return (*tensors, *readout)


def table(choices: Iterable[int], outputs: int) -> tuple[Tensor, ...]:
    """A row of outputs for each combination of choices; the last choice counts up first."""
    return (Tensor("table.weight", (math.prod(choices), outputs)),)


class Image(NamedTuple):
    """How an observation is read as an image."""

    height: int
    width: int
    channels: int
    channels_first: bool


def image(shape: Sequence[int]) -> Image | None:
    """The image in observations of that shape; None where there is none.

    Of three dimensions the smaller of the first and the last are the channels; of two equal ones
    the last.
    """
    if len(shape) == 2:
        return Image(shape[0], shape[1], 1, channels_first=False)
    if len(shape) != 3:
        return None
    if shape[0] < shape[2]:
        return Image(shape[1], shape[2], shape[0], channels_first=True)
    return Image(shape[0], shape[1], shape[2], channels_first=False)


def feature_sizes(seen: Image, convolutions: Iterable[Sequence[int]]) -> list[tuple[int, int, int]]:
    """(channels, height, width) of the image and behind each convolution, without padding.

    A convolution is (channels, kernel, stride). A size below 1 says that a kernel is larger than
    what it slides over.
    """
    sizes = [(seen.channels, seen.height, seen.width)]
    for channels, kernel, stride in convolutions:
        _, height, width = sizes[-1]
        sizes.append((channels, (height - kernel) // stride + 1, (width - kernel) // stride + 1))
    return sizes


def convolutional(
    seen: Image,
    convolutions: Sequence[Sequence[int]],
    hidden: Iterable[int],
    outputs: int,
) -> tuple[Tensor, ...]:
    """Convolutions of (channels, kernel, stride), then dense layers over what is left.

    The dense layers read the last features as (channels, height, width).
    """
    sizes = feature_sizes(seen, convolutions)
    tensors = []
    for layer, (channels, kernel, _) in enumerate(convolutions):
        shape = (channels, sizes[layer][0], kernel, kernel)
        tensors.append(Tensor(f"convolutions.{layer}.weight", shape))
        tensors.append(Tensor(f"convolutions.{layer}.bias", (channels,)))
    return (*tensors, *dense((math.prod(sizes[-1]), *hidden, outputs)))


def layers(tensors: Iterable[Tensor]) -> tuple[tuple[int, int], ...]:
    """(inputs, outputs) of each tensor of weights."""
    return tuple((tensor.inputs, tensor.shape[0]) for tensor in tensors if tensor.inputs)


def products(tensor: Tensor) -> int:
    """How many it takes to make a tensor's weights orthonormal; 0 for biases."""
    return tensor.size * min(tensor.shape[0], tensor.inputs)
