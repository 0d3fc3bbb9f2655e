"""Finds out by calls of a PyTorch module whether it can be a policy, and what it remembers."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils import _pytree as pytree

from worker.allowed import FAILURES
from worker.evaluation.words import words_of
from worker.policies.modules import PolicyUnavailable

TOLERANCE = 1e-3
"""Between outputs that are to be the same but for the order of sums."""
STEPS = 3
"""Of an episode in which a module is compared with the one that it was made from."""


class Traits(NamedTuple):
    """What a module is found to be.

    Attributes:
        states: the state that it gives, as a flat list; none where it remembers nothing.
        structure: how it wants them back.
    """

    states: list[Tensor]
    structure: Any


def copied(name: str, module: nn.Module) -> nn.Module:
    """A copy of the policy's module. Raises `PolicyUnavailable`."""
    try:
        return copy.deepcopy(module)
    except FAILURES as error:
        raise PolicyUnavailable(
            f"the policy {name!r} can't be copied ({words_of(error, 80)}): keep tensors as "
            "parameters or buffers, and use torch.nn.utils.parametrizations for weight_norm"
        ) from None


def examine(name: str, module: nn.Module, inputs: Tensor, count: int) -> Traits:
    """What the policy's module gives for these inputs; it must be `count` outputs.

    Raises `PolicyUnavailable`.
    """
    before = [buffer.clone() for buffer in module.buffers()]
    try:
        given, again = (_begin(module, inputs) for _ in range(2))
    except FAILURES as error:
        raise PolicyUnavailable(
            f"the policy {name!r} fails on an observation of shape {tuple(inputs.shape)} "
            f"({words_of(error)}): its forward takes a batch of one"
        ) from None
    remembers = isinstance(given, tuple) and len(given) == 2 and len(_taken(module)) > 1
    outputs, state = given if remembers else (given, None)
    if not isinstance(outputs, Tensor) or outputs.numel() != count:
        found = (
            f"outputs of shape {tuple(outputs.shape)}"
            if isinstance(outputs, Tensor)
            else type(outputs).__name__
        )
        raise PolicyUnavailable(
            f"the policy {name!r} gives {found} for one observation: it must give "
            f"{count} outputs, or (outputs, state) where it takes a state"
        )
    if outputs.is_complex() or outputs.device != inputs.device:
        raise PolicyUnavailable(
            f"the policy {name!r} gives {str(outputs.dtype).removeprefix('torch.')} for one "
            f"observation, on {outputs.device}: outputs must be real numbers on {inputs.device}, "
            "where its parameters are"
        )
    for leaf in pytree.tree_leaves(given):
        if not isinstance(leaf, Tensor):
            raise PolicyUnavailable(
                f"the policy {name!r} gives a state that holds {type(leaf).__name__}: a state is "
                "a tensor, or nested tuples of tensors"
            )
        if leaf.isnan().any():
            raise PolicyUnavailable(
                f"the policy {name!r} gives NaN for an ordinary observation: its outputs and its "
                "state must be numbers"
            )
    same = _form(given) == _form(again) and all(
        map(torch.equal, pytree.tree_leaves(given), pytree.tree_leaves(again))
    )
    kept = all(map(torch.equal, before, module.buffers()))
    if not (same and kept):
        raise PolicyUnavailable(
            f"the policy {name!r} "
            + ("changes its buffers" if same else "gives other outputs each time")
            + ": it must depend on its parameters and what it is called with alone; what it "
            "remembers goes through forward(observation, state)"
        )
    if state is None:
        return Traits([], None)
    leaves, structure = pytree.tree_flatten(state)
    zeros = pytree.tree_unflatten([torch.zeros_like(leaf) for leaf in leaves], structure)
    try:
        begun = module(inputs, zeros)
    except FAILURES as error:
        raise PolicyUnavailable(
            f"the policy {name!r} fails on zeros in the form of the state that it gives "
            f"({words_of(error)}): it must take the state that it gave"
        ) from None
    if _form(begun) != _form(given):
        raise PolicyUnavailable(
            f"the policy {name!r} gives another form of state for a state than for None: a state "
            "keeps its structure, shapes and types"
        )
    if not torch.equal(begun[0], outputs):
        raise PolicyUnavailable(
            f"the policy {name!r} begins with another state than zeros where it is given "
            "None: episodes begin with zeros"
        )
    return Traits(leaves, structure)


def agree(
    modules: tuple[nn.Module, nn.Module],
    parameters: Mapping[str, Tensor],
    inputs: Tensor,
    traits: Traits,
) -> bool:
    """Whether modules give the same outputs and states, but for rounding, in an episode's steps.

    Args:
        inputs: shape (steps, *what a module takes).
    """
    zeros = [torch.zeros_like(leaf) for leaf in traits.states]
    states = [pytree.tree_unflatten(zeros, traits.structure)] * 2 if zeros else [(), ()]
    for seen in inputs:
        given = []
        for number, module in enumerate(modules):
            arguments = (seen, states[number]) if zeros else (seen,)
            try:
                found = functional_call(module, dict(parameters), arguments, tie_weights=False)
            except FAILURES:
                return False
            given.append(found)
        if _form(given[0]) != _form(given[1]):
            return False
        for one, other in zip(*map(pytree.tree_leaves, given), strict=True):
            if not torch.allclose(one, other, TOLERANCE, TOLERANCE, equal_nan=True):
                return False
        if zeros:
            states = [found[1] for found in given]
    return True


def places_of(module: nn.Module) -> dict[str, str]:
    """Each place where a parameter is, and the name under which it comes in `named_parameters`.

    A part that has two names has one place: `functional_call` would put back at the second what it
    had put at the first.
    """
    names = {id(value): name for name, value in module.named_parameters()}
    return {
        place: names[id(value)]
        for above, part in module.named_modules()
        for place, value in part.named_parameters(above, recurse=False, remove_duplicate=False)
    }


def noise(shape: tuple[int, ...], seed: int) -> Tensor:
    """The same numbers each time, whatever PyTorch's own generator is at."""
    drawn = np.random.default_rng(seed).normal(size=shape)
    return torch.from_numpy(drawn.astype(np.float32))


def _form(given: Any) -> Any:
    """Structure, shapes and types of what a module gives."""
    leaves, structure = pytree.tree_flatten(given)
    return structure, [
        (leaf.shape, leaf.dtype) if isinstance(leaf, Tensor) else type(leaf) for leaf in leaves
    ]


def _begin(module: nn.Module, inputs: Tensor) -> Any:
    """What a module gives for an observation with which an episode begins."""
    asked = [taken for taken in _taken(module) if taken.default is taken.empty]
    return module(inputs, None) if len(asked) == 2 else module(inputs)


def _taken(module: nn.Module) -> list[inspect.Parameter]:
    """What a module's forward takes by position."""
    return [
        parameter
        for parameter in inspect.signature(module.forward).parameters.values()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
