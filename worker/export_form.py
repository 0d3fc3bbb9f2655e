"""A policy as one PyTorch module: from what the environment shows to what it takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from protocol.spaces import Box, Discrete, MultiBinary, MultiDiscrete, leaves
from protocol.spec import RunSpec


class Whole(nn.Module):
    """(observation, *memories) -> (action, *memories); of actions with noise its middle.

    Args:
        network: as `forms.form` makes it, or a volunteer's module without memories.
        mean, inverse: of the normaliser, where the run has one.
    """

    mean: Tensor
    inverse: Tensor
    low: Tensor
    high: Tensor

    def __init__(
        self,
        spec: RunSpec,
        network: nn.Module,
        mean: NDArray[np.float32] | None,
        inverse: NDArray[np.float32] | None,
    ) -> None:
        super().__init__()
        self.network = network
        seen, action = spec.environment.observation, spec.environment.action
        self._choices = (seen.n, seen.start) if isinstance(seen, Discrete) else None
        image = any(isinstance(part, Box) and part.dtype == "uint8" for part in leaves(seen))
        self._bright = 255.0 if image else 1.0
        self._normalized = mean is not None
        if mean is not None and inverse is not None:
            self.register_buffer("mean", torch.from_numpy(mean.copy()))
            self.register_buffer("inverse", torch.from_numpy(inverse.copy()))
        self._clip = float(spec.normalizer.bound)
        self._paired = spec.policy.kind == "lstm"
        self._remembers = spec.policy.kind in ("gru", "lstm")
        self._module = spec.policy.kind == "module"
        self._shape = tuple(seen.shape) if isinstance(seen, Box | MultiBinary) else (-1,)
        self._starts: list[int] = []
        self._parts: list[int] = []
        self._kind = "switches"
        if isinstance(action, Box):
            self._kind = "tanh" if spec.policy.squash == "tanh" else "clip"
            self._parts = [action.size]
            self._action_shape = tuple(action.shape)
            self.register_buffer("low", torch.tensor(action.low, dtype=torch.float32))
            self.register_buffer("high", torch.tensor(action.high, dtype=torch.float32))
        elif isinstance(action, MultiBinary):
            self._parts = [action.size]
            self._action_shape = tuple(action.shape)
        elif isinstance(action, Discrete):
            self._kind, self._parts, self._starts = "choice", [action.n], [action.start]
        elif isinstance(action, MultiDiscrete):
            self._kind = "choices"
            self._parts = list(action.choices)
            self._starts = list(action.start) or [0] * len(action.choices)
            self._action_shape = tuple(action.shape)

    def forward(self, observation: Tensor, *memories: Tensor) -> Any:
        """The action for a batch of one, and the memories after it."""
        given: tuple[Any, ...] = ()
        if self._remembers:
            given = (memories,)
            if self._paired:
                given = (tuple(zip(memories[::2], memories[1::2], strict=True)),)
        outputs = self.network(self._seen(observation), *given)
        after: list[Tensor] = []
        if self._remembers:
            outputs, states = outputs
            after = [one for pair in states for one in pair] if self._paired else list(states)
        return (self._action(outputs), *after)

    def _seen(self, observation: Tensor) -> Tensor:
        if self._choices is not None:
            many, start = self._choices
            place = observation.reshape(-1).long() - start
            return nn.functional.one_hot(place, many).float()
        vector = observation.flatten(1) / self._bright
        if self._normalized:
            vector = ((vector - self.mean) * self.inverse).clamp(-self._clip, self._clip)
        return vector.reshape(-1, *self._shape) if self._module else vector

    def _action(self, outputs: Tensor) -> Tensor:
        wanted = outputs[:, : sum(self._parts)]
        if self._kind == "choice":
            return wanted.argmax(1) + self._starts[0]
        if self._kind == "choices":
            parts = [part.argmax(1) for part in wanted.split(self._parts, 1)]
            chosen = torch.stack(parts, 1) + torch.tensor(self._starts)
            return chosen.reshape(-1, *self._action_shape)
        if self._kind == "switches":
            return (wanted > 0).to(torch.int8).reshape(-1, *self._action_shape)
        if self._kind == "tanh":
            middle, half = 0.5 * self.low + 0.5 * self.high, 0.5 * self.high - 0.5 * self.low
            wanted = middle + half * torch.tanh(wanted)
        bounded = torch.minimum(torch.maximum(wanted, self.low), self.high)
        return bounded.reshape(-1, *self._action_shape)
