"""AdamW (Loshchilov and Hutter 2019, "Decoupled weight decay regularization", algorithm 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from protocol.optimizers.adam import Adam
from protocol.optimizers.base import optimizer


@optimizer
@dataclass(frozen=True)
class AdamW(Adam):
    """Adam beside which weights decay: step = Adam's - learning_rate * weight_decay * theta.

    The decay itself is the same for every optimizer, see `protocol.optimizers.wrappers.Decayed`;
    here it is there unless the spec says otherwise.
    """

    kind: ClassVar[str] = "adamw"
    weight_decay: ClassVar[float] = 0.01
