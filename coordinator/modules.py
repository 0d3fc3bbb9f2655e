"""What a run's PyTorch module is: its parameters, told by a process of its own.

The coordinator never imports PyTorch or a user's module.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coordinator.describing import Question, as_json, ask
from protocol import spec as run_spec
from protocol.spec import RunSpec

if TYPE_CHECKING:
    from protocol.state import State

DESCRIBE_TIMEOUT = 120.0
"""Seconds that a module may take to tell its parameters; PyTorch alone takes some to load."""


def begin(raw: Mapping[str, Any], allowed: Sequence[str]) -> tuple[RunSpec, State | None]:
    """The spec of a run whose policy is a module, and the version 0 that it names.

    `raw` are the spec's plain values. Where they say nothing of `policy.initialisation`, version 0
    has the parameters that the module itself begins with, made from the run's seed; else it is None
    and follows from the spec.

    Raises `SpecError`.
    """
    given = raw["policy"].get("initialisation", "given") == "given"
    parameters, theta = _ask(raw, allowed)
    known: dict[str, Any] = {"parameters": parameters}
    if given:
        known |= {"initialisation": "zero", "initial_digest": ""}
    spec = run_spec.parse(run_spec.merge(raw, {"policy": known}))
    if not given:
        return spec, None
    from coordinator import initial  # compiled code, which only these runs need so early

    return initial.given(spec, theta)


def _ask(raw: Mapping[str, Any], allowed: Sequence[str]) -> tuple[list[Any], NDArray[np.float32]]:
    """Names and shapes of the module's parameters, and their values."""
    policy = raw["policy"]
    with tempfile.TemporaryDirectory(prefix="shoal-") as folder:
        file = Path(folder) / "theta"
        said = ask(
            Question(
                "worker.describe_module",
                f"the policy {str(policy.get('module', ''))[:80]!r}",
                [
                    f"--theta={file}",
                    f"--policy={as_json('policy', policy)}",
                    f"--seed={raw.get('seed', 0)}",
                    f"--environment={as_json('environment', raw['environment'])}",
                ],
                DESCRIBE_TIMEOUT,
                "let its class be made and called faster",
                allowed,
            )
        )
        return said["parameters"], np.fromfile(file, dtype="<f4").astype(np.float32)
