"""The built-in policies as PyTorch modules, for devices that our own kernels don't run on."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from protocol import networks, policies
from protocol.spec import RunSpec, seen_choices, seen_image
from protocol.spec import outputs as network_outputs

States = tuple[Tensor, ...]
NAMED_OTHERWISE: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu_tanh": partial(functional.gelu, approximate="tanh"),
    "identity": nn.Identity(),
}
"""Activations that PyTorch has no function for by their name."""


def activation(name: str) -> Callable[[Tensor], Tensor]:
    """PyTorch's function of the activation of that name."""
    found: Callable[[Tensor], Tensor] = NAMED_OTHERWISE.get(name) or getattr(functional, name)
    return found


class Dense(nn.Module):
    """`linear` and `mlp`."""

    def __init__(self, spec: RunSpec, widths: list[int]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(*pair) for pair in pairwise(widths))
        self._activation = activation(spec.policy.activation)

    def forward(self, observations: Tensor) -> Tensor:
        """Outputs, shape (batch, outputs)."""
        current = observations.flatten(1)
        for number, layer in enumerate(self.layers):
            current = layer(self._activation(current) if number else current)
        return current


class Gru(nn.Module):
    """`gru`."""

    def __init__(self, inputs: int, hidden: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.gru = nn.ModuleList(map(nn.GRUCell, (inputs, *hidden), hidden))
        self.readout = nn.Linear(sum(hidden), outputs)

    def forward(self, observations: Tensor, states: States | None = None) -> tuple[Tensor, States]:
        """Outputs, shape (batch, outputs), and the layers' states."""
        current, moved = observations.flatten(1), []
        for number, cell in enumerate(self.gru):
            current = cell(current, None if states is None else states[number])
            moved.append(current)
        return self.readout(torch.cat(moved, 1)), tuple(moved)


class Lstm(nn.Module):
    """`lstm`."""

    def __init__(self, inputs: int, hidden: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.lstm = nn.ModuleList(map(nn.LSTMCell, (inputs, *hidden), hidden))
        self.readout = nn.Linear(sum(hidden), outputs)

    def forward(
        self, observations: Tensor, states: tuple[States, ...] | None = None
    ) -> tuple[Tensor, tuple[States, ...]]:
        """Outputs, shape (batch, outputs), and the layers' states, each with its cell."""
        current, moved = observations.flatten(1), []
        for number, cell in enumerate(self.lstm):
            moved.append(cell(current, None if states is None else states[number]))
            current = moved[-1][0]
        return self.readout(torch.cat([state for state, _ in moved], 1)), tuple(moved)


class Table(nn.Module):
    """`tabular`."""

    def __init__(self, choices: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.table = nn.Embedding(math.prod(choices), outputs)
        self._choices = choices

    def forward(self, observations: Tensor) -> Tensor:
        """Outputs, shape (batch, outputs)."""
        place = torch.zeros(len(observations), dtype=torch.int64, device=observations.device)
        for chosen in observations.flatten(1).split(self._choices, 1):
            place = place * chosen.shape[1] + chosen.argmax(1)
        return self.table(place)


class Cnn(Dense):
    """`cnn`."""

    def __init__(self, spec: RunSpec) -> None:
        seen, policy = seen_image(spec.environment), spec.policy
        sizes = networks.feature_sizes(seen, policy.convolutions)
        outputs = network_outputs(policy, spec.environment)
        super().__init__(spec, [math.prod(sizes[-1]), *policy.hidden, outputs])
        layers = self.layers
        del self.layers  # the convolutions' parameters come first
        self.convolutions = nn.ModuleList(
            nn.Conv2d(size[0], channels, kernel, stride)
            for size, (channels, kernel, stride) in zip(sizes, policy.convolutions, strict=False)
        )
        self.layers = layers
        self._image = seen

    def forward(self, observations: Tensor) -> Tensor:
        """Outputs, shape (batch, outputs)."""
        image = self._image
        if image.channels_first:
            current = observations.reshape(-1, image.channels, image.height, image.width)
        else:
            current = observations.reshape(-1, image.height, image.width, image.channels)
            current = current.permute(0, 3, 1, 2)
        for convolution in self.convolutions:
            current = self._activation(convolution(current))
        return super().forward(current)


class Deviations(nn.Module):
    """Logarithms of the deviations of the noise on actions."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.log_deviation = nn.Parameter(torch.zeros(count))

    def forward(self, outputs: Tensor) -> Tensor:
        """Outputs, and after them the logarithms."""
        return torch.cat([outputs, self.log_deviation.expand(len(outputs), -1)], 1)


def append_deviations(module: nn.Module, observed: tuple[Any, ...], given: Any) -> Any:
    """What a module gives, with its deviations after the outputs for the actions."""
    deviations = cast(Deviations, module.action)
    if isinstance(given, Tensor):
        return deviations(given)
    return (deviations(given[0]), *given[1:])


def form(spec: RunSpec) -> nn.Module:
    """A run's built-in policy as a module, whose parameters are `spec.tensors`, named as there.

    Their values are of no account.
    """
    inputs = spec.environment.observation.size
    outputs = network_outputs(spec.policy, spec.environment)
    if spec.policy.kind == "gru":
        made: nn.Module = Gru(inputs, spec.policy.hidden, outputs)
    elif spec.policy.kind == "lstm":
        made = Lstm(inputs, spec.policy.hidden, outputs)
    elif spec.policy.kind == "tabular":
        made = Table(seen_choices(spec.environment), outputs)
    elif spec.policy.kind == "cnn":
        made = Cnn(spec)
    else:
        made = Dense(spec, [spec.layers[0][0], *(many for _, many in spec.layers)])
    if spec.policy.action_noise == "learned":
        made.action = Deviations(policies.reals(spec.environment.action))
        made.register_forward_hook(append_deviations)
    return made.eval().requires_grad_(False)
