"""PyTorch modules as users write them, and as they should not."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


class Net(nn.Module):
    """An MLP with a normalised layer and a buffer."""

    def __init__(self, inputs: int = 4, hidden: tuple[int, ...] = (13,), outputs: int = 2) -> None:
        super().__init__()
        widths = [inputs, *hidden]
        self.hidden = nn.ModuleList(map(nn.Linear, widths, hidden))
        self.norm = nn.LayerNorm(widths[-1])
        self.out = nn.Linear(widths[-1], outputs)
        self.register_buffer("scale", torch.tensor(0.5))
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.hidden:
            x = nn.functional.silu(layer(x))
        return self.out(self.dropout(self.norm(x))) * self.scale


class Remembers(nn.Module):
    """Recurrent by one of PyTorch's modules."""

    def __init__(self, kind: str = "GRU", inputs: int = 4, outputs: int = 2) -> None:
        super().__init__()
        self.core = getattr(nn, kind)(inputs, 6)
        self.out = nn.Linear(6, outputs)
        self.cell = kind.endswith("Cell")

    def forward(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        if not self.cell:
            y, state = self.core(x.unsqueeze(0), state)
            return self.out(y), state
        state = self.core(x, state)
        return self.out(state[0] if isinstance(state, tuple) else state), state


class Delay(nn.Module):
    """Remembers the last two observations, swapped about: states that are made of each other."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Sequential(nn.Linear(12, 5), nn.ReLU(inplace=True), nn.Linear(5, 2))

    def forward(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        last, before = state or (torch.zeros_like(x), torch.zeros_like(x))
        return self.out(torch.cat([x, last, before], 1)), (x, last)


class Gate(nn.Module):
    """Data-dependent control flow."""

    def forward(self, x: Tensor) -> Tensor:
        return x if x.sum() > 0 else -2 * x


class Branches(nn.Module):
    """Holds a part that can't be batched."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 5)
        self.gate = Gate()
        self.out = nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.gate(self.first(x)))


class Counts(nn.Linear):
    """Changes its buffer."""

    def __init__(self) -> None:
        super().__init__(4, 2)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls.add_(1)
        return super().forward(x)


class Dice(nn.Linear):
    """Random."""

    def __init__(self) -> None:
        super().__init__(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + torch.rand(2)


class Awake(Dice):
    """Begins with another state than zeros."""

    def forward(self, x: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        state = torch.ones(1, 2) if state is None else state
        return nn.Linear.forward(self, x) + state, state


class Hooked(Remembers):
    """Something was added to its recurrent part."""

    def __init__(self, kind: str = "GRUCell", added: str = "hook") -> None:
        super().__init__(kind)
        if added == "hook":
            self.core.register_forward_hook(lambda part, given, found: 0.5 * found)
        elif added == "pre-hook":
            self.core.register_forward_pre_hook(lambda part, given: (2 * given[0], *given[1:]))
        elif added == "parametrization":
            nn.utils.parametrizations.weight_norm(self.core, "weight_hh")
        else:
            own = self.core.forward
            self.core.forward = lambda *given: 0.5 * own(*given)


class Idioms(nn.Module):
    """Makes use of its recurrent part as of PyTorch's; keeps the states of an LSTM in a list."""

    def __init__(self, kind: str = "LSTM") -> None:
        super().__init__()
        self.core = getattr(nn, kind)(4, 5, 2, batch_first=True)
        self.out = nn.Linear(self.core.hidden_size, 2)

    def forward(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        core = self.core
        core.flatten_parameters()
        assert not core.training and core.input_size == x.shape[-1] and core.batch_first
        if state is None:
            zeros = x.new_zeros(core.num_layers * (1 + core.bidirectional), 1, core.hidden_size)
            state = [zeros, zeros] if core.mode == "LSTM" else zeros
        y, state = core(x.unsqueeze(1), state)
        return self.out(y[:, -1]), list(state) if core.mode == "LSTM" else state


class CellIdioms(Remembers):
    """Makes use of a cell as of PyTorch's; keeps its states in a list."""

    def __init__(self) -> None:
        super().__init__("LSTMCell")

    def forward(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        if state is None:
            state = [x.new_zeros(1, self.core.hidden_size)] * 2
        state = list(self.core(x[:, : self.core.input_size], state))
        return self.out(state[0]) + self.core.bias, state


class Asks(Remembers):
    """Does something else where its recurrent part is not PyTorch's."""

    def forward(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        outputs, state = super().forward(x, state)
        return outputs * (1 if isinstance(self.core, nn.RNNBase | nn.RNNCellBase) else 2), state


class Shared(Remembers):
    """One recurrent part under two names, called twice."""

    def __init__(self) -> None:
        super().__init__("GRUCell", inputs=6)
        self.enter = nn.Linear(4, 6)
        self.again = self.core

    def forward(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        state = self.again(self.core(self.enter(x), state), state)
        return self.out(state), state


class Exits(Dice):
    """Wants to end the process, where it is asked to."""

    def __init__(self, made: bool = False) -> None:
        super().__init__()
        if made:
            raise SystemExit(3)

    def forward(self, x: Tensor) -> Tensor:
        raise SystemExit(3)


class ExitsLater(Branches):
    """Wants to end the process for some observations."""

    def forward(self, x: Tensor) -> Tensor:
        if x.max() > 1e6:
            raise SystemExit(3)
        return super().forward(x)


class Undefined(Dice):
    """Gives NaN."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.log(-1 - nn.Linear.forward(self, x).abs())


class Remembering(Dice):
    """Remembers a number that is no tensor."""

    def forward(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:  # type: ignore[override]
        return nn.Linear.forward(self, x), 1 + (state or 0)


class Grows(Dice):
    """Remembers more and more."""

    def forward(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:  # type: ignore[override]
        y = nn.Linear.forward(self, x)
        return y, 0 * x if state is None else torch.cat([state, x])


class OldNorm(nn.Module):
    """Keeps a tensor that is no parameter, as the old `weight_norm` does."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(4, 2)
        self.doubled = 2 * self.out.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.out(x)


class Two(Dice):
    """Gives two things."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        return nn.Linear.forward(self, x), x


def load(*_: object) -> None:
    """No class of a module."""


class Tied(nn.Module):
    """Two layers that are one parameter, and a part under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.out = nn.Linear(4, 2)
        self.alias = self.out

    def forward(self, x: Tensor) -> Tensor:
        return self.alias(torch.tanh(self.second(torch.relu(self.first(x)))))


class Odd(Dice):
    """Gives what no policy may give."""

    def __init__(self, kind: str = "complex") -> None:
        super().__init__()
        self.kind = kind

    def forward(self, x: Tensor) -> Tensor:
        y = nn.Linear.forward(self, x)
        return y.to(torch.complex64) if self.kind == "complex" else y.to("meta")


class Moody(Branches):
    """Does what a file says, while there is one; when it is made, what `made` says.

    Goes on in Python for each lane, as `Branches` does.
    """

    def __init__(self, orders: str = "", made: str = "") -> None:
        super().__init__()
        self.orders = orders
        self.obey(made)

    def obey(self, order: str) -> None:
        if order == "raise":
            raise ValueError("no more")
        if order == "interrupt":
            raise KeyboardInterrupt
        if order == "exit":
            raise SystemExit(3)
        if order == "fork":
            os.fork()
        if order == "print":
            print("!" * (1 << 20))
        if order == "reseed":
            np.random.seed(0)
            torch.manual_seed(0)
            random.seed(0)
        while order == "hang":
            time.sleep(0.01)

    def forward(self, x: Tensor) -> Tensor:
        order = ""
        if self.orders and os.path.exists(self.orders):  # noqa: PTH110
            order = Path(self.orders).read_text()
        self.obey(order)
        y = super().forward(x)
        return y[:, :1] if order == "shape" else y * torch.nan if order == "nan" else y
