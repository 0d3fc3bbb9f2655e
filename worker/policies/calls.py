"""Calls of compiled kernels with the same arrays over and over, at a fraction of their cost."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

_entries: dict[tuple[Any, ...], Callable[..., Any]] = {}
"""The code of each kernel for arguments of these kinds."""


def prepared(kernel: Any, *arguments: Any) -> Callable[[], Any]:
    """A call of a Numba kernel with these arguments.

    An ordinary call looks each time at the types of all arguments, to find the code for them. That
    takes 3 us for a dozen arrays, and several times as long where an environment's step has just
    emptied the caches; without it they take half a microsecond.
    """
    kinds = kernel, *map(_kind, arguments)
    entry = _entries.get(kinds)
    if entry is None:
        entry = _entries[kinds] = kernel.compile(tuple(map(kernel.typeof_pyval, arguments)))
    return partial(entry, *arguments)


def _kind(argument: Any) -> Any:
    """What decides an argument's type for the compiler: which takes it long to say."""
    if isinstance(argument, np.ndarray):
        return argument.dtype, argument.ndim, argument.flags.num
    if isinstance(argument, tuple):
        return tuple(map(_kind, argument))
    return type(argument)
