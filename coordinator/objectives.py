"""What a run's objective is: whether its function takes a seed, told by a process of its own.

The coordinator never imports a user's module.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from coordinator.describing import Question, as_json, ask
from protocol import spec as run_spec
from protocol.spec import SpecError

DESCRIBE_TIMEOUT = 60.0
"""Seconds that the module of a function may take to be imported."""


def begin(raw: Mapping[str, Any], allowed: Sequence[str]) -> dict[str, Any]:
    """The spec values of a run that has an objective.

    A function that takes no seed gives the same in every episode, so its centre gets one only,
    where `raw` says nothing of `centre.episodes`.

    Raises `SpecError`.
    """
    objective, environment = raw["objective"], raw.get("environment", {})
    if isinstance(objective, Mapping) and isinstance(environment, Mapping):
        named, other = objective.get("function"), environment.get("id")
        if other not in (None, named):
            raise SpecError(
                f"objective.function is {named!r} beside the environment {other!r}: an objective "
                "takes the place of an environment, give one of them"
            )
    whole = dict(run_spec.completed(raw))
    run_spec.parse({"name": "trial", **whole})
    if "episodes" in whole.get("centre", {}) or _takes_seed(raw["objective"], allowed):
        return whole
    return run_spec.merge({"centre": {"episodes": 1, "screening": 1}}, whole)


def _takes_seed(objective: Any, allowed: Sequence[str]) -> bool:
    said = ask(
        Question(
            "worker.describe_objective",
            f"the objective {str(objective)[:80]!r}",
            ["--", as_json("objective", objective)],
            DESCRIBE_TIMEOUT,
            "let its module do less when it is imported, or give centre.episodes",
            allowed,
        )
    )
    return bool(said["seeded"])
