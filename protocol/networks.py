"""The tensors that a policy's parameters are, in the order of theta."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple


class Tensor(NamedTuple):
    """A part of the parameters: weights (outputs, inputs) or biases (outputs,), row-major."""

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


def recurrent(inputs: int, hidden: Iterable[int], outputs: int) -> tuple[Tensor, ...]:
    """Gated recurrent units (Cho et al. 2014) in layers, and a readout of all their states.

    A layer's tensors are those of PyTorch's GRU: weights (3 * units, inputs) and
    (3 * units, units), biases (3 * units,) twice, the reset, update and new gates one after the
    other. The readout's inputs are the layers' states in order.
    """
    tensors, states = [], 0
    for layer, units in enumerate(hidden):
        tensors += [
            Tensor(f"gru.{layer}.weight_ih", (3 * units, inputs)),
            Tensor(f"gru.{layer}.weight_hh", (3 * units, units)),
            Tensor(f"gru.{layer}.bias_ih", (3 * units,)),
            Tensor(f"gru.{layer}.bias_hh", (3 * units,)),
        ]
        inputs, states = units, states + units
    readout = Tensor("readout.weight", (outputs, states)), Tensor("readout.bias", (outputs,))
    return (*tensors, *readout)


def layers(tensors: Iterable[Tensor]) -> tuple[tuple[int, int], ...]:
    """(inputs, outputs) of each tensor of weights."""
    return tuple((tensor.inputs, tensor.shape[0]) for tensor in tensors if tensor.inputs)
