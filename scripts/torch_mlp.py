"""The MLP of the built-in policy as a PyTorch module, parameters in the same order."""

from __future__ import annotations

from torch import Tensor, nn


class Mlp(nn.Module):
    """Linear layers with tanh between them.

    Args:
        widths: of the inputs, of each hidden layer, of the outputs.
    """

    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(map(nn.Linear, widths[:-1], widths[1:]))

    def forward(self, x: Tensor) -> Tensor:
        """Outputs, shape (outputs,), of inputs (inputs,)."""
        *hidden, last = self.layers
        for layer in hidden:
            x = layer(x).tanh()
        return last(x)
