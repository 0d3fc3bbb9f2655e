"""What a run's PyTorch module is: its parameters, told by a process of its own.

The coordinator never imports PyTorch or a user's module.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from protocol import spec as run_spec
from protocol.spec import RunSpec, SpecError

if TYPE_CHECKING:
    from protocol.state import State

DESCRIBE_TIMEOUT = 120.0
"""Seconds that a module may take to tell its parameters; PyTorch alone takes some to load."""
UNKNOWN_DIGEST = "0" * 32


def begin(raw: Mapping[str, Any], allowed: Sequence[str]) -> tuple[RunSpec, State | None]:
    """The spec of a run whose policy is a module, and the version 0 that it names.

    `raw` are the spec's plain values. Where they say nothing of `policy.initialisation`, version 0
    has the parameters that the module itself begins with, made from the run's seed; else it is None
    and follows from the spec.

    Raises `SpecError`.
    """
    given = raw["policy"].get("initialisation", "given") == "given"
    parameters, theta = _ask(raw, allowed)
    begins: dict[str, Any] = {"parameters": parameters}
    if given:
        begins |= {"initialisation": "given", "initial_digest": UNKNOWN_DIGEST}
    spec = run_spec.parse(run_spec.merge(raw, {"policy": begins}))
    if not given:
        return spec, None
    # Compiled code, which only these runs need so early.
    from protocol import replay, snapshot, state

    first = state.initial_state(replay.arithmetic(spec), theta, spec.strategy.sigma_at(0))
    policy = msgspec.structs.replace(spec.policy, initial_digest=snapshot.state_digest(first).hex())
    return msgspec.structs.replace(spec, policy=policy), first


def _ask(raw: Mapping[str, Any], allowed: Sequence[str]) -> tuple[list[Any], NDArray[np.float32]]:
    """Names and shapes of the module's parameters, and their values."""
    policy = raw["policy"]
    name = str(policy.get("module", ""))[:80]
    with tempfile.TemporaryDirectory(prefix="shoal-") as folder:
        file = Path(folder) / "theta"
        command = [sys.executable, "-m", "worker.describe_module", f"--theta={file}"]
        try:
            command += [f"--policy={json.dumps(policy)}", f"--seed={raw.get('seed', 0)}"]
            command += [f"--environment={json.dumps(raw['environment'])}"]
            command += [f"--allow-module={module}" for module in allowed]
            done = subprocess.run(command, capture_output=True, text=True, timeout=DESCRIBE_TIMEOUT)
        except subprocess.TimeoutExpired:
            raise SpecError(
                f"the policy {name!r} did not tell its parameters within {DESCRIBE_TIMEOUT:.0f} s: "
                "let its class be made and called faster"
            ) from None
        except (OSError, TypeError, ValueError) as error:
            raise SpecError(
                f"the policy {name!r} can't be asked for its parameters ({error}): give arguments "
                "that are numbers, texts, booleans or lists of them"
            ) from None
        try:
            said = json.loads(done.stdout.strip().splitlines()[-1])
            if "error" in said:
                raise SpecError(str(said["error"]))
            parameters: list[Any] = said["parameters"]
            return parameters, np.fromfile(file, dtype="<f4").astype(np.float32)
        except (IndexError, KeyError, TypeError, ValueError, OSError):
            reason = " ".join(done.stderr.split())[-300:] or f"exit code {done.returncode}"
            raise SpecError(f"the policy {name!r} can't be made here: {reason}") from None
