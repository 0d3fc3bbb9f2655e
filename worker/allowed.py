"""What a run names in a module, imported only where the volunteer allows the package."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from protocol.errors import ShoalError
from protocol.policies import package
from protocol.registry import is_within
from worker.evaluation.words import words_of

FAILURES = (Exception, SystemExit)
"""What a module's own code may raise: it doesn't decide that this process ends."""


def require(path: str, what: str, allowed: Sequence[str], failure: type[ShoalError]) -> None:
    """Raises `failure` where a `path` such as `package.module:name` is not within an `allowed`
    module; `what` is the word for it, such as "policy"."""
    where = path.partition(":")[0]
    if not is_within(where, allowed):
        raise failure(
            f"the run's {what} is {path!r}, and {where!r} is not allowed here: only code that its "
            f"volunteer trusts is run; read it, and allow it with --allow-module {package(path)}"
        )


def imported(path: str, what: str, failure: type[ShoalError]) -> Any:
    """What lies at an allowed path. Raises `failure` where it is not there."""
    where, _, name = path.partition(":")
    try:
        return getattr(importlib.import_module(where), name)
    except FAILURES as error:
        raise failure(
            f"the {what} {path!r} can't be imported ({words_of(error)}): install the package that "
            "holds it, the version that the host has"
        ) from None


def import_registrars(allowed: Sequence[str], failure: type[ShoalError]) -> None:
    """Import the modules that the volunteer lets register environments. Raises `failure`."""
    for module in allowed:
        try:
            importlib.import_module(module)
        except Exception as error:
            raise failure(
                f"the allowed module {module!r} can't be imported ({words_of(error)}): "
                "install it or take it off the list"
            ) from None
