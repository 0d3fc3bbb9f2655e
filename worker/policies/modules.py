"""Finds the PyTorch module that a run's policy names, where the volunteer allows its package."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from protocol.errors import ShoalError
from worker.allowed import FAILURES, imported, require
from worker.evaluation.words import words_of

if TYPE_CHECKING:
    from torch import nn


class PolicyUnavailable(ShoalError):  # noqa: N818 - a state of this machine
    """This machine can't run the policy of the run; the message says why and what to do."""


def load(
    path: str, arguments: Mapping[str, Any], allowed: Sequence[str], seed: int = 0
) -> nn.Module:
    """A new module of the class at `path`, in eval mode and float32.

    Nothing is imported that is not within an `allowed` module. The parameters are those that
    PyTorch's generator makes from the seed.

    Raises:
        PolicyUnavailable: not allowed, not found, no module, or it can't be made.
    """
    require(path, "policy", allowed, PolicyUnavailable)
    require_torch()
    import torch
    from torch import nn

    found = imported(path, "policy", PolicyUnavailable)
    if not (isinstance(found, type) and issubclass(found, nn.Module)):
        raise PolicyUnavailable(
            f"the policy {path!r} is {type(found).__name__}: it must be a class that "
            "inherits from torch.nn.Module"
        )
    torch.manual_seed(seed)
    try:
        module = found(**arguments)
    except FAILURES as error:
        raise PolicyUnavailable(
            f"the policy {path!r} can't be made ({words_of(error)}): give it policy.arguments "
            "that it takes"
        ) from None
    return module.float().eval().requires_grad_(False)


def require_torch() -> None:
    """Raises `PolicyUnavailable` where PyTorch is not installed."""
    if importlib.util.find_spec("torch") is None:
        raise PolicyUnavailable(
            "the run's policy needs PyTorch, which is not installed: pip install 'shoal[torch]'"
        )


def require_same(
    path: str, module: nn.Module, parameters: Sequence[tuple[str, tuple[int, ...]]]
) -> None:
    """Raises `PolicyUnavailable` where the module has other parameters than the run's spec says."""
    found = parameters_of(module)
    if found != list(parameters):
        expected = dict(parameters)
        wrong = [name for name, shape in found if expected.get(name) != shape] or [
            name for name in expected if name not in dict(found)
        ]
        raise PolicyUnavailable(
            f"the policy {path!r} has other parameters here than in the run's spec"
            + (f" ({', '.join(wrong)[:120]})" if wrong else "")
            + ": install the version of its package that the host has"
        )


def parameters_of(module: nn.Module) -> list[tuple[str, tuple[int, ...]]]:
    """Name and shape of each parameter; one that has two names comes once."""
    return [(name, tuple(value.shape)) for name, value in module.named_parameters()]
