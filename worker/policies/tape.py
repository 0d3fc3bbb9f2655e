"""PyTorch's operations, recorded once and played again: what leads to them costs more than they do.

`torch.func` finds out anew at each call, in Python, which operations a batch of lanes takes. They
are the same each time, since no value of a batched tensor can decide what is done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode


class Unrecorded(Exception):  # noqa: N818 - what became of it, said as such
    """A function whose operations can't be played again."""


class Call(NamedTuple):
    """An operation: which slots it takes its tensors from, and puts its results into.

    Attributes:
        arguments: a flat list, in which tensors that change are filled in.
        holes: their places in it, and their slots.
        structure: of (positional arguments, keyword arguments); None where all are positional and
            none holds others.
    """

    operation: Callable[..., Any]
    arguments: list[Any]
    holes: tuple[tuple[int, int], ...]
    structure: Any
    results: tuple[tuple[int, int], ...]


class Recorder(TorchDispatchMode):
    """Notes the operations that are done."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[tuple[Any, Any, dict[str, Any], Any]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Do an operation, and note it; nothing is let go, so that each tensor is told apart."""
        result = func(*args, **(kwargs or {}))
        self.done.append((func, args, kwargs or {}, result))
        return result


class Tape:
    """What a function does to tensors that stay where they are, whatever their values.

    Views of them are made once. Call it in inference mode.
    """

    def __init__(self, function: Callable[[], Any], kept: Sequence[Tensor]) -> None:
        """`function` computes tensors from the `kept` ones. Raises `Unrecorded`."""
        with Recorder() as recorder:
            given = function()
        homes = {tensor.untyped_storage().data_ptr() for tensor in kept}
        slots: dict[int, int] = {}  # of each tensor that an operation makes anew, by its identity
        self._calls: list[Call] = []
        for func, args, kwargs, result in recorder.done:
            self._add(func, args, kwargs, result, homes, slots)
        leaves, self._structure = pytree.tree_flatten(given)
        self._given = [(leaf, slots.get(id(leaf))) for leaf in leaves]
        self._room: list[Any] = [None] * len(slots)

    def __call__(self) -> Any:
        """What the function gives for the values that the tensors have now."""
        room = self._room
        for operation, arguments, holes, structure, results in self._calls:
            for place, slot in holes:
                arguments[place] = room[slot]
            if structure is None:
                result = operation(*arguments)
            else:
                positional, named = pytree.tree_unflatten(arguments, structure)
                result = operation(*positional, **named)
            for place, slot in results:
                room[slot] = result if place < 0 else result[place]
        leaves = [leaf if slot is None else room[slot] for leaf, slot in self._given]
        return pytree.tree_unflatten(leaves, self._structure)

    def _add(
        self,
        func: Any,
        args: Any,
        kwargs: dict[str, Any],
        result: Any,
        homes: set[int],
        slots: dict[int, int],
    ) -> None:
        arguments, structure = pytree.tree_flatten((list(args), kwargs))
        tensors = [value for value in arguments if isinstance(value, Tensor)]
        made = list(result) if isinstance(result, list | tuple) else [result]
        if not all(isinstance(value, Tensor) for value in made):
            raise Unrecorded(f"{func} gives something else than tensors")
        if torch.Tag.nondeterministic_seeded in func.tags:
            raise Unrecorded(f"{func} is random")
        at_home = all(value.untyped_storage().data_ptr() in homes for value in tensors)
        if func._schema.is_mutable:
            raise Unrecorded(f"{func} writes over a tensor")
        if tensors and at_home and all(v.untyped_storage().data_ptr() in homes for v in made):
            return  # a view, which goes on to show what is there
        holes = tuple(
            (place, slots[id(value)])
            for place, value in enumerate(arguments)
            if isinstance(value, Tensor) and id(value) in slots
        )
        for place, _ in holes:
            arguments[place] = None
        first = len(slots)
        for number, value in enumerate(made):
            slots[id(value)] = first + number
        single = isinstance(result, Tensor)
        results = tuple((-1 if single else n, first + n) for n in range(len(made)))
        flat = not kwargs and len(arguments) == len(args)
        flat = flat and not any(isinstance(value, list | tuple | dict) for value in args)
        self._calls.append(Call(func, arguments, holes, None if flat else structure, results))
