"""A function of the parameters alone, in the place of an environment and a policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from protocol.section import Section

BACKEND = "objective"
KIND = "parameters"
NOTHING_SEEN: dict[str, Any] = {"kind": "box", "shape": [1]}
NOTHING_DONE: dict[str, Any] = {"kind": "box", "shape": [1], "low": [-1.0], "high": [1.0]}

FunctionPath = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^(?=.{3,128}\Z)[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*\Z",
        description="a module and a function in it, such as my_package.problems:sphere",
    ),
]


class ObjectiveSpec(Section, frozen=True, kw_only=True):
    """In the place of an environment and a policy: any function of the parameters, which it takes
    as a float32 array of shape (parameters,), and makes a number of. A call is an episode of one
    step."""

    function: FunctionPath
    """Where it is, as `package.module:function`. Volunteers take part who allow the package with
    `--allow-module`. One with a parameter named `seed` gets the episode's."""
    parameters: Annotated[int, msgspec.Meta(ge=1, le=1 << 28)]
    """How many."""
    goal: Literal["maximise", "minimise"] = "maximise"
    """With `minimise` a return is minus the value, in `stop.target` too."""
    start: Annotated[tuple[float, ...], msgspec.Meta(max_length=4096)] = ()
    """Parameters to begin with: one number for all, or one each; none: zeros."""

    @property
    def theta(self) -> NDArray[np.float32]:
        """Parameters to begin with, shape (parameters,)."""
        start = np.array(self.start or (0.0,), dtype=np.float32)
        return np.broadcast_to(start, (self.parameters,)).copy()

    def fault(self) -> str | None:
        """What is wrong with it, and what to do."""
        if len(self.start) not in (0, 1, self.parameters):
            return (
                f"objective.start has {len(self.start):,} numbers for objective.parameters = "
                f"{self.parameters:,}: give one for all, one each, or none"
            )
        with np.errstate(over="ignore"):
            finite = np.isfinite(np.array(self.start, dtype=np.float32)).all()
        return None if finite else "objective.start has a number beyond float32: give smaller ones"


def around(raw: Mapping[str, Any]) -> dict[str, Any]:
    """What a spec with these values, whose `objective` names a function, has beside it."""
    objective = raw["objective"]
    named = objective.get("function") if isinstance(objective, Mapping) else None
    environment = {
        "id": named if isinstance(named, str) else "objective",
        "backend": BACKEND,
        "observation": NOTHING_SEEN,
        "action": NOTHING_DONE,
        "max_steps": 1,
    }
    return {"environment": environment, "policy": {"kind": KIND, "initialisation": "zero"}}
