"""What a run's objective is: whether its function takes a seed, told by a process of its own.

The coordinator never imports a user's module.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

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
    try:
        command = [sys.executable, "-m", "worker.describe_objective"]
        command += [f"--allow-module={module}" for module in allowed]
        command += ["--", json.dumps(objective)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=DESCRIBE_TIMEOUT)
    except subprocess.TimeoutExpired:
        raise SpecError(
            f"the module of the objective was not imported within {DESCRIBE_TIMEOUT:.0f} s: let "
            "it do less when it is imported, or give centre.episodes"
        ) from None
    except (OSError, TypeError, ValueError) as error:
        raise SpecError(
            f"the objective {str(objective)[:80]!r} can't be asked for ({error}): give it a "
            "function and a number of parameters"
        ) from None
    try:
        said = json.loads(done.stdout.strip().splitlines()[-1])
        if "error" in said:
            raise SpecError(str(said["error"]))
        return bool(said["seeded"])
    except (IndexError, KeyError, TypeError, ValueError):
        reason = " ".join(done.stderr.split())[-300:] or f"exit code {done.returncode}"
        raise SpecError(f"the objective can't be imported here: {reason}") from None
