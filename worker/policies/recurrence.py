"""PyTorch's recurrent modules as plain sums, which `torch.func.vmap` can batch over lanes.

`vmap` has no rule for the fused kernels behind `nn.RNN`, `nn.LSTM`, `nn.GRU` and their cells. What
stands in for one has parameters of the same names, takes and gives the same, and is meant for
evaluation: dropout between layers does nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

States = tuple[Tensor, ...]
"""The hidden state, and of an LSTM the cell's."""
Weights = Callable[[str], Tensor | None]
"""The parameter of a layer whose name begins so."""


def rnn_step(inputs: Tensor, states: States, weights: Weights, rectified: bool) -> States:
    """One step of `nn.RNN` (Elman 1990)."""
    total = _new(inputs, weights) + _old(states[0], weights)
    return (torch.relu(total) if rectified else torch.tanh(total),)


def gru_step(inputs: Tensor, states: States, weights: Weights) -> States:
    """One step of `nn.GRU` (Cho et al. 2014, the reset as in PyTorch)."""
    new_reset, new_update, new_value = _new(inputs, weights).chunk(3, -1)
    old_reset, old_update, old_value = _old(states[0], weights).chunk(3, -1)
    reset = torch.sigmoid(new_reset + old_reset)
    update = torch.sigmoid(new_update + old_update)
    value = torch.tanh(new_value + reset * old_value)
    return ((1.0 - update) * value + update * states[0],)


def lstm_step(inputs: Tensor, states: States, weights: Weights) -> States:
    """One step of `nn.LSTM` (Hochreiter & Schmidhuber 1997), with a projection where it has one."""
    gates = _new(inputs, weights) + _old(states[0], weights)
    enter, forget, value, leave = gates.chunk(4, -1)
    cell = torch.sigmoid(forget) * states[1] + torch.sigmoid(enter) * torch.tanh(value)
    hidden = torch.sigmoid(leave) * torch.tanh(cell)
    projection = weights("weight_hr")
    return (hidden if projection is None else linear(hidden, projection), cell)


def _new(inputs: Tensor, weights: Weights) -> Tensor:
    return linear(inputs, cast(Tensor, weights("weight_ih")), weights("bias_ih"))


def _old(hidden: Tensor, weights: Weights) -> Tensor:
    return linear(hidden, cast(Tensor, weights("weight_hh")), weights("bias_hh"))


def _step_of(module: nn.RNNBase | nn.RNNCellBase) -> Callable[[Tensor, States, Weights], States]:
    if isinstance(module, nn.LSTM | nn.LSTMCell):
        return lstm_step
    if isinstance(module, nn.GRU | nn.GRUCell):
        return gru_step
    rectified = module.nonlinearity == "relu"
    return lambda inputs, states, weights: rnn_step(inputs, states, weights, rectified)


def _take_over(stand_in: nn.Module, original: nn.RNNBase | nn.RNNCellBase) -> None:
    """The parameters, and the settings as the attributes that they are."""
    stand_in._parameters = original._parameters
    for setting in original.__constants__:
        setattr(stand_in, setting, getattr(original, setting))
    stand_in.train(original.training)


def _several(state: Tensor | States | list[Tensor]) -> States:
    """PyTorch takes the states of an LSTM as a list, too."""
    return tuple(state) if isinstance(state, tuple | list) else (state,)


class Cell(nn.Module):
    """In the place of `nn.RNNCell`, `nn.GRUCell` or `nn.LSTMCell`, with the same attributes."""

    hidden_size: int

    def __init__(self, original: nn.RNNCellBase) -> None:
        super().__init__()
        _take_over(self, original)
        self._step = _step_of(original)
        self._paired = isinstance(original, nn.LSTMCell)

    def forward(
        self, inputs: Tensor, state: Tensor | States | list[Tensor] | None = None
    ) -> Tensor | tuple[Tensor, Tensor]:
        """The next hidden state; of an LSTM (hidden, cell)."""
        if state is None:
            zeros = inputs.new_zeros(*inputs.shape[:-1], self.hidden_size)
            states: States = (zeros, zeros)
        else:
            states = _several(state)
        moved = self._step(inputs, states, lambda name: getattr(self, name, None))
        return cast(tuple[Tensor, Tensor], moved) if self._paired else moved[0]


class Layers(nn.Module):
    """In the place of `nn.RNN`, `nn.GRU` or `nn.LSTM`, of any number of layers and directions, with
    the same attributes."""

    num_layers: int
    batch_first: bool

    def __init__(self, original: nn.RNNBase) -> None:
        super().__init__()
        _take_over(self, original)
        self._step = _step_of(original)
        self._paired = isinstance(original, nn.LSTM)
        self._directions = 1 + original.bidirectional
        self._widths = (original.proj_size or original.hidden_size, original.hidden_size)

    def flatten_parameters(self) -> None:
        """Nothing: it is the kernels that want parameters in one piece."""

    def forward(
        self, inputs: Tensor, state: Tensor | States | list[Tensor] | None = None
    ) -> tuple[Tensor, Tensor | States]:
        """Outputs of all steps, and the state after the last; shaped as PyTorch has it."""
        if not isinstance(inputs, Tensor):
            raise TypeError(f"inputs are {type(inputs).__name__}: packed sequences don't batch")
        single = inputs.dim() == 2
        if single:
            sequence = inputs.unsqueeze(1)
        else:
            sequence = inputs.transpose(0, 1) if self.batch_first else inputs
        states = self._begin(sequence, state, single)
        ends: list[States] = []
        for layer in range(self.num_layers):
            sides = []
            for direction in range(self._directions):
                number = layer * self._directions + direction
                steps = list(sequence.unbind(0))
                suffix = f"_l{layer}" + "_reverse" * direction
                outputs, end = self._pass(
                    steps[::-1] if direction else steps,
                    tuple(part[number] for part in states),
                    suffix,
                )
                sides.append(torch.stack(outputs[::-1] if direction else outputs))
                ends.append(end)
            sequence = torch.cat(sides, -1)
        last = tuple(torch.stack(parts) for parts in zip(*ends, strict=True))
        if single:
            sequence, last = sequence.squeeze(1), tuple(part.squeeze(1) for part in last)
        elif self.batch_first:
            sequence = sequence.transpose(0, 1)
        return sequence, last if self._paired else last[0]

    def _begin(
        self, sequence: Tensor, state: Tensor | States | list[Tensor] | None, single: bool
    ) -> States:
        """States of shape (layers * directions, batch, units)."""
        if state is None:
            shape = (self.num_layers * self._directions, sequence.shape[1])
            widths = self._widths if self._paired else self._widths[:1]
            return tuple(sequence.new_zeros(*shape, width) for width in widths)
        states = _several(state)
        return tuple(part.unsqueeze(1) for part in states) if single else states

    def _pass(
        self, steps: list[Tensor], states: States, suffix: str
    ) -> tuple[list[Tensor], States]:
        outputs = []
        for inputs in steps:
            states = self._step(inputs, states, lambda name: getattr(self, name + suffix, None))
            outputs.append(states[0])
        return outputs, states


def replace(module: nn.Module) -> tuple[nn.Module, list[str]]:
    """The module with what stands in for its recurrent parts, and the names of these.

    Those that are not exactly PyTorch's own classes, or to which something was added, stay as they
    are.
    """
    if (stand_in := _stand_in(module)) is not None:
        return stand_in, [type(module).__name__]
    made: dict[nn.Module, nn.Module] = {}
    replaced = []
    for name, part in list(module.named_modules(remove_duplicate=False)):
        if part not in made and (stand_in := _stand_in(part)) is not None:
            made[part] = stand_in
        if part in made:
            above, _, attribute = name.rpartition(".")
            module.get_submodule(above)._modules[attribute] = made[part]
            replaced.append(name)
    return module, replaced


def _stand_in(module: nn.Module) -> nn.Module | None:
    if not _untouched(module):
        return None
    if type(module) in (nn.RNN, nn.GRU, nn.LSTM):
        return Layers(cast(nn.RNNBase, module))
    if type(module) in (nn.RNNCell, nn.GRUCell, nn.LSTMCell):
        return Cell(cast(nn.RNNCellBase, module))
    return None


def _untouched(module: nn.Module) -> bool:
    """Whether a call does what the class says, with the module's own parameters, and no more.

    Pruning and the old `weight_norm` come as hooks; a parametrization makes a class of its own.
    """
    return not (
        module._forward_hooks
        or module._forward_pre_hooks
        or module._buffers
        or module._modules
        or "forward" in vars(module)
    )
