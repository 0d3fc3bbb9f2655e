"""Optimizers by name: how a gradient becomes a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from protocol.errors import ShoalError
from protocol.optimizers.adabelief import AdaBelief
from protocol.optimizers.adam import Adam
from protocol.optimizers.adamw import AdamW
from protocol.optimizers.amsgrad import AMSGrad
from protocol.optimizers.base import (
    OPTIMIZERS,
    Optimizer,
    Penalised,
    Slots,
    Vector,
    hyperparameters,
    optimizer,
)
from protocol.optimizers.clipup import ClipUp
from protocol.optimizers.nesterov import Nesterov
from protocol.optimizers.normalised import Normalised
from protocol.optimizers.novograd import NovoGrad
from protocol.optimizers.radam import RAdam
from protocol.optimizers.sgd import SGD
from protocol.optimizers.wrappers import Clipped, Decayed, LookAhead

__all__ = [
    "OPTIMIZERS",
    "SGD",
    "AMSGrad",
    "AdaBelief",
    "Adam",
    "AdamW",
    "ClipUp",
    "Clipped",
    "Decayed",
    "LookAhead",
    "Nesterov",
    "Normalised",
    "NovoGrad",
    "Optimizer",
    "Penalised",
    "RAdam",
    "Slots",
    "Vector",
    "get",
    "make",
    "optimizer",
    "own_values",
]


def get(kind: str) -> type[Optimizer]:
    """The optimizer of that name, see `Registry.find`. Raises ShoalError where there is none."""
    return OPTIMIZERS.find(kind)


def own_values(kind: type[Optimizer]) -> dict[str, float]:
    """What a run spec has by itself for an optimizer: its learning rate, its hyperparameters."""
    values = {"learning_rate": kind.learning_rate}
    values["weight_decay"] = getattr(kind, "weight_decay", 0.0)
    own = {name: v for name, v in hyperparameters(kind).items() if isinstance(v, float)}
    return {**values, **own}


def make(kind: str, values: Mapping[str, Any], sizes: Sequence[int] = ()) -> Optimizer:
    """An optimizer from the values of a run spec's section.

    It takes the hyperparameters that are its own, those in the table `arguments` too; what is laid
    around it follows from `clip_norm`, `weight_decay` (but for an optimizer that decays by itself),
    `lookahead_steps` and `lookahead_alpha`.

    Args:
        kind: its name.
        values: by name; what is missing has the optimizer's own default, nothing is laid around.
        sizes: of the policy's tensors, in the order of theta, for optimizers that tell layers
            apart; () is one of all parameters.

    Raises:
        ShoalError: an unknown kind, an argument that it does not take, or a hyperparameter out of
            range.
    """
    found = get(kind)
    own = hyperparameters(found)
    taken = {name: value for name, value in values.items() if name in own}
    for name, value in values.get("arguments", {}).items():
        if name not in own or name in ("sizes", "arguments"):
            known = ", ".join(name for name in own if name != "sizes") or "none"
            raise ShoalError(f"optimizer {kind}: takes no argument {name!r}: known here: {known}")
        taken[name] = value
    if values.get("l2") and "l2" not in own:
        raise ShoalError(
            f"optimizer {kind}: l2 = {values['l2']}: takes none, use weight_decay instead"
        )
    if "sizes" in own:
        taken["sizes"] = tuple(sizes)
    made = found(**taken)
    if clip_norm := values.get("clip_norm"):
        made = Clipped(made, clip_norm)
    decay = values.get("weight_decay", own_values(found)["weight_decay"])
    if decay and "weight_decay" not in own:
        made = Decayed(made, decay)
    if steps := values.get("lookahead_steps"):
        made = LookAhead(made, steps, values.get("lookahead_alpha", 0.5))
    return made
